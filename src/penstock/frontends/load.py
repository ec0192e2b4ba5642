"""Reads a pipeline file of any kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from penstock.errors import Location, PenstockError
from penstock.frontends.python_file import load_python
from penstock.frontends.sql import load_sql
from penstock.frontends.yaml import load_yaml
from penstock.spec.location import PipelineFile

_READERS: dict[str, Callable[[Path], PipelineFile]] = {
    ".yaml": load_yaml,
    ".yml": load_yaml,
    ".sql": load_sql,
    ".py": load_python,
}


def load(path: Path | str) -> PipelineFile:
    """The pipeline in a file, read as its suffix says; raises FILE_NOT_FOUND or FILE_KIND_UNKNOWN, or what is wrong."""
    path = Path(path)
    if not path.exists():
        raise PenstockError.of("FILE_NOT_FOUND", path=path)
    reader = _READERS.get(path.suffix.lower())
    if reader is None or not path.is_file():
        raise PenstockError.of("FILE_KIND_UNKNOWN", Location(str(path)), path=path)
    return reader(path)
