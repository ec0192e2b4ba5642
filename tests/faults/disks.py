"""Small disks that tests can fill."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """A small file system in memory; the test is skipped where mounting is not allowed."""
    folder.mkdir(parents=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip("a file system cannot be mounted here; run as root to test a full disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def _wrote(out: IO[bytes], size: int) -> bool:
    try:
        return out.write(b"\0" * size) > 0
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return False


def fill(folder: Path) -> Path:
    """Takes all the space that is left."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as out:
        for size in (1 << 20, 1 << 12, 1):
            while _wrote(out, size):
                pass
    return filler
