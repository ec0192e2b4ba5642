"""Where the savepoints of a pipeline lie, and which there are.

savepoints/NAME/        one savepoint
savepoints/.NAME.tmp    one that is being made, or removed
savepoints/requests/    what a running pipeline is asked for
savepoints/pins/        what sinks must keep for savepoints, wherever those lie
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from penstock import __version__
from penstock.durable import sync_folder
from penstock.errors import PenstockError, did_you_mean
from penstock.reports.savepoints import FORMAT, MANIFEST, PINS, REQUESTS, Savepoint, format_of, from_json


@dataclass(frozen=True)
class Found:
    """A savepoint and its folder; without a savepoint if that cannot be read."""

    folder: Path
    savepoint: Savepoint | None
    error: PenstockError | None = None

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def place(self) -> str:
        return str(self.folder)


class Listed(Protocol):
    """A savepoint in a list of them, wherever they lie."""

    @property
    def name(self) -> str: ...
    @property
    def place(self) -> str: ...
    @property
    def savepoint(self) -> Savepoint | None: ...
    @property
    def error(self) -> PenstockError | None: ...


_L = TypeVar("_L", bound=Listed)


def folder_of(state: Path) -> Path:
    return state / "savepoints"


def hidden(folder: Path) -> Path:
    """Where a savepoint is made before it gets its name, and put before it is removed."""
    return folder.with_name(f".{folder.name}.tmp")


def found_in(state: Path) -> list[Found]:
    """The savepoints in a state folder, the oldest first; those that cannot be read at the end."""
    folder = folder_of(state)
    if not folder.is_dir():
        return []
    places = [item for item in folder.iterdir() if item.is_dir() and not item.name.startswith(".")]
    return in_order([_found(item) for item in sorted(places) if item.name not in (REQUESTS, PINS)])


def in_order(found: Sequence[_L]) -> list[_L]:
    """The oldest first; those that cannot be read at the end."""
    readable = [(one.savepoint.created_at, one.name, one) for one in found if one.savepoint is not None]
    return [*(one for *_, one in sorted(readable, key=lambda item: item[:2])), *(one for one in found if one.error)]


def _found(folder: Path) -> Found:
    try:
        return Found(folder, read_savepoint(folder))
    except PenstockError as error:
        return Found(folder, None, error)


def readable(found: Sequence[Found]) -> list[Savepoint]:
    return [one.savepoint for one in found if one.savepoint is not None]


def find(word: str, state: Path | None) -> Path:
    """The folder of a savepoint that is named by its path, or by its name in a state folder."""
    named = folder_of(state) / word if state is not None and "/" not in word and not word.startswith(".") else None
    if named is not None and (named / MANIFEST).is_file():
        return named
    path = Path(word)
    if path.is_dir():
        return path.resolve()
    known = [one.name for one in found_in(state)] if state is not None else []
    where = folder_of(state) if state is not None else path.absolute().parent
    raise PenstockError.of("SAVEPOINT_UNKNOWN", name=word, path=where, suggestion=did_you_mean(word, known))


def read_savepoint(folder: Path) -> Savepoint:
    """What a savepoint says of itself; raises if there is none, if it is damaged, or made by something newer."""
    file = folder / MANIFEST
    try:
        text = file.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        if folder.is_dir() and any(folder.iterdir()):
            raise PenstockError.of("SAVEPOINT_DAMAGED", path=folder, file=MANIFEST, reason="is missing") from None
        raise PenstockError.of("SAVEPOINT_UNKNOWN", name=folder.name, path=folder.parent) from None
    except (OSError, UnicodeDecodeError) as error:
        raise PenstockError.of(
            "SAVEPOINT_DAMAGED", path=folder, file=MANIFEST, reason=f"cannot be read: {error}"
        ) from None
    return manifest_read(text, folder)


def manifest_read(text: str, place: Path | str) -> Savepoint:
    """What the text of a manifest says; raises if it is damaged, or made by something newer."""
    number = format_of(text)
    if number is not None and number > FORMAT:
        raise PenstockError.of("SAVEPOINT_TOO_NEW", path=place, what="savepoint format", found=number, known=FORMAT)
    try:
        return from_json(text)
    except ValueError as error:
        raise PenstockError.of(
            "SAVEPOINT_DAMAGED", path=place, file=MANIFEST, reason=f"cannot be read: {error}"
        ) from None


def refuse_newer(folder: Path | str, savepoint: Savepoint, spark: str) -> None:
    """Raises SAVEPOINT_TOO_NEW if a newer Penstock or Spark has made it than would go on from it."""
    for what, found, known in (("Penstock", savepoint.penstock, __version__), ("Spark", savepoint.spark, spark)):
        if _numbers(found) > _numbers(known):
            raise PenstockError.of("SAVEPOINT_TOO_NEW", path=folder, what=what, found=found, known=known)


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: 4.3.0 of `4.3.0-preview1`."""
    parts = version.split("-")[0].split(".")
    numbers = [int(part) for part in parts[:3] if part.isdigit()]
    return tuple(numbers + [0] * (3 - len(numbers)))


def remove(folder: Path) -> None:
    """Takes a savepoint away: it is gone at once, its files after it."""
    gone = hidden(folder)
    shutil.rmtree(gone, ignore_errors=True)
    folder.rename(gone)
    sync_folder(folder.parent)
    shutil.rmtree(gone, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Removes what was left by someone who died while making or removing one; call it when nobody else can be."""
    for item in folder.glob(".*.tmp") if folder.is_dir() else ():
        shutil.rmtree(item, ignore_errors=True)
