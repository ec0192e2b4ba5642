"""The pipeline files that are sent to a server."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from penstock.errors import Location, PenstockError

_SUFFIXES = (".yaml", ".yml", ".sql", ".py")


def collected(paths: Sequence[Path]) -> list[dict[str, str]]:
    """The files, and those in the folders, as the server takes them; raises FILE_NOT_FOUND, FILE_UNREADABLE, USAGE."""
    found = {file.resolve(): file for path in paths for file in _files(path)}
    return [{"path": _shown(file), "text": _text(file)} for file in found.values()]


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        inside = sorted(_inside(path))
        if not inside:
            reason = f"there are no pipeline files in {path}"
            raise PenstockError.of("USAGE", reason=reason, advice="They end with .yaml, .yml, .sql or .py.")
        yield from inside
    elif path.exists():
        yield path
    else:
        raise PenstockError.of("FILE_NOT_FOUND", path=path)


def _inside(folder: Path) -> Iterator[Path]:
    """All that may be pipelines, in folders below too. Hidden ones, and tests and modules in Python, are not."""
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        for name in names:
            if Path(name).suffix in _SUFFIXES and not _is_none(name):
                yield Path(root, name)


def _is_none(name: str) -> bool:
    return name.startswith(".") or (name.endswith(".py") and (name.startswith(("test_", "_")) or name == "conftest.py"))


def _shown(file: Path) -> str:
    """By the name that errors show; a very long one from its end."""
    return str(file)[-300:]


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise PenstockError.of("FILE_UNREADABLE", Location(str(file)), path=file, reason=reason) from None


def labels_in(texts: Sequence[str] | None) -> dict[str, str]:
    """`KEY=VALUE` pairs; raises USAGE."""
    found = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise PenstockError.of("USAGE", reason=f"'{text}' is not KEY=VALUE", advice="Write team=news, for example.")
        found[key] = value
    return found


def request(
    paths: Sequence[Path], *, prune: bool, selector: Sequence[str] | None, start: bool | None, target: str | None
) -> dict[str, Any]:
    """What `plan` and `apply` ask for."""
    if selector and not prune:
        raise PenstockError.of("USAGE", reason="--selector says what --prune may delete", advice="Add --prune.")
    asked: dict[str, Any] = {"files": collected(paths), "absent": "delete" if prune else "keep"}
    more = {"selector": labels_in(selector) or None, "start": start, "target": target}
    return asked | {key: value for key, value in more.items() if value is not None}
