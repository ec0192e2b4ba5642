"""Files that are there whole or not at all, also after a crash of the machine."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Lets the disk have a file or the names in a folder."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def write_whole(path: Path, text: str) -> None:
    """Puts a text there so that a reader sees all of it or none, also after a crash of the machine."""
    hidden = path.with_name(f".{path.name}.tmp")
    with hidden.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    hidden.replace(path)
    sync(path.parent)
