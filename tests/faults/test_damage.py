"""A damaged checkpoint is an error that names the file; it is never taken for a fresh start."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.faults.victim import Victim, contents

from penstock.components.sinks.sqlite import BATCHES
from penstock.testing.processes import LIGHT, penstock

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Victim:
    """A pipeline that has run to its end; tests damage copies of it."""
    victim = Victim(tmp_path_factory.mktemp("done") / "victim", ("window_table",), files=4)
    victim.finish()
    return victim


def newest(log: str) -> Callable[[Path], Path]:
    def find(checkpoint: Path) -> Path:
        return max((entry for entry in (checkpoint / log).iterdir() if entry.name.isdigit()), key=lambda e: int(e.name))

    return find


def metadata(checkpoint: Path) -> Path:
    return checkpoint / "metadata"


def identity(checkpoint: Path) -> Path:
    return checkpoint.parent / "pipeline.json"


def cut(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


def cut_after_the_first_line(file: Path) -> None:
    file.write_bytes(file.read_bytes().splitlines(keepends=True)[0])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x80
    file.write_bytes(content)


def remove(file: Path) -> None:
    file.unlink()


@pytest.mark.parametrize(
    ("find", "damage"),
    [
        (newest("offsets"), cut),
        (newest("offsets"), cut_after_the_first_line),
        (newest("offsets"), empty),
        (newest("offsets"), flip),
        (newest("offsets"), remove),
        (newest("commits"), cut),
        (newest("commits"), empty),
        (metadata, remove),
        (metadata, empty),
        (identity, cut),
        (identity, empty),
    ],
    ids=lambda value: value.__qualname__.split(".")[0],
)
def test_damage_is_named_and_nothing_is_changed(
    done: Victim, tmp_path: Path, find: Callable[[Path], Path], damage: Callable[[Path], None]
) -> None:
    folder = tmp_path / "victim"
    shutil.copytree(done.folder, folder)
    state = folder / ".penstock" / "victim"
    file = find(state / "checkpoint")
    damage(file)
    before = lasting(folder)

    code, text = penstock("run", folder / "victim.yaml", "--once", *LIGHT, log=tmp_path / "run.log")

    assert code == 1
    assert f"error[STATE_UNREADABLE] state in {file} cannot be read: " in text
    assert "Restore the file from a copy" in text
    assert "Traceback" not in text
    assert lasting(folder) == before


def newest_state(checkpoint: Path) -> Path:
    return max((checkpoint / "state" / "0" / "0").glob("*.changelog"), key=lambda file: int(file.name.split(".")[0]))


def newest_source_log(checkpoint: Path) -> Path:
    return newest("sources/events")(checkpoint)


@pytest.mark.parametrize(
    ("find", "damage", "named"),
    [
        (newest_state, cut, lambda file: file.parents[2]),
        (newest_state, remove, lambda file: file),
        (newest_source_log, cut, lambda file: file),
    ],
    ids=["state cut", "state removed", "log of the source cut"],
)
def test_damaged_state_is_named_and_the_output_stays(
    done: Victim,
    tmp_path: Path,
    find: Callable[[Path], Path],
    damage: Callable[[Path], None],
    named: Callable[[Path], Path],
) -> None:
    folder = tmp_path / "victim"
    shutil.copytree(done.folder, folder)
    # A row that would close windows, so that the state is read.
    row = {"id": 999, "ts": "2024-01-02T00:00:00Z", "user": "u0", "amount": 1}
    (folder / "in" / "more.json").write_text(json.dumps(row) + "\n", "utf-8")
    file = find(folder / ".penstock" / "victim" / "checkpoint")
    damage(file)
    before = table_rows(folder)

    code, text = penstock("run", folder / "victim.yaml", "--once", *LIGHT, log=tmp_path / "run.log")

    assert (code, table_rows(folder)) == (1, before)
    assert "error[STATE_UNREADABLE] " in text
    assert str(named(file)) in text


def table_rows(folder: Path) -> list[tuple[object, ...]]:
    """All tables of the victim's database but the one that counts its runs."""
    with closing(sqlite3.connect(folder / "out" / "out.db")) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = [(table, *row) for table in tables if table != BATCHES for row in db.execute(f"SELECT * FROM {table}")]
    assert rows
    return sorted(rows, key=repr)


def lasting(folder: Path) -> dict[str, bytes]:
    """All that a later run would build on: not logs, the lock, and the count of runs."""
    state = ".penstock/victim/"
    found = contents(folder)
    for name in [name for name in found if name.startswith((f"{state}logs/", f"{state}lock", f"{state}scratch/"))]:
        del found[name]
    try:
        identity = json.loads(found[f"{state}pipeline.json"])
    except ValueError:
        return found
    del identity["epoch"]
    return found | {f"{state}pipeline.json": json.dumps(identity).encode()}
