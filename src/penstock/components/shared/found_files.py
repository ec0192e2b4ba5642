"""Files that a path has led to, checked before their rows are read."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from penstock.access.limits import check_files, current

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def only_allowed(rows: DataFrame, node: str) -> DataFrame:
    """The rows, if this process may read all of their files; raises PATH_NOT_ALLOWED."""
    if current() is not None:
        check_files(map(local_path, rows.inputFiles()), f"source '{node}'")
    return rows


def local_path(uri: str) -> str:
    """The path of a file on this machine; others stay URIs."""
    parts = urlsplit(uri)
    return unquote(parts.path) if parts.scheme in ("", "file") else uri
