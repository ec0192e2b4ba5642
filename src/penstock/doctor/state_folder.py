"""What can be seen of the folder that will hold checkpoint, ledger and logs."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm", "/run")
"""Folders that systems empty at a start, or after some days."""


@dataclass(frozen=True)
class StateFolder:
    """The folder that `--state-dir` names."""

    path: str
    free: int | None = None
    """Free bytes on its disk; None if that could not be seen."""


def look_at(path: Path) -> StateFolder:
    """The folder as it is now; it need not be there yet."""
    whole = path.absolute()
    there = next((folder for folder in (whole, *whole.parents) if folder.is_dir()), None)
    try:
        free = None if there is None else _free(there)
    except OSError:
        free = None
    return StateFolder(str(whole), free)


def _free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def is_temporary(path: str) -> bool:
    """Whether a path lies where systems remove files by themselves."""
    plain = path.removeprefix("file://") if path.startswith("file:///") else path
    if "://" in plain or not plain.startswith("/"):
        return False
    whole = PurePosixPath(os.path.normpath(plain))
    return any(whole.is_relative_to(folder) for folder in (*_TEMPORARY, tempfile.gettempdir()))
