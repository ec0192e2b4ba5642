"""Removes what deleted pipelines have left, once it has been kept for long enough.

Pipelines wrote it, so it is removed as if they meant harm: no link is followed, nor what is swapped for a link in the
middle of it, and folders may be deep or closed. It is done a few files at a time, beside all else that the server does.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

AT_ONCE = 2000
"""How many files and folders one step removes."""
_DEEPEST = 32
"""Below that folders are moved up first, so that depth costs neither open files nor a stack."""
_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW


@dataclass
class Removed:
    """What has been removed. `whole` is whether nothing is left of the folder."""

    files: int = 0
    bytes: int = 0
    whole: bool = False

    def add(self, other: Removed) -> None:
        self.files += other.files
        self.bytes += other.bytes
        self.whole = other.whole


def remove_some(folder: Path, most: int = AT_ONCE) -> Removed:
    """Removes about so many files and folders below a folder, and the folder itself once it is empty.

    What cannot be removed is left: a step that has removed nothing says that it is no use to go on.
    """
    done = Removed()
    with suppress(OSError):
        parent = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            top = _open(parent, folder.name)
            try:
                _empty(top, top, done, most, depth=1)
            finally:
                os.close(top)
            os.rmdir(folder.name, dir_fd=parent)
            done.files += 1
            done.whole = True
        finally:
            os.close(parent)
    return done


def _empty(top: int, here: int, done: Removed, most: int, depth: int) -> None:
    with os.scandir(here) as entries:
        names = [entry.name for entry in entries]
    for name in names:
        if done.files >= most:
            return
        with suppress(OSError):
            _remove(top, here, name, done, most, depth)


def _remove(top: int, here: int, name: str, done: Removed, most: int, depth: int) -> None:
    found = os.stat(name, dir_fd=here, follow_symlinks=False)
    if not stat.S_ISDIR(found.st_mode):
        os.unlink(name, dir_fd=here)
        done.bytes += found.st_blocks * 512 if found.st_nlink == 1 else 0
    elif depth >= _DEEPEST:
        os.rename(name, f".{secrets.token_hex(8)}", src_dir_fd=here, dst_dir_fd=top)
    else:
        below = _open(here, name)
        try:
            _empty(top, below, done, most, depth + 1)
        finally:
            os.close(below)
        os.rmdir(name, dir_fd=here)
    done.files += 1


def _open(parent: int, name: str) -> int:
    """Opens a folder, and never what a link leads to; one that its owner has closed is opened up first."""
    handle = os.open(name, getattr(os, "O_PATH", os.O_RDONLY) | _FOLDER, dir_fd=parent)
    try:
        if os.fstat(handle).st_mode & stat.S_IRWXU != stat.S_IRWXU:
            with suppress(OSError):
                os.chmod(f"/proc/self/fd/{handle}", stat.S_IRWXU)
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=handle)
    finally:
        os.close(handle)
