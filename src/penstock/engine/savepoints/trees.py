"""Trees of files: linked where that can be, copied where not, and known by their digests."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from penstock.errors import PenstockError
from penstock.reports.savepoints import SavedFile

Progress = Callable[[int, int], None]
"""Told how many bytes are done, and of how many."""

_PIECE = 1 << 20
_NO_LINKS = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP)
_TRIES = 20


def quiet(done: int, total: int) -> None:
    """For who need not know."""


def link_all(root: Path, listed: Callable[[], Iterable[str]], target: Path) -> list[str]:
    """Links the listed files of a folder into another; which ones they were in the end.

    Others may add, move and remove files meanwhile: what is linked is what was there before and after.
    """
    done: set[str] = set()
    made: set[str] = set()

    def linked(name: str) -> bool:
        folder = os.path.dirname(name)
        if folder not in made:
            (target / folder).mkdir(parents=True, exist_ok=True)
            made.add(folder)
        return _linked(root / name, target / name)

    for _ in range(_TRIES):
        with suppress(FileNotFoundError):
            wanted = set(listed())
            for name in sorted(done - wanted):
                (target / name).unlink()
            done &= wanted
            done |= {name for name in sorted(wanted - done) if linked(name)}
            if done == wanted and set(listed()) == wanted:
                return sorted(done)
    raise PenstockError.of("SAVEPOINT_FAILED", reason=f"the files in {root} keep changing")


def _linked(file: Path, target: Path) -> bool:
    """Gives the file a second name; False if it is gone."""
    try:
        os.link(file, target)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        try:
            shutil.copy2(file, target)
        except FileNotFoundError:
            return False
    return True


def put(file: Path, target: Path, modified_ns: int) -> None:
    """The same file at another place: linked on the same disk, otherwise copied."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if _linked(file, target) and target.stat().st_mtime_ns != modified_ns:
        os.utime(target, ns=(modified_ns, modified_ns))


def files_below(folder: Path) -> list[str]:
    """All files below a folder that are not being written, relative to it."""
    if not folder.is_dir():
        return []
    found = []
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        inside = Path(root).relative_to(folder)
        found += [(inside / name).as_posix() for name in names if not _is_being_written(name)]
    return found


def _is_being_written(name: str) -> bool:
    return name.endswith(".tmp") or (name.startswith(".") and not name.endswith(".crc"))


def digest(file: Path, told: Callable[[int], None] = lambda count: None) -> str:
    """SHA-256 of a file."""
    found = hashlib.sha256()
    with file.open("rb") as content:
        while piece := content.read(_PIECE):
            found.update(piece)
            told(len(piece))
    return found.hexdigest()


def digested(
    folder: Path, names: Iterable[str], known: Mapping[str, SavedFile], before: Path | None, progress: Progress = quiet
) -> list[SavedFile]:
    """The files of a folder with their digests.

    `known` are those of an earlier savepoint in the folder `before`: a file that is the same one there has the same
    digest, so only what is new is read.
    """
    found: dict[str, SavedFile] = {}
    unread: list[tuple[str, os.stat_result]] = []
    for name in sorted(names):
        here = (folder / name).stat()
        earlier = known.get(name)
        if earlier is not None and before is not None and _is_same(before / name, here, earlier):
            found[name] = earlier
        else:
            unread.append((name, here))
    total, done = sum(here.st_size for _, here in unread), 0
    for name, here in unread:
        found[name] = SavedFile(name, here.st_size, digest(folder / name), here.st_mtime_ns)
        done += here.st_size
        progress(done, total)
    return sorted(found.values())


def _is_same(file: Path, here: os.stat_result, known: SavedFile) -> bool:
    try:
        there = file.stat()
    except OSError:
        return False
    return os.path.samestat(there, here) and (here.st_size, here.st_mtime_ns) == (known.bytes, known.modified_ns)


def refuse_without_space(target: Path, needed: int) -> None:
    """Raises SAVEPOINT_NO_SPACE before anything is copied that does not fit."""
    free = shutil.disk_usage(nearest(target)).free
    if needed > free:
        raise PenstockError.of("SAVEPOINT_NO_SPACE", path=target, needed=f"{needed:,}", free=f"{free:,}")


def same_disk(one: Path, other: Path) -> bool:
    """Whether files can have a name in both folders; a folder that is not there yet is where it would be made."""
    return nearest(one).stat().st_dev == nearest(other).stat().st_dev


def nearest(path: Path) -> Path:
    """The folder itself, or the nearest one above it that there is."""
    return next(folder for folder in (path, *path.absolute().parents) if folder.is_dir())
