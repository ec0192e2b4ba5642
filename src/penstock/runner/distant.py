"""Savepoints wherever they lie: in a state folder, in another folder, or in an object store by an address like s3://…"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from penstock.engine.savepoints.pins import Pins
from penstock.engine.savepoints.places import Listed, find, found_in, read_savepoint, refuse_newer, remove
from penstock.engine.savepoints.shelf import Shelf, is_remote, shelf_of
from penstock.engine.savepoints.take import Wish
from penstock.engine.savepoints.trees import Progress, quiet
from penstock.engine.savepoints.verify import Damage
from penstock.engine.savepoints.verify import verify as damages_of
from penstock.engine.statedir import in_use, storage_error
from penstock.errors import PenstockError
from penstock.reports.savepoints import Savepoint
from penstock.runner.savepoints import create, delete, discard, restore_into
from penstock.spec.location import PipelineFile


def take_to(
    file: PipelineFile, state: Path, wish: Wish, to: str | None, progress: Progress = quiet
) -> tuple[Savepoint, str]:
    """Takes a savepoint, wherever it shall lie; and where it does."""
    if to is not None and is_remote(to):
        return _moved(file, state, wish, to, progress)
    savepoint, folder = create(file, state, replace(wish, to=None if to is None else Path(to)), progress)
    return savepoint, str(folder)


def found_at(address: str | None, state: Path | None) -> Sequence[Listed]:
    """The savepoints in an object store, or else in a state folder, the oldest first."""
    if (address is None) == (state is None):
        reason, advice = "it takes a pipeline file or --at", "Write `penstock savepoint list FILE`."
        raise PenstockError.of("USAGE", reason=reason, advice=advice)
    if address is not None:
        return Shelf(address).found()
    assert state is not None
    return found_in(state)


def _moved(file: PipelineFile, state: Path, wish: Wish, address: str, progress: Progress) -> tuple[Savepoint, str]:
    """Takes a savepoint in the state folder and moves it to an object store.

    It lies in the state folder until all of it has arrived, also if this process dies; if the store fails, it is gone.
    """
    shelf, name = shelf_of(address)
    if wish.name not in (None, name):
        reason, advice = f"the address names it '{name}'", "Leave --name out."
        raise PenstockError.of("USAGE", reason=reason, advice=advice)
    shelf.refuse_taken(name)
    savepoint, folder = create(file, state, replace(wish, name=name, to=None), progress)
    try:
        shelf.put(name, folder, savepoint, progress)
    except PenstockError:
        delete(state, name)
        raise
    Pins(state).moved(name, address)
    remove(folder)
    return savepoint, address


def look(word: str, state: Path | None) -> tuple[Savepoint, str]:
    """A savepoint by its name, folder or address, and where it lies."""
    if is_remote(word):
        shelf, name = shelf_of(word)
        return shelf.read(name), word
    folder = find(word, state)
    return read_savepoint(folder), str(folder)


def verify_at(word: str, state: Path | None, progress: Progress = quiet) -> tuple[Savepoint, str, list[Damage]]:
    """Reads all of a savepoint; what is wrong with it."""
    savepoint, place = look(word, state)
    if is_remote(word):
        shelf, name = shelf_of(word)
        return savepoint, place, shelf.verify(name, savepoint, progress)
    return savepoint, place, damages_of(Path(place), savepoint, progress)


def discard_at(word: str, state: Path) -> str:
    """Removes a savepoint of a pipeline; its name."""
    if is_remote(word):
        shelf, name = shelf_of(word)
        shelf.remove(name)
        Pins(state).let_go(name)
        return name
    folder = find(word, state)
    discard(state, folder)
    return folder.name


def restore_from(
    file: PipelineFile,
    state: Path,
    word: str,
    *,
    fork: bool = False,
    keep_rows: bool = False,
    progress: Progress = quiet,
) -> tuple[Savepoint, str]:
    """Puts a savepoint into a state folder that no run holds; its next run goes on from there."""
    if not is_remote(word):
        folder = find(word, state)
        return restore_into(file, state, folder, fork=fork, keep_rows=keep_rows, progress=progress), str(folder)
    with _fetched(file, state, word, fork=fork, progress=progress) as folder:
        return restore_into(file, state, folder, fork=fork, keep_rows=keep_rows, progress=progress), word


@contextmanager
def at_hand(word: str, state: Path | None, progress: Progress = quiet) -> Iterator[Path]:
    """The folder of a savepoint by its name, folder or address; one in an object store is fetched for that time."""
    if not is_remote(word):
        yield find(word, state)
        return
    shelf, name = shelf_of(word)
    savepoint = shelf.read(name)
    with tempfile.TemporaryDirectory(prefix="penstock-savepoint-") as around:
        folder = Path(around) / name
        folder.mkdir()
        shelf.fetch(name, savepoint, folder, progress)
        yield folder


@contextmanager
def _fetched(file: PipelineFile, state: Path, address: str, *, fork: bool, progress: Progress) -> Iterator[Path]:
    """A copy of a savepoint beside the state folder, once it is clear that it can be of use there."""
    import pyspark

    shelf, name = shelf_of(address)
    savepoint = shelf.read(name)
    refuse_newer(address, savepoint, pyspark.__version__)
    if savepoint.pipeline != file.pipeline.name and not fork:
        found, expected = savepoint.pipeline, file.pipeline.name
        raise PenstockError.of("SAVEPOINT_OF_ANOTHER_PIPELINE", path=address, found=found, expected=expected)
    if in_use(state):
        raise PenstockError.of("STATE_IN_USE", path=state, pid="unknown")
    folder = state.with_name(f".{state.name}.fetched")
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(parents=True)
        shelf.fetch(name, savepoint, folder, progress)
        yield folder
    except OSError as error:
        raise storage_error(error, Path(error.filename or folder)) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
