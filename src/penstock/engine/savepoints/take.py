"""Takes a savepoint: a folder that is there whole or not at all.

The files are linked while no batch is at work, which takes moments. What takes longer comes after that: the copy of
the ledger, cut at the batch, the digests of files that are new since the last savepoint, and a copy to another disk.
"""

from __future__ import annotations

import datetime as dt
import os
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from penstock import __version__
from penstock.components.base import SinkWriter
from penstock.components.shared.crashpoints import reach
from penstock.durable import make_folders, sync_folder, sync_tree, write_durably
from penstock.engine.checkpoint_cut import (
    CHUNKS,
    files_until,
    newest_index,
    offsets_of,
    operator_of,
    operators,
    partitions_of,
    watermark_after,
)
from penstock.engine.checkpoint_paths import may_hold_paths, without_place
from penstock.engine.ledger import BatchEntry, Ledger
from penstock.engine.savepoints.names import new_name
from penstock.engine.savepoints.pins import Pins
from penstock.engine.savepoints.places import folder_of, found_in, hidden, readable, sweep
from penstock.engine.savepoints.trees import (
    Progress,
    digested,
    files_below,
    link_all,
    put,
    quiet,
    refuse_without_space,
    same_disk,
)
from penstock.engine.statedir import Identity, storage_error
from penstock.errors import PenstockError
from penstock.reports.savepoints import (
    MANIFEST,
    SavedFile,
    SavedOperator,
    SavedSink,
    Savepoint,
    Totals,
    refuse_bad_name,
    to_json,
)
from penstock.spec.dump import as_document, fingerprint
from penstock.spec.location import PipelineFile

FOLDERS = ("spool", "dead", "late")
"""Folders of a state that belong to it, beside Spark's checkpoint."""
LEDGER = "ledger.db"
SPEC = "spec"


@dataclass(frozen=True)
class Wish:
    """What kind of savepoint is asked for."""

    name: str | None = None
    note: str = ""
    to: Path | None = None
    """The folder that it shall be, if not one in the state folder."""
    automatic: bool = False


@dataclass(frozen=True)
class Moment:
    """A pipeline between two batches."""

    batch: int
    unfinished: bool = False
    sinks: tuple[SavedSink, ...] = ()
    steps: Mapping[int, str] = field(default_factory=dict)
    """Steps by the number of the operator that keeps their state."""
    writers: Mapping[str, SinkWriter] = field(default_factory=dict)
    """The sinks that are open; others are told later what they must keep."""
    since: float = field(default_factory=time.monotonic)
    """When it began, by the clock that only goes forward."""


@dataclass(frozen=True)
class Taken:
    savepoint: Savepoint
    folder: Path
    held_seconds: float
    """For how long no batch could begin."""


Hold = Callable[[], AbstractContextManager[Moment]]
"""Keeps a pipeline between two batches."""


def take(
    state: Path,
    identity: Identity,
    file: PipelineFile,
    hold: Hold,
    wish: Wish,
    *,
    progress: Progress = quiet,
    clock: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
) -> Taken:
    """Takes a savepoint of a state folder. Only who holds the folder may do so, one at a time."""
    began = clock()
    folder = folder_of(state)
    make_folders(folder)
    sweep(folder)
    name, target = _named(state, wish, began)
    work = hidden(folder / name)
    try:
        work.mkdir()
        with hold() as moment:
            if moment.batch < 0:
                raise PenstockError.of("SAVEPOINT_NOTHING", name=identity.name)
            _pin(state, name, target, moment)
            names = _linked(state, work, moment)
            held = time.monotonic() - moment.since
        reach("savepoint.linked", 0)
        savepoint = _described(work, identity, file, moment, wish, began, name)
        savepoint = _completed(savepoint, state, work, file, moment, names, progress)
        sync_tree(work)
        write_durably(work / MANIFEST, to_json(savepoint))
        reach("savepoint.before_rename", 0)
        _place(work, target, savepoint, progress)
        reach("savepoint.after_rename", 0)
        return Taken(savepoint, target, held)
    except OSError as error:
        raise storage_error(error, Path(error.filename or target)) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
        Pins(state).settle(name)


def _pin(state: Path, name: str, target: Path, moment: Moment) -> None:
    positions = {sink.name: sink.position for sink in moment.sinks}
    Pins(state).note(name, target, positions)
    for sink, writer in moment.writers.items():
        if sink in positions:
            writer.pin(name, positions[sink])


def _named(state: Path, wish: Wish, now: dt.datetime) -> tuple[str, Path]:
    folder = folder_of(state)
    pinned = {name for name, pin in Pins(state).all().items() if pin.stage != "released"}
    known = {item.name for item in folder.iterdir()} | pinned
    name = wish.name or (wish.to.name if wish.to is not None else new_name(now, known, automatic=wish.automatic))
    refuse_bad_name(name)
    target = folder / name if wish.to is None else wish.to.absolute()
    if name in known or (target.exists() and (not target.is_dir() or any(target.iterdir()))):
        raise PenstockError.of("SAVEPOINT_EXISTS", name=name, path=target)
    return name, target


def _linked(state: Path, work: Path, moment: Moment) -> list[str]:
    """Links all that belongs to the moment; the names of the files in the new folder."""
    checkpoint = state / "checkpoint"
    found = link_all(
        checkpoint,
        lambda: files_until(checkpoint, moment.batch, planned=moment.unfinished),
        work / "checkpoint",
    )
    names = [f"checkpoint/{name}" for name in found]

    def of_folders() -> list[str]:
        return [f"{folder}/{name}" for folder in FOLDERS for name in files_below(state / folder)]

    return names + link_all(state, of_folders, work)


def _described(
    work: Path, identity: Identity, file: PipelineFile, moment: Moment, wish: Wish, now: dt.datetime, name: str
) -> Savepoint:
    import pyspark

    checkpoint = work / "checkpoint"
    return Savepoint(
        name=name,
        note=wish.note,
        automatic=wish.automatic,
        created_at=now,
        pipeline=identity.name,
        lineage=identity.lineage,
        epoch=identity.epoch,
        batch=moment.batch,
        unfinished=moment.unfinished,
        query_id=identity.query_id,
        watermark=watermark_after(checkpoint, moment.batch),
        offsets=offsets_of(checkpoint, moment.batch),
        partitions=partitions_of(checkpoint, moment.batch),
        buckets=identity.buckets,
        version=identity.version,
        sinks=moment.sinks,
        fingerprint=fingerprint(file.pipeline),
        document=as_document(file.pipeline),
        penstock=__version__,
        spark=pyspark.__version__,
    )


def _completed(
    savepoint: Savepoint,
    state: Path,
    work: Path,
    file: PipelineFile,
    moment: Moment,
    names: list[str],
    progress: Progress,
) -> Savepoint:
    """Adds what need not be done while the pipeline waits."""
    names = _without_places(state, work, names)
    ledger = state / LEDGER
    refuse_without_space(work, 2 * ledger.stat().st_size)
    totals = Ledger(ledger).copy_until(work / LEDGER, moment.batch)
    if file.path.is_file():
        copied = f"{SPEC}{file.path.suffix}"
        shutil.copy2(file.path, work / copied)
        names = [*names, copied]
    known, before = _last_known(state)
    files = digested(work, [*names, LEDGER], known, before, progress)
    return replace(
        savepoint, totals=_totals(totals), operators=_operators(work, files, moment.steps), files=tuple(files)
    )


def _without_places(state: Path, work: Path, names: list[str]) -> list[str]:
    """Takes the path of the state folder out of files that name it; the names without the checksums of those."""
    dropped: set[str] = set()
    for name in names:
        inside = name.removeprefix("checkpoint/")
        if inside == name or not may_hold_paths(inside):
            continue
        path = work / name
        text = path.read_text("utf-8")
        moved = without_place(text, state)
        if moved == text:
            continue
        stamp = path.stat().st_mtime_ns
        path.unlink()
        path.write_text(moved, "utf-8")
        os.utime(path, ns=(stamp, stamp))
        checksum = path.with_name(f".{path.name}.crc")
        checksum.unlink(missing_ok=True)
        dropped.add(checksum.relative_to(work).as_posix())
    return [name for name in names if name not in dropped]


def _last_known(state: Path) -> tuple[dict[str, SavedFile], Path | None]:
    """The files of the newest savepoint in the state folder, whose digests hold for the same files now."""
    found = [one for one in found_in(state) if one.savepoint is not None]
    if not found:
        return {}, None
    savepoints = readable(found[-1:])
    return {file.path: file for file in savepoints[0].files}, found[-1].folder


def _totals(entry: BatchEntry) -> Totals:
    return Totals(
        entry.rows_in, entry.rows_dead, entry.rows_out, entry.late, entry.corrections, entry.filtered, entry.replayed
    )


def _operators(work: Path, files: list[SavedFile], steps: Mapping[int, str]) -> tuple[SavedOperator, ...]:
    index = newest_index(work / "checkpoint")
    if index is not None:
        return tuple(
            SavedOperator(number, CHUNKS, step, index.bytes_of(step)) for number, step in enumerate(index.steps)
        )
    sizes: dict[int, int] = {}
    for file in files:
        number = operator_of(file.path.removeprefix("checkpoint/"))
        if number is not None and file.path.startswith("checkpoint/"):
            sizes[number] = sizes.get(number, 0) + file.bytes
    return tuple(
        SavedOperator(operator.id, operator.kind, steps.get(operator.id), sizes.get(operator.id, 0))
        for operator in operators(work / "checkpoint")
    )


def _place(work: Path, target: Path, savepoint: Savepoint, progress: Progress) -> None:
    """Gives the finished folder its name, perhaps on another disk."""
    make_folders(target.parent)
    if target.is_dir():
        target.rmdir()
    if same_disk(work, target.parent):
        work.rename(target)
    else:
        _copy(work, target, savepoint, progress)
    sync_folder(target.parent)


def _copy(work: Path, target: Path, savepoint: Savepoint, progress: Progress) -> None:
    refuse_without_space(target.parent, savepoint.bytes)
    near = hidden(target)
    shutil.rmtree(near, ignore_errors=True)
    try:
        done = 0
        for file in savepoint.files:
            put(work / file.path, near / file.path, file.modified_ns)
            done += file.bytes
            progress(done, savepoint.bytes)
        shutil.copy2(work / MANIFEST, near / MANIFEST)
        sync_tree(near)
        near.rename(target)
    except BaseException:
        shutil.rmtree(near, ignore_errors=True)
        raise
