"""Whether a savepoint is whole: every file there, as long as it was, and with the same content."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.engine.savepoints.trees import Progress, digest, quiet
from penstock.errors import PenstockError, Problem
from penstock.reports.savepoints import SavedFile, Savepoint


@dataclass(frozen=True)
class Content:
    """What a file was found to hold; the digest is not needed where the length tells already."""

    bytes: int
    sha256: str | None = None


@dataclass(frozen=True)
class Damage:
    file: str
    reason: str


def judge(expected: Iterable[SavedFile], found: Mapping[str, Content]) -> list[Damage]:
    """What is wrong with files, in the order of their paths; files that nobody expects do no harm."""
    return [Damage(file.path, reason) for file in sorted(expected) if (reason := _reason(file, found.get(file.path)))]


def _reason(file: SavedFile, content: Content | None) -> str | None:
    if content is None:
        return "is missing"
    if content.bytes != file.bytes:
        return f"has {content.bytes:,} bytes instead of {file.bytes:,}"
    return None if content.sha256 == file.sha256 else "has another content"


def verify(folder: Path, savepoint: Savepoint, progress: Progress = quiet) -> list[Damage]:
    """Reads all of a savepoint; what is wrong with it."""
    return verify_files(folder, savepoint.files, progress)


def verify_files(folder: Path, files: Sequence[SavedFile], progress: Progress = quiet) -> list[Damage]:
    """Reads some files of a savepoint; what is wrong with them."""
    found: dict[str, Content] = {}
    done, total = 0, sum(file.bytes for file in files)
    for file in files:
        path = folder / file.path
        try:
            size = path.stat().st_size
            found[file.path] = Content(size, digest(path) if size == file.bytes else None)
        except OSError:
            pass
        done += file.bytes
        progress(done, total)
    return judge(files, found)


def refuse_damaged(folder: Path, savepoint: Savepoint, progress: Progress = quiet) -> None:
    """Raises SAVEPOINT_DAMAGED, once for each file with which something is wrong."""
    refuse_damaged_files(folder, savepoint.files, progress)


def refuse_damaged_files(folder: Path, files: Sequence[SavedFile], progress: Progress = quiet) -> None:
    """Like `refuse_damaged`, for some of its files."""
    damages = verify_files(folder, files, progress)
    if damages:
        raise PenstockError(damaged(folder, one) for one in damages)


def damaged(folder: Path | str, damage: Damage) -> Problem:
    return Problem("SAVEPOINT_DAMAGED", {"path": folder, "file": damage.file, "reason": damage.reason})
