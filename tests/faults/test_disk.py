"""A disk that is full or cannot be written: an error in words, and the right rows once there is space again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.faults.disks import fill, mounted
from tests.faults.victim import Victim, contents

pytestmark = pytest.mark.spark


@pytest.mark.timeout(600)
def test_a_disk_that_fills_up_is_named_and_with_more_space_nothing_is_lost(tmp_path: Path) -> None:
    victim = Victim(tmp_path / "victim", ("row_table", "window_table"))
    with mounted(victim.state, "size=64m"):
        with victim.crashes.start() as process:
            process.wait_until(lambda: victim.crashes.committed >= 0, "the first commit")
            filler = fill(victim.state)
            code = process.wait()
        assert code == 1, process.text
        assert f"error[DISK_FULL] no space left on the disk of {victim.state}" in process.text
        assert "Traceback" not in process.text
        assert "\tat " not in process.text
        victim.check_nothing_twice()

        filler.unlink()
        code, text = victim.crashes.run()
        assert code == 0, text
        victim.check_complete()


def test_a_disk_that_is_full_from_the_start_is_named_before_spark_is_started(tmp_path: Path) -> None:
    victim = Victim(tmp_path / "victim", ("row_table",), files=1)
    with mounted(victim.state, "size=64k"):
        fill(victim.state)
        before = set(contents(victim.state))

        code, text = victim.crashes.run()

        assert (code, text.splitlines()[0]) == (1, f"error[DISK_FULL] no space left on the disk of {victim.state}")
        assert set(contents(victim.state)) - before <= {"lock"}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "sink", ["row_files", *(pytest.param(sink, marks=pytest.mark.long) for sink in ("row_table", "row_delta"))]
)
def test_an_output_that_cannot_be_written_is_named(tmp_path: Path, sink: str) -> None:
    victim = Victim(tmp_path / "victim", (sink,), files=1)
    with mounted(victim.folder / "out", "size=1m,ro"):
        code, text = victim.crashes.run()

        assert code == 1, text
        assert "error[PATH_NOT_WRITABLE] " in text or "error[SINK_FAILED] " in text
        assert str(victim.folder / "out") in text
        assert "Traceback" not in text
        assert os.listdir(victim.folder / "out") == []
    code, text = victim.crashes.run()
    assert code == 0, text
    victim.check_complete()
