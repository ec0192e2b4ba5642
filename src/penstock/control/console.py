"""The files of the console: read once, known by name, and never looked for by a path that someone asks for."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

FOLDER = Path(__file__).parent / "console_dist"
"""Where building the console puts them."""
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_PLAIN = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Penstock</title>
<h1>Penstock is running</h1>
<p>Its console has not been built in this installation. In a checkout, install Node 20.19 or newer,
run <code>make setup</code>, and start the server again. Wheels come with it.</p>
<p>Everything else works: the API is under <code>/api/v1</code>, and <code>penstock get</code> asks it.</p>
</html>
"""


@dataclass(frozen=True)
class ConsoleFile:
    """One file as it is sent."""

    media_type: str
    content: bytes

    @cached_property
    def etag(self) -> str:
        return f'"{hashlib.sha256(self.content).hexdigest()[:32]}"'

    @cached_property
    def packed(self) -> bytes:
        return gzip.compress(self.content, mtime=0)


@dataclass(frozen=True)
class Console:
    """The page that all addresses of the console show, and what it loads."""

    page: ConsoleFile
    assets: Mapping[str, ConsoleFile]
    icon: ConsoleFile | None = None


def read_console(folder: Path = FOLDER) -> Console:
    """What has been built; else a page that says how to do it."""
    index = folder / "index.html"
    if not index.is_file():
        return Console(ConsoleFile(_TYPES[".html"], _PLAIN.encode()), {})
    assets = {path.name: _read(path) for path in sorted((folder / "assets").iterdir()) if _is_asset(path)}
    icon = folder / "icon.svg"
    return Console(_read(index), assets, _read(icon) if icon.is_file() else None)


def _is_asset(path: Path) -> bool:
    return path.is_file() and path.suffix in _TYPES and re.fullmatch(r"[\w.-]+", path.name) is not None


def _read(path: Path) -> ConsoleFile:
    return ConsoleFile(_TYPES[path.suffix], path.read_bytes())
