"""The clock of the machine is set while a run waits for its next batch, also as the JVM sees it."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.engine.ledger import Ledger
from penstock.testing.processes import LIGHT, Process

if TYPE_CHECKING:
    from tests.conftest import Project

_SOURCE = Path(__file__).parent / "clock" / "shifted.c"
_HOUR = 3600
_AGAIN = "the machine's clock was set back by 3600 seconds"
_PIPELINE = """\
sources:
  rows: {files: {path: ./in}, format: {json: {schema: {n: bigint}}}}
sinks:
  out: {from: rows, sqlite: {path: out.db, table: t}}
run: {trigger: 1 second}
"""

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture
def clock(tmp_path: Path) -> Path:
    """A library that shifts the time of day of the processes that load it."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler to build the clock with")
    library = tmp_path / "shifted.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, _SOURCE], check=True)
    return library


def rows(folder: Path) -> list[int]:
    """What the sink holds."""
    with (
        suppress(sqlite3.OperationalError),
        closing(sqlite3.connect(f"file:{folder / 'out.db'}?mode=ro", uri=True)) as db,
    ):
        return sorted(number for (number,) in db.execute("SELECT n FROM t"))
    return []


def test_a_run_takes_its_next_batch_however_the_clock_is_set(project: Project, clock: Path) -> None:
    shift, file = project.put("shift", "0"), project.write(_PIPELINE)
    # With --debug, what is logged is printed.
    env = {"LD_PRELOAD": str(clock), "CLOCK_SHIFT": str(shift)}
    with Process(["--debug", "run", file, *LIGHT], project.folder / "log", env) as run:
        project.put("in/0.json", '{"n": 0}\n')
        run.wait_until(lambda: rows(project.folder) == [0], "the first row")
        for number, (ahead, times) in enumerate(((-_HOUR, 1), (_HOUR, 1), (0, 2)), start=1):
            project.put("shift", str(ahead))
            project.put(f"in/{number}.json", f'{{"n": {number}}}\n')
            run.wait_until(lambda: rows(project.folder) == list(range(number + 1)), "the next row")  # noqa: B023
            run.wait_until(lambda: run.text.count(_AGAIN) >= times, "its query is started again")  # noqa: B023
            assert run.text.count(_AGAIN) == times, run.text
        run.signal(signal.SIGTERM)
        assert run.wait() == 0, run.text
    totals = Ledger(project.folder / ".penstock" / "demo" / "ledger.db").totals()
    assert (totals.rows_in, totals.rows_out) == ({"rows": 4}, {"out": 4})
    assert rows(project.folder) == [0, 1, 2, 3]
