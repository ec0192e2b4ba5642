"""A copy of what Spark keeps for some steps after a batch, made of links, from which it can be read in peace.

The files of a committed batch never change; they are removed some time. A run is not asked and does not wait: if files
go away while they are linked, those of a later batch are linked.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.engine.checkpoint import last_committed
from penstock.engine.checkpoint_cut import (
    CHUNKS,
    files_until,
    newest_index,
    operator_of,
    operators,
    partitions_of,
    settled_until,
)
from penstock.engine.checkpoint_paths import may_hold_paths, with_place, without_place
from penstock.engine.savepoints.journal import pending
from penstock.engine.savepoints.places import read_savepoint
from penstock.engine.savepoints.standing import known_steps
from penstock.engine.savepoints.trees import link_all, put
from penstock.engine.savepoints.verify import refuse_damaged_files
from penstock.engine.statedir import Identity, read_identity, storage_error
from penstock.errors import PenstockError
from penstock.reports.savepoints import SavedFile
from penstock.reports.version import Version

_TRIES = 5
_HIDDEN = ".look-"
_FILES_GONE = ("SAVEPOINT_FAILED", "STATE_UNREADABLE")
"""What it looks like when a batch goes away while it is linked."""


@dataclass(frozen=True)
class Held:
    """What a step keeps: in which operators of the query, all of one content, and how many bytes in files."""

    operators: tuple[int, ...]
    kind: str
    """What Spark calls them."""
    bytes: int


@dataclass(frozen=True)
class Copy:
    """State after a batch."""

    pipeline: str
    batch: int
    watermark_ms: int
    """Up to where the batch has settled everything."""
    partitions: int
    buckets: int
    version: Version | None
    steps: Mapping[str, Held]
    checkpoint: Path
    """Spark's files of the steps that were asked for."""


def wanted_steps(known: Collection[str], asked: str | None, pipeline: str) -> tuple[str, ...]:
    """The steps to be read: all, or the one that is asked for. Raises if there is none, or not that one."""
    if not known:
        raise PenstockError.of("STATE_STATELESS", name=pipeline)
    if asked is not None and asked not in known:
        raise PenstockError.of("STATE_STEP_UNKNOWN", step=asked, name=pipeline, steps=", ".join(sorted(known)))
    return tuple(known) if asked is None else (asked,)


@contextmanager
def copy_of_state(state: Path, step: str | None) -> Iterator[Copy]:
    """What a state folder holds after its last committed batch, of one step or of all."""
    with _near(state) as folder:
        for attempt in range(_TRIES):
            target = folder / str(attempt)
            try:
                found = _linked(state, target, step)
            except OSError as error:
                raise storage_error(error, Path(error.filename or state)) from error
            if found is not None:
                yield found
                return
        raise PenstockError.of("STATE_UNREADABLE", path=state, reason="it changes faster than it can be read")


def _linked(state: Path, target: Path, step: str | None) -> Copy | None:
    """None if what was there has been replaced by something else meanwhile."""
    identity = _identity(state)
    checkpoint = state / "checkpoint"
    batch = last_committed(checkpoint)
    if batch < 0:
        raise PenstockError.of("STATE_NOTHING_YET", name=identity.name)
    steps = {int(number): name for number, name in identity.operators.items()} or known_steps(state)
    try:
        wanted = files_until(checkpoint, batch, planned=False)
        held = _held(checkpoint, wanted, steps)
        chosen = wanted_steps(held, step, identity.name)
        numbers = {number for name in chosen for number in held[name].operators}

        def listed() -> list[str]:
            return [name for name in files_until(checkpoint, batch, planned=False) if _is_needed(name, numbers)]

        names = link_all(checkpoint, listed, target / "checkpoint")
        _settle(target, names, state)
        copied = _described(identity.name, target, batch, identity.buckets, identity.version, held)
    except FileNotFoundError:
        return None
    except PenstockError as error:
        if error.code in _FILES_GONE and last_committed(checkpoint) != batch:
            return None
        raise
    after = _identity(state)
    same = (after.lineage, after.query_id, after.version) == (identity.lineage, identity.query_id, identity.version)
    return copied if same else None


def _identity(state: Path) -> Identity:
    restoration = pending(state)
    if restoration is not None and restoration.stage != "swapped":
        raise PenstockError.of("RESTORE_UNFINISHED", path=state)
    found = read_identity(state)
    if found is None:
        raise PenstockError.of("STATE_MISSING", path=state, name=state.name)
    return found


@contextmanager
def copy_of_savepoint(folder: Path, step: str | None) -> Iterator[Copy]:
    """What a savepoint holds, of one step or of all. What is read of it is compared with its checksums."""
    savepoint = read_savepoint(folder)
    inside = {file.path.removeprefix("checkpoint/"): file for file in savepoint.files if _of_checkpoint(file)}
    with _near(folder.parent) as target:
        try:
            kinds = {operator.id: operator.kind for operator in savepoint.operators}
            sizes = {operator.id: operator.bytes for operator in savepoint.operators}
            held = _by_step(kinds, sizes, {int(number): name for number, name in savepoint.steps.items()})
            chosen = wanted_steps(held, step, savepoint.pipeline)
            numbers = {number for name in chosen for number in held[name].operators}
            names = [name for name in inside if _is_needed(name, numbers)]
            refuse_damaged_files(folder, [inside[name] for name in names])
            for name in names:
                put(folder / inside[name].path, target / "checkpoint" / name, inside[name].modified_ns)
            _settle(target, names, None)
        except OSError as error:
            raise storage_error(error, Path(error.filename or folder)) from error
        yield _described(savepoint.pipeline, target, savepoint.batch, savepoint.buckets, savepoint.version, held)


def _of_checkpoint(file: SavedFile) -> bool:
    return file.path.startswith("checkpoint/")


def _is_needed(name: str, numbers: Collection[int]) -> bool:
    """Whether a file of a checkpoint is needed to read the state of some operators."""
    operator = operator_of(name)
    # A chunk file holds what several steps keep.
    return operator in numbers if operator is not None else not name.startswith("sources/")


def _held(checkpoint: Path, names: Collection[str], steps: Mapping[int, str]) -> dict[str, Held]:
    kinds = {operator.id: operator.kind for operator in operators(checkpoint)}
    index = newest_index(checkpoint)
    if index is not None:
        return {step: Held((number,), CHUNKS, index.bytes_of(step)) for number, step in enumerate(index.steps)}
    sizes: dict[int, int] = {}
    for name in names:
        number = operator_of(name)
        if number is not None:
            sizes[number] = sizes.get(number, 0) + (checkpoint / name).stat().st_size
    return _by_step(kinds, sizes, steps)


def _by_step(kinds: Mapping[int, str], sizes: Mapping[int, int], steps: Mapping[int, str]) -> dict[str, Held]:
    """What Spark keeps by step; an operator whose step is not known goes by its number."""
    numbers: dict[str, list[int]] = {}
    for number in sorted(kinds):
        numbers.setdefault(steps.get(number, f"operator {number}"), []).append(number)
    return {
        name: Held(tuple(found), kinds[found[0]], sum(sizes.get(number, 0) for number in found))
        for name, found in numbers.items()
    }


def _settle(target: Path, names: Collection[str], state: Path | None) -> None:
    """Lets files that name where they lie name the copy."""
    for name in names:
        if not may_hold_paths(name):
            continue
        path = target / "checkpoint" / name
        text = path.read_text("utf-8")
        moved = with_place(text if state is None else without_place(text, state), target)
        if moved != text:
            path.unlink()
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
            path.write_text(moved, "utf-8")


def _described(
    pipeline: str, target: Path, batch: int, buckets: int | None, version: Version | None, held: Mapping[str, Held]
) -> Copy:
    checkpoint = target / "checkpoint"
    partitions = partitions_of(checkpoint, batch) or 1
    return Copy(
        pipeline, batch, settled_until(checkpoint, batch), partitions, buckets or 1, version, held, checkpoint
    )  # fmt: skip


@contextmanager
def _near(folder: Path) -> Iterator[Path]:
    """A folder for a copy: where files can be linked, if that may be written to, and else where they are copied to."""
    _sweep(folder)
    place = folder if os.access(folder, os.W_OK) else None
    target = Path(tempfile.mkdtemp(prefix=f"{_HIDDEN}{os.getpid()}-", dir=place)).resolve()
    try:
        yield target
    finally:
        shutil.rmtree(target, ignore_errors=True)


def _sweep(folder: Path) -> None:
    """Removes the copies of those who died while they looked."""
    for left in folder.glob(f"{_HIDDEN}*"):
        process = left.name.removeprefix(_HIDDEN).split("-")[0]
        if process.isdigit() and not Path(f"/proc/{process}").exists():
            shutil.rmtree(left, ignore_errors=True)
