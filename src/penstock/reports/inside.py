"""Files inside a folder that somebody else may change meanwhile: no link is followed, and only files are opened.

A server reads and writes in folders in which processes of pipelines write. A link that such a process leaves there must
not lead the server to files that only the server can open.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

LARGEST = 64 << 20
"""Of a file that is read as a whole."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0)
"""Without blocking, as a pipe could be there instead."""


@contextmanager
def folder_inside(root: Path, *parts: str, make: bool = False) -> Iterator[int]:
    """A folder below `root`, which itself is trusted, as an open file; raises OSError."""
    opened = os.open(root, _FOLDER)
    try:
        for part in parts:
            made = make and _made(part, opened)
            inner = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=opened)
            if made:
                _give_to_owner(inner, opened)
            os.close(opened)
            opened = inner
        yield opened
    finally:
        os.close(opened)


def open_inside(root: Path, *parts: str) -> IO[bytes]:
    """A file below `root`, to be read; raises OSError, also if it is a link or no file."""
    with folder_inside(root, *parts[:-1]) as folder:
        return os.fdopen(_file(os.open(parts[-1], os.O_RDONLY | _FILE, dir_fd=folder), parts), "rb")


def append_inside(root: Path, *parts: str) -> IO[bytes]:
    """A file below `root`, to be written on to; raises OSError, also if it is a link of any kind, or no file."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | _FILE
    with folder_inside(root, *parts[:-1], make=True) as folder:
        opened = _file(os.open(parts[-1], flags, 0o666, dir_fd=folder), parts)
    if os.fstat(opened).st_nlink != 1:
        os.close(opened)
        raise OSError(errno.EMLINK, os.strerror(errno.EMLINK), "/".join(parts))
    return os.fdopen(opened, "ab")


def read_inside(root: Path, *parts: str, most: int = LARGEST) -> bytes:
    """All of a file; raises OSError, also if it is larger than `most`."""
    with open_inside(root, *parts) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), "/".join(parts))
    return content


def write_inside(root: Path, *parts: str, content: bytes, lasting: bool = False, mode: int = 0o666) -> None:
    """Puts a file there so that a reader sees all of it or none; `lasting` also after a crash of the machine."""
    name = parts[-1]
    hidden = f".{name}.tmp"
    with folder_inside(root, *parts[:-1]) as folder:
        with suppress(FileNotFoundError):
            os.unlink(hidden, dir_fd=folder)
        opened = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, mode, dir_fd=folder)
        with os.fdopen(opened, "wb") as file:
            _give_to_owner(opened, folder)
            file.write(content)
            if lasting:
                file.flush()
                os.fsync(file.fileno())
        os.replace(hidden, name, src_dir_fd=folder, dst_dir_fd=folder)
        if lasting:
            os.fsync(folder)


def remove_inside(root: Path, *parts: str) -> None:
    """Removes a file that need not be there."""
    with suppress(FileNotFoundError), folder_inside(root, *parts[:-1]) as folder:
        os.unlink(parts[-1], dir_fd=folder)


def names_inside(root: Path, *parts: str) -> list[str]:
    """What lies in a folder; nothing if there is none, or a link instead."""
    try:
        with folder_inside(root, *parts) as folder:
            return sorted(os.listdir(folder))
    except OSError:
        return []


def changed_inside(root: Path, *parts: str) -> int:
    """When a file or folder was last changed, in nanoseconds since 1970; 0 if it is not there."""
    try:
        with folder_inside(root, *parts[:-1]) as folder:
            return os.stat(parts[-1], dir_fd=folder, follow_symlinks=False).st_mtime_ns
    except OSError:
        return 0


def is_folder_inside(root: Path, *parts: str) -> bool:
    try:
        with folder_inside(root, *parts):
            return True
    except OSError:
        return False


def _made(name: str, folder: int) -> bool:
    try:
        os.mkdir(name, dir_fd=folder)
    except FileExistsError:
        return False
    return True


def _give_to_owner(opened: int, folder: int) -> None:
    """What a server adds to a folder of a process that runs as another user is for that process to read."""
    owner = os.fstat(folder)
    if os.geteuid() == 0 and owner.st_uid != 0:
        os.fchown(opened, owner.st_uid, owner.st_gid)


def _file(opened: int, parts: tuple[str, ...]) -> int:
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise OSError(errno.EINVAL, "not a file", "/".join(parts))
    return opened
