"""A power failure at any moment: what was not synced is gone, and still no row is lost and none is there twice.

One run is recorded with all that Python, the JVM and Spark's workers do to the files of its folder. For many moments
of it the test then works out what a disk may hold that lost its power, looks at sinks, ledger and checkpoint of that,
and for some of them lets the pipeline go on from there.
"""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest
from tests.faults.power.failure import Disk, Luck, Record, moments, read_records
from tests.faults.victim import Victim, contents

from penstock.components.shared.delta_disk import TableOnDisk
from penstock.engine.checkpoint import last_committed, last_number, verify
from penstock.engine.on_disk import mend_checkpoint

_SOURCE = Path(__file__).parent / "power" / "recorder.c"
_LUCKS: tuple[Luck, ...] = get_args(Luck)
_SINKS = ("row_files", "row_delta", "window_files", "window_latest")
_FILES = 5
_LEFT_OUT = ("/scratch/", "/logs/")
_MOMENTS = 30
_PATIENCE = 900

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]


@dataclass(frozen=True)
class Recorded:
    """A pipeline that has run to its end, the folder as it was before, and what was done to it."""

    victim: Victim
    before: Path
    records: list[Record]

    def failures(self, seed: int, count: int) -> Iterator[tuple[Disk, int]]:
        """The disk at each of some moments."""
        disk, done = Disk(self.before), 0
        disk.root = self.victim.folder
        for moment in moments(self.records, seed, count):
            for record in self.records[done:moment]:
                disk.apply(record)
            done = moment
            yield disk, moment

    def at(self, moment: int) -> Disk:
        disk = Disk(self.before)
        disk.root = self.victim.folder
        for record in self.records[:moment]:
            disk.apply(record)
        return disk


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler to build the recorder with")
    library = tmp_path_factory.mktemp("recorder") / "recorder.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, _SOURCE, "-ldl"], check=True)
    return library


@pytest.fixture(scope="module")
def recorded(recorder: Path, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("power").resolve()
    log, before = folder / "log", folder / "before"
    victim = Victim(folder / "victim", _SINKS, _FILES)
    victim.state.parent.mkdir()
    victim.crashes.log.touch()
    shutil.copytree(victim.folder, before)
    victim.crashes.env |= {"LD_PRELOAD": str(recorder), "POWER_ROOT": str(victim.folder), "POWER_LOG": str(log)}
    with victim.crashes.start() as process:
        assert process.wait(_PATIENCE) == 0, process.text
    victim.check_complete()
    victim.crashes.env.clear()
    return Recorded(victim, before, read_records(log))


def test_the_record_tells_all_that_was_done_to_the_files(recorded: Recorded, tmp_path: Path) -> None:
    recorded.at(len(recorded.records)).write_all(tmp_path / "replayed")
    found, there = contents(tmp_path / "replayed"), contents(recorded.victim.folder)
    # What processes share in memory is rebuilt by who opens it first.
    ignored = {name for name in there if name.endswith("-shm") or any(part in f"/{name}" for part in _LEFT_OUT)}
    assert {name for name in found.keys() | there.keys() if found.get(name) != there.get(name)} <= ignored


def test_what_a_power_failure_leaves_is_whole(recorded: Recorded, tmp_path: Path) -> None:
    final = contents(recorded.victim.state / "checkpoint")
    seed = random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}")
    looked = 0
    for disk, moment in recorded.failures(seed, _MOMENTS):
        for luck in _LUCKS:
            place = tmp_path / "left"
            disk.survive(place, luck, seed + moment)
            try:
                check_left(recorded.victim, place, final)
            except Exception as error:
                raise AssertionError(f"moment {moment}, luck {luck}, seed {seed}: {error}") from error
            shutil.rmtree(place)
            looked += 1
    assert looked >= _MOMENTS


_FORGOTTEN: dict[str, Callable[[str], bool]] = {
    "data files": lambda path: "/out/rows/" in path and "/_penstock/" not in path,
    "manifests": lambda path: "/out/rows/_penstock/" in path,
    "data files of Delta": lambda path: "/out/row_delta/" in path and "/_delta_log" not in path,
    "ledger": lambda path: "/ledger.db" in path,
    "checkpoint": lambda path: "/checkpoint" in path,
}
"""What a run syncs, by the paths of it."""


@pytest.mark.parametrize("what", _FORGOTTEN)
def test_a_run_that_would_not_sync_something_is_found_out(recorded: Recorded, tmp_path: Path, what: str) -> None:
    """The proof of the proof: without these syncs the same look at the same moments finds something wrong."""
    forgotten = _FORGOTTEN[what]
    kept = [record for record in recorded.records if record.kind != "S" or not forgotten(record.path)]
    assert len(kept) < len(recorded.records)
    without = Recorded(recorded.victim, recorded.before, kept)
    final = contents(recorded.victim.state / "checkpoint")
    assert any(
        _is_found_out(recorded.victim, disk, luck, tmp_path / "left", final)
        for disk, _ in without.failures(1, _MOMENTS)
        for luck in ("none", "names")
    )


def _is_found_out(victim: Victim, disk: Disk, luck: Luck, place: Path, final: dict[str, bytes]) -> bool:
    disk.survive(place, luck)
    try:
        check_left(victim, place, final)
    except Exception:
        return True
    finally:
        shutil.rmtree(place)
    return False


def check_left(victim: Victim, place: Path, final: dict[str, bytes]) -> None:
    """What the sinks show is right, and no note says more than there is."""
    left = Left(victim, place)
    TableOnDisk(str(place / "out" / "row_delta")).mend("row_delta")
    left.refuse_wrong_rows()
    state = place / victim.state.relative_to(victim.folder)
    checkpoint = state / "checkpoint"
    mend_checkpoint(state)
    verify(checkpoint)
    planned, committed = last_number(checkpoint / "offsets"), last_committed(checkpoint)
    in_ledger = left.ledger_batches(state)
    assert in_ledger == list(range(len(in_ledger)))
    assert committed <= len(in_ledger) - 1 <= planned
    stored = left.last_batches()
    assert all(batch <= planned for batch in stored.values()), (stored, planned)
    for name, rows in left.ledger_rows(state).items():
        assert len(left.rows(name)) >= rows, (name, rows)
    for name, content in final.items():
        # The state of a batch that is committed is there as Spark wrote it.
        version = name.rsplit("/", 1)[-1].split(".")[0]
        if name.startswith("state/") and name.endswith(".changelog") and int(version) <= committed + 1:
            assert (checkpoint / name).read_bytes() == content, name


@dataclass(frozen=True)
class Left:
    """The sinks in what is left."""

    victim: Victim
    place: Path

    def rows(self, sink: str) -> list[dict[str, Any]]:
        there = Victim.__new__(Victim)
        object.__setattr__(there, "folder", self.place)
        database = self.place / "out" / "out.db"
        if sink in ("row_table", "window_latest") and not _has_table(database, sink):
            return []
        return there.stored(sink)

    def refuse_wrong_rows(self) -> None:
        for sink in self.victim.sinks:
            rows = self.rows(sink)
            if sink.startswith("window"):
                found: list[Any] = [
                    (row["minute"], row["user"], row["events"], row["total"], row["ids"]) for row in rows
                ]
                right: set[Any] = set(self.victim.windows)
            else:
                found, right = [row["id"] for row in rows], set(self.victim.good)
            assert set(found) <= right, sink
            assert len(set(found)) == len(found), sink

    def ledger_batches(self, state: Path) -> list[int]:
        return [batch for batch, _ in self._ledger(state)]

    def ledger_rows(self, state: Path) -> dict[str, int]:
        found: dict[str, int] = {}
        for _, text in self._ledger(state):
            for sink, rows in json.loads(text).items():
                found[sink] = found.get(sink, 0) + rows
        return found

    def _ledger(self, state: Path) -> list[tuple[int, str]]:
        if not _has_table(state / "ledger.db", "batches"):
            return []
        with closing(sqlite3.connect(state / "ledger.db")) as db:
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            return list(db.execute("SELECT batch, rows_out FROM batches ORDER BY batch"))

    def last_batches(self) -> dict[str, int]:
        found = {}
        for name in ("rows", "windows"):
            texts = [file.read_text() for file in (self.place / "out" / name / "_penstock" / "batches").glob("*.json")]
            found[name] = max((json.loads(text)["batch"] for text in texts), default=-1)
        return found


def _has_table(database: Path, table: str) -> bool:
    if not database.exists():
        return False
    with closing(sqlite3.connect(database)) as db:
        return bool(db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchall())


@pytest.mark.parametrize("luck", ["none", "some"])
def test_a_pipeline_goes_on_after_a_power_failure(recorded: Recorded, luck: Luck) -> None:
    seed = random.SystemRandom().randrange(1 << 30)
    commits = [place for place, record in enumerate(recorded.records, 1) if "/commits/" in record.other]
    # Two records a commit, one of them for its checksum. After the last rows Spark closes windows without new rows only
    # if it has not been restarted, so the last two commits are passed over.
    moment = random.Random(seed).choice(commits[1:-4])
    print(f"seed {seed}, moment {moment}")
    shutil.rmtree(recorded.victim.folder)
    recorded.at(moment).survive(recorded.victim.folder, luck, seed)
    recorded.victim.finish()
