"""Puts a savepoint into a state folder: an empty one, or in place of what is there; or lets another begin from it.

What is built is complete before anything is replaced. Files are linked on the same disk and copied otherwise; the
ledger is always copied, as it is written to.
"""

from __future__ import annotations

import json
import shutil
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from penstock.engine.checkpoint import last_number
from penstock.engine.checkpoint_paths import may_hold_paths, with_place
from penstock.engine.ledger import Ledger
from penstock.engine.savepoints.journal import NEW, PARTS, Restoration, begin, pending
from penstock.engine.savepoints.places import read_savepoint, refuse_newer
from penstock.engine.savepoints.standing import forget_standing
from penstock.engine.savepoints.trees import Progress, put, quiet, refuse_without_space, same_disk
from penstock.engine.savepoints.verify import refuse_damaged
from penstock.engine.statedir import Identity, StateDir, identity_text, read_identity, storage_error
from penstock.errors import PenstockError
from penstock.reports.savepoints import SavedFile, Savepoint

_METADATA = "checkpoint/metadata"


def examine(folder: Path, pipeline: str, *, fork: bool, progress: Progress = quiet) -> Savepoint:
    """A savepoint from which a pipeline can go on; raises if it is damaged, too new, or of another one."""
    import pyspark

    savepoint = read_savepoint(folder)
    refuse_newer(folder, savepoint, pyspark.__version__)
    if savepoint.pipeline != pipeline and not fork:
        raise PenstockError.of(
            "SAVEPOINT_OF_ANOTHER_PIPELINE", path=folder, found=savepoint.pipeline, expected=pipeline
        )
    refuse_damaged(folder, savepoint, progress)
    return savepoint


def refuse_target(state: Path, savepoint: Savepoint, *, fork: bool) -> None:
    """Raises if the state folder holds what is no earlier or later moment of the same."""
    if pending(state) is not None:
        raise PenstockError.of("RESTORE_UNFINISHED", path=state)
    identity = read_identity(state)
    used = last_number(state / "checkpoint" / "offsets") >= 0 or (
        identity is not None and identity.query_id is not None
    )
    if used and (fork or identity is None or identity.lineage != savepoint.lineage):
        raise PenstockError.of("TARGET_NOT_EMPTY", path=state)


def restore(
    state: StateDir,
    folder: Path,
    savepoint: Savepoint,
    *,
    fork: bool = False,
    keep_rows: bool = False,
    progress: Progress = quiet,
    clock: Callable[[], float] = time.time,
) -> None:
    """Puts an examined savepoint in place. Sinks go back when they are next opened; those of a fork are its own."""
    refuse_target(state.path, savepoint, fork=fork)
    new = state.path / NEW
    shutil.rmtree(new, ignore_errors=True)
    try:
        _build(new, state, folder, savepoint, fork=fork, progress=progress, now=int(clock()))
    except BaseException as error:
        shutil.rmtree(new, ignore_errors=True)
        if isinstance(error, OSError):
            raise storage_error(error, Path(error.filename or state.path)) from error
        raise
    had = tuple(part for part in PARTS if (state.path / part).exists())
    sinks = () if fork else savepoint.sinks
    name, batch = state.identity.name, savepoint.batch
    note = Restoration(savepoint.name, name, batch, "built", had, sinks, keep_rows=keep_rows, sinks_stay=fork)
    forget_standing(state.path)
    begin(state.path, note)
    state.adopt()


def _build(
    new: Path, state: StateDir, folder: Path, savepoint: Savepoint, *, fork: bool, progress: Progress, now: int
) -> None:
    left_out = ("dead/", "late/", "ledger.db") if fork else ()
    files = [file for file in savepoint.files if not file.path.startswith((*left_out, "spec."))]
    near = same_disk(folder, state.path)
    written = [file for file in files if not near or _is_written(file.path)]
    refuse_without_space(state.path, sum(file.bytes for file in written))
    for part in PARTS[:4]:
        (new / part).mkdir(parents=True)
    total, done = sum(file.bytes for file in files), 0
    for file in files:
        _put(folder, new, file, state.path)
        done += file.bytes
        progress(done, total)
    identity = _identity(state, savepoint, fork=fork, now=now)
    if fork:
        Ledger(new / "ledger.db")
        metadata = new / _METADATA
        metadata.unlink()
        metadata.with_name(".metadata.crc").unlink(missing_ok=True)
        metadata.write_text(json.dumps({"id": identity.query_id}), "utf-8")
    (new / "pipeline.json").write_text(identity_text(identity), "utf-8")


def _is_written(path: str) -> bool:
    """Whether the file cannot be linked, as it is written to or names where it lies."""
    return path == "ledger.db" or may_hold_paths(path.removeprefix("checkpoint/"))


def _put(folder: Path, new: Path, file: SavedFile, state: Path) -> None:
    origin, target = folder / file.path, new / file.path
    if file.path == "ledger.db":
        shutil.copy2(origin, target)
    elif file.path.startswith("checkpoint/") and may_hold_paths(file.path.removeprefix("checkpoint/")):
        text = origin.read_text("utf-8")
        moved = with_place(text, state)
        if moved == text:
            put(origin, target, file.modified_ns)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(moved, "utf-8")
    else:
        put(origin, target, file.modified_ns)


def _identity(state: StateDir, savepoint: Savepoint, *, fork: bool, now: int) -> Identity:
    """Who it is from now on.

    Its runs are counted on from the clock's seconds, so that they are newer than any run before, also of a state that
    is lost: sinks know the newest and refuse older ones.
    """
    name = state.identity.name
    known = (savepoint.buckets, savepoint.version, savepoint.steps)
    if fork:
        return Identity(name, uuid.uuid4().hex, 0, str(uuid.uuid4()), *known)
    epoch = max(savepoint.epoch, state.identity.epoch, now)
    return Identity(name, savepoint.lineage, epoch, savepoint.query_id, *known)
