"""Files and folders that are on the disk before anything names them, so that a power failure loses nothing.

A file that was written and closed is in the memory of the system; it is on the disk once it has been synced, and its
name once the folder has been synced that holds it. So what is named comes first: the file, its folder, then the file
that names it. This is the one place that writes files which have to outlast a crash of the machine.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

_AT_ONCE = 16
_FOLDERS_CANNOT = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP)
"""What file systems answer that keep no folders to be synced."""


def sync_file(path: Path) -> None:
    """Returns when the content of a file is on the disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def sync_folder(path: Path) -> None:
    """Returns when the names in a folder are on the disk."""
    try:
        sync_file(path)
    except OSError as error:
        if error.errno not in _FOLDERS_CANNOT:
            raise


def make_folders(path: Path) -> None:
    """Makes a folder and those above it that are missing; their names are on the disk."""
    missing = []
    folder = path
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def write_durably(path: Path, content: str | bytes, mode: int = 0o666) -> None:
    """Puts a content there so that a reader sees all of it or what was there before, also after a power failure."""
    with _written(path, content, mode) as hidden:
        hidden.replace(path)
    sync_folder(path.parent)


def create_durably(path: Path, content: str | bytes) -> bool:
    """The same, but only if nothing has that name; whether nothing did."""
    with _written(path, content) as hidden:
        try:
            os.link(hidden, path)
        except FileExistsError:
            return False
        except OSError:
            # Not every file system has links; then looking first is the best there is.
            if path.exists():
                return False
            hidden.replace(path)
    sync_folder(path.parent)
    return True


@contextmanager
def _written(path: Path, content: str | bytes, mode: int = 0o666) -> Iterator[Path]:
    """A hidden file beside the path that holds the content and is on the disk."""
    hidden = path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}.tmp")
    try:
        with os.fdopen(os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        yield hidden
    finally:
        hidden.unlink(missing_ok=True)


def rename_durably(old: Path, new: Path) -> None:
    """Gives a file or folder that is on the disk another name, which is on the disk too."""
    old.rename(new)
    sync_folder(new.parent)
    if old.parent != new.parent:
        sync_folder(old.parent)


def sync_files(files: Collection[Path], root: Path) -> None:
    """Returns when files below a root are on the disk, and the folders that lead to them from there."""
    _each(sync_file, files)
    sync_folders_of(files, root)


def sync_folders_of(files: Iterable[Path], root: Path) -> None:
    """Syncs the folders that lead from a root to files which are on the disk."""
    found: set[Path] = set()
    for folder in {file.parent for file in files}:
        while folder not in found:
            found.add(folder)
            if folder == root:
                break
            folder = folder.parent
    _each(sync_folder, found)


def sync_tree(root: Path) -> None:
    """Returns when a folder with all that is below it is on the disk, and its own name."""
    if root.is_dir():
        NewFiles(root).sync()
        sync_folder(root.parent)


class NewFiles:
    """Syncs what has come into a folder since it was last asked to; for files that are written once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._known: dict[str, set[str]] = {}

    def sync(self, without: Collection[str] = ()) -> None:
        """Returns when all that is there is on the disk; `without` are names of folders right below the root."""
        files: list[Path] = []
        folders: list[Path] = []
        waiting = [str(self.root)]
        while waiting:
            folder = waiting.pop()
            with suppress(FileNotFoundError), os.scandir(folder) as entries:
                below = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
                skipped = without if folder == str(self.root) else ()
                waiting += [
                    f"{folder}/{name}" for name, is_folder in below.items() if is_folder and name not in skipped
                ]
                new = below.keys() - self._known.get(folder, set())
                files += [Path(folder, name) for name in new if not below[name] and not _is_temporary(name)]
                if new:
                    folders.append(Path(folder))
                self._known[folder] = set(below)
        _each(_sync_if_there, files)
        _each(_sync_folder_if_there, folders)


def _is_temporary(name: str) -> bool:
    """A file that is being written gets its own name when it is whole."""
    return name.endswith((".tmp", ".tmp.crc"))


def _sync_if_there(path: Path) -> None:
    with suppress(FileNotFoundError):
        sync_file(path)


def _sync_folder_if_there(path: Path) -> None:
    with suppress(FileNotFoundError):
        sync_folder(path)


def _each(action: Callable[[Path], None], paths: Collection[Path]) -> None:
    if len(paths) < 2:
        for path in paths:
            action(path)
        return
    with ThreadPoolExecutor(min(len(paths), _AT_ONCE)) as pool:
        list(pool.map(action, paths))
