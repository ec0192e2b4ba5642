"""What cannot be saved or restored is refused by name, and leaves everything as it was."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.engine.savepoints.made import QUERY, Made, made, write
from tests.faults.victim import contents

from penstock.components.shared import crashpoints
from penstock.engine.ledger import Ledger
from penstock.engine.savepoints import trees
from penstock.engine.savepoints.journal import pending
from penstock.engine.savepoints.places import found_in, read_savepoint
from penstock.engine.savepoints.take import Wish
from penstock.engine.savepoints.verify import verify
from penstock.engine.statedir import StateDir, read_identity
from penstock.errors import PenstockError
from penstock.reports.savepoints import FORMAT, MANIFEST, Savepoint, from_json, to_json
from penstock.runner.distant import restore_from
from penstock.runner.savepoints import compared, create, delete, discard, restore_into


@pytest.fixture
def pipeline(tmp_path: Path) -> Made:
    return made(tmp_path / "here")


@pytest.fixture
def other_disk() -> Iterator[Path]:
    """A folder on another disk, where files cannot be linked to."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or memory.stat().st_dev == Path(tempfile.gettempdir()).stat().st_dev:
        pytest.skip("there is no second file system")
    folder = Path(tempfile.mkdtemp(dir=memory))
    yield folder
    shutil.rmtree(folder)


def saved(pipeline: Made, name: str = "one") -> tuple[Savepoint, Path]:
    return create(pipeline.file, pipeline.state, Wish(name))


def refused(call: Callable[[], Any]) -> str:
    with pytest.raises(PenstockError) as raised:
        call()
    return raised.value.code


def rewrite(folder: Path, change: Callable[[Savepoint], Savepoint]) -> None:
    """The manifest as if it had been made so."""
    file = folder / MANIFEST
    file.write_text(to_json(change(from_json(file.read_text("utf-8")))), "utf-8")


def lasting(state: Path) -> dict[str, bytes]:
    """What a run builds on."""
    found = contents(state)
    return {name: text for name, text in found.items() if name.split("/")[0] in ("checkpoint", "spool", "dead", "late")}


# --- what is in it -----------------------------------------------------------------------------------------------


def test_a_savepoint_says_what_it_holds(pipeline: Made) -> None:
    found, folder = saved(pipeline)

    assert (found.pipeline, found.batch, found.watermark) == ("demo", 2, 2000)
    assert found.offsets == {"views": {"logOffset": 2}}
    assert found.totals.rows_out == {"store": 3}
    assert found.state_of().keys() == {"counts"}
    assert [(sink.name, sink.position) for sink in found.sinks] == [("store", {"batch": 2})]
    assert found.document["metadata"]["name"] == "demo"
    assert (verify(folder, found), read_savepoint(folder)) == ([], found)
    text = b"".join(contents(folder).values())
    assert str(pipeline.state).encode() not in text


def test_of_a_run_that_has_gone_on_only_what_is_until_the_batch_is_taken(pipeline: Made) -> None:
    pipeline.add_batch(planned=True)
    write(pipeline.state / "checkpoint" / "state" / "0" / "0" / "5.changelog", "not committed")
    files = {file.path for file in saved_unfinished(pipeline).files}

    assert "checkpoint/offsets/3" in files
    assert "checkpoint/state/0/0/5.changelog" not in files


def saved_unfinished(pipeline: Made) -> Savepoint:
    """Of a state whose last run has died: without Spark, which would ask the sinks."""
    from contextlib import nullcontext

    from penstock.engine.savepoints.take import Moment, take

    with StateDir(pipeline.state, "demo") as state:
        return take(
            state.path, state.identity, pipeline.file, lambda: nullcontext(Moment(2, unfinished=True)), Wish()
        ).savepoint


def test_the_next_one_reads_only_what_is_new(pipeline: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(pipeline, "one")
    pipeline.add_batch()
    read: list[str] = []
    digest = trees.digest

    def watched(path: Path) -> str:
        read.append(path.name)
        return digest(path)

    monkeypatch.setattr(trees, "digest", watched)

    found, folder = saved(pipeline, "two")

    assert "1.changelog" not in read
    assert "4.changelog" in read
    monkeypatch.undo()
    assert verify(folder, found) == []


def test_two_savepoints_are_compared(pipeline: Made) -> None:
    before, _ = saved(pipeline, "one")
    pipeline.add_batch()
    text = pipeline.path.read_text("utf-8").replace("{id: string}", "{id: string, n: int}")
    pipeline.path.write_text(text, "utf-8")
    after, _ = saved(pipeline, "two")

    found = compared(before, after)

    assert (found.batch.before, found.batch.after, found.same_lineage) == (2, 3, True)
    assert found.offsets["views"].after == {"logOffset": 3}
    assert found.state_bytes["counts"].differs
    assert found.totals["rows_in"]["views"].after == 4
    assert [item.path for item in found.spec] == ["sources.views.memory.schema"]


# --- taking ------------------------------------------------------------------------------------------------------


def test_a_name_that_is_taken_is_refused(pipeline: Made, tmp_path: Path) -> None:
    saved(pipeline)
    write(tmp_path / "full" / "file", "x")

    assert refused(lambda: saved(pipeline)) == "SAVEPOINT_EXISTS"
    assert refused(lambda: create(pipeline.file, pipeline.state, Wish(to=tmp_path / "full"))) == "SAVEPOINT_EXISTS"
    assert refused(lambda: saved(pipeline, "../up")) == "SAVEPOINT_NAME"


def test_without_state_there_is_nothing_to_save(pipeline: Made, tmp_path: Path) -> None:
    assert refused(lambda: create(pipeline.file, tmp_path / "nowhere", Wish())) == "STATE_MISSING"
    assert not (tmp_path / "nowhere").exists()


class Cut(BaseException):
    """In place of the end of the process."""


@pytest.mark.parametrize("point", crashpoints.SAVEPOINT_POINTS)
def test_one_that_is_cut_off_is_there_whole_or_not_at_all(
    pipeline: Made, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    def hook(reached: str, batch: int) -> None:
        if reached == point:
            # A process that dies tidies nothing up.
            monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
            raise Cut

    crashpoints.install(hook)
    try:
        with pytest.raises(Cut):
            saved(pipeline)
    finally:
        crashpoints.install(None)
        monkeypatch.undo()

    names = [one.name for one in found_in(pipeline.state)]
    assert names == (["one"] if point == "savepoint.after_rename" else [])
    for one in found_in(pipeline.state):
        assert one.savepoint is not None
        assert verify(one.folder, one.savepoint) == []
    found, folder = saved(pipeline, "another")
    assert verify(folder, found) == []
    left = {item.name for item in (pipeline.state / "savepoints").iterdir()}
    assert left == {*names, "another", "pins"}


def test_on_another_disk_it_is_a_copy(pipeline: Made, other_disk: Path) -> None:
    found, folder = create(pipeline.file, pipeline.state, Wish(to=other_disk / "away" / "copy"))

    assert (found.name, folder) == ("copy", other_disk / "away" / "copy")
    assert verify(folder, found) == []
    assert [item.name for item in (other_disk / "away").iterdir()] == ["copy"]
    target = made(other_disk / "there", batches=0)
    shutil.rmtree(target.state)
    restore_into(target.file, target.state, folder)
    assert lasting(target.state).keys() == lasting(pipeline.state).keys()


def test_a_copy_that_does_not_fit_is_refused(pipeline: Made, other_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: usage(path)._replace(free=100) if "shm" in str(path) else usage(path)
    )

    assert refused(lambda: create(pipeline.file, pipeline.state, Wish(to=other_disk / "copy"))) == "SAVEPOINT_NO_SPACE"
    assert list(other_disk.iterdir()) == []
    _, folder = saved(pipeline)
    target = made(other_disk / "there", batches=0)
    shutil.rmtree(target.state)
    assert refused(lambda: restore_into(target.file, target.state, folder)) == "SAVEPOINT_NO_SPACE"
    assert not (target.state / "checkpoint").exists()


def test_a_removed_one_is_gone_and_sinks_will_know(pipeline: Made, tmp_path: Path) -> None:
    saved(pipeline)
    _, away = create(pipeline.file, pipeline.state, Wish(to=tmp_path / "away"))

    delete(pipeline.state, "one")
    discard(pipeline.state, away)

    assert found_in(pipeline.state) == []
    assert not away.exists()
    pins = {
        file.stem: json.loads(file.read_text("utf-8"))["stage"]
        for file in (pipeline.state / "savepoints" / "pins").iterdir()
    }
    assert pins == {"one": "released", "away": "released"}


# --- restoring ---------------------------------------------------------------------------------------------------


def test_what_was_moved_away_goes_on_elsewhere(pipeline: Made, tmp_path: Path) -> None:
    before = lasting(pipeline.state)
    found, folder = saved(pipeline)
    away = tmp_path / "kept"
    shutil.move(folder, away)
    shutil.rmtree(pipeline.state)
    target = tmp_path / "new place" / "state"

    restore_into(pipeline.file, target, away)

    identity = read_identity(target)
    assert identity is not None
    assert (identity.lineage, identity.query_id, identity.buckets) == ("lineage-of-demo", found.query_id, 16)
    assert identity.epoch > 1_700_000_000
    moved = {name: text.replace(str(pipeline.state).encode(), str(target).encode()) for name, text in before.items()}
    moved = {
        name: text.replace(b"new place", b"new%20place") if "/sources/" in name else text
        for name, text in moved.items()
    }
    assert lasting(target) == moved
    assert Ledger(target / "ledger.db").totals().batch == 2


def test_a_state_goes_back_in_place(pipeline: Made) -> None:
    before = lasting(pipeline.state)
    _, folder = saved(pipeline)
    saved_content = contents(folder)
    for _ in range(3):
        pipeline.add_batch()

    restore_into(pipeline.file, pipeline.state, folder)

    assert lasting(pipeline.state) == before
    assert Ledger(pipeline.state / "ledger.db").totals().batch == 2
    waiting = pending(pipeline.state)
    assert waiting is not None
    assert (waiting.batch, [sink.name for sink in waiting.sinks]) == (2, ["store"])
    assert refused(lambda: restore_into(pipeline.file, pipeline.state, folder)) == "RESTORE_UNFINISHED"
    assert refused(lambda: saved(pipeline, "two")) == "RESTORE_UNFINISHED"
    pipeline.add_batch()
    assert contents(folder) == saved_content


def test_a_fork_is_one_of_its_own(pipeline: Made, tmp_path: Path) -> None:
    write(pipeline.state / "dead" / "_penstock" / "owner.json", "{}")
    _, folder = saved(pipeline)
    fork = made(tmp_path / "fork", "fork", batches=0)
    shutil.rmtree(fork.state)

    restore_into(fork.file, fork.state, folder, fork=True)

    identity = read_identity(fork.state)
    assert identity is not None
    assert (identity.name, identity.buckets) == ("fork", 16)
    assert identity.lineage != "lineage-of-demo"
    metadata = json.loads((fork.state / "checkpoint" / "metadata").read_text("utf-8"))
    assert metadata["id"] == identity.query_id != QUERY
    assert (pending(fork.state), Ledger(fork.state / "ledger.db").entries()) == (None, [])
    assert list((fork.state / "dead").iterdir()) == []


def damage_cut(folder: Path) -> str:
    name = "checkpoint/state/0/0/2.changelog"
    content = (folder / name).read_bytes()
    (folder / name).unlink()
    (folder / name).write_bytes(content[:-1])
    return name


def damage_flip(folder: Path) -> str:
    name = "ledger.db"
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    return name


def damage_missing(folder: Path) -> str:
    name = "checkpoint/offsets/2"
    (folder / name).unlink()
    return name


def damage_manifest(folder: Path) -> str:
    text = (folder / MANIFEST).read_text("utf-8")
    (folder / MANIFEST).write_text(text[: len(text) // 2], "utf-8")
    return MANIFEST


def damage_no_manifest(folder: Path) -> str:
    (folder / MANIFEST).unlink()
    return MANIFEST


@pytest.mark.parametrize("damage", [damage_cut, damage_flip, damage_missing, damage_manifest, damage_no_manifest])
def test_a_damaged_one_is_refused_and_the_file_is_named(
    pipeline: Made, tmp_path: Path, damage: Callable[[Path], str]
) -> None:
    _, folder = saved(pipeline)
    copy = shutil.copytree(folder, tmp_path / "copy")
    name = damage(copy)
    before = lasting(pipeline.state)

    with pytest.raises(PenstockError) as raised:
        restore_into(pipeline.file, pipeline.state, copy)

    assert raised.value.code == "SAVEPOINT_DAMAGED"
    assert raised.value.problems[0].params["file"] == name
    assert lasting(pipeline.state) == before
    assert pending(pipeline.state) is None


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda found: replace(found, format=FORMAT + 1), "savepoint format"),
        (lambda found: replace(found, penstock="99.0.0"), "Penstock"),
        (lambda found: replace(found, spark="99.0.0-preview1"), "Spark"),
    ],
)
def test_one_of_a_newer_version_is_refused(pipeline: Made, change: Callable[[Savepoint], Savepoint], what: str) -> None:
    _, folder = saved(pipeline)
    rewrite(folder, change)

    with pytest.raises(PenstockError) as raised:
        restore_into(pipeline.file, pipeline.state, folder)

    assert raised.value.code == "SAVEPOINT_TOO_NEW"
    assert raised.value.problems[0].params["what"] == what


@pytest.mark.parametrize("path", ["../outside", "/etc/outside", "checkpoint/../../outside", "checkpoint//x", ""])
def test_a_savepoint_that_names_files_outside_of_it_is_refused(pipeline: Made, path: str) -> None:
    _, folder = saved(pipeline)
    before = lasting(pipeline.state)
    rewrite(folder, lambda found: replace(found, files=(*found.files, replace(found.files[0], path=path))))

    with pytest.raises(PenstockError) as raised:
        restore_into(pipeline.file, pipeline.state, folder)

    assert raised.value.code == "SAVEPOINT_DAMAGED"
    assert "outside of it" in str(raised.value)
    assert lasting(pipeline.state) == before


def test_a_name_that_nobody_has_is_told_with_the_one_that_may_be_meant(pipeline: Made) -> None:
    saved(pipeline, "before-import")
    with pytest.raises(PenstockError) as raised:
        restore_from(pipeline.file, pipeline.state, "before-imprt")
    assert raised.value.code == "SAVEPOINT_UNKNOWN"
    assert "before-import" in raised.value.problems[0].hint
    assert pending(pipeline.state) is None


def test_one_of_another_pipeline_or_into_other_state_is_refused(pipeline: Made, tmp_path: Path) -> None:
    _, folder = saved(pipeline)
    other = made(tmp_path / "other", "other")
    before = lasting(other.state)

    assert refused(lambda: restore_into(other.file, other.state, folder)) == "SAVEPOINT_OF_ANOTHER_PIPELINE"
    assert refused(lambda: restore_into(other.file, other.state, folder, fork=True)) == "TARGET_NOT_EMPTY"
    assert refused(lambda: restore_into(other.file, pipeline.state, folder, fork=True)) == "STATE_OF_ANOTHER_PIPELINE"
    again = made(tmp_path / "again")
    rewrite(folder, lambda found: replace(found, lineage="another"))
    assert refused(lambda: restore_into(again.file, again.state, folder)) == "TARGET_NOT_EMPTY"
    assert lasting(other.state) == before


def test_a_running_pipeline_is_not_put_back(pipeline: Made) -> None:
    _, folder = saved(pipeline)
    with (pipeline.state / "lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert refused(lambda: restore_into(pipeline.file, pipeline.state, folder)) == "STATE_IN_USE"


def test_a_state_whose_checkpoint_is_damaged_can_be_put_back(pipeline: Made) -> None:
    before = lasting(pipeline.state)
    _, folder = saved(pipeline)
    shutil.rmtree(pipeline.state / "checkpoint")
    os.mkdir(pipeline.state / "checkpoint")

    restore_into(pipeline.file, pipeline.state, folder)

    assert lasting(pipeline.state) == before


@pytest.mark.parametrize("point", ["restore.built", "restore.swapped"])
def test_a_restore_that_is_cut_off_is_finished_by_the_next_to_open(pipeline: Made, point: str) -> None:
    before = lasting(pipeline.state)
    _, folder = saved(pipeline)
    pipeline.add_batch()

    def hook(reached: str, batch: int) -> None:
        if reached == point:
            raise Cut

    crashpoints.install(hook)
    try:
        with pytest.raises(Cut):
            restore_into(pipeline.file, pipeline.state, folder)
    finally:
        crashpoints.install(None)

    with StateDir(pipeline.state, "demo") as state:
        assert lasting(pipeline.state) == before
        assert state.identity.epoch > 1_700_000_000
