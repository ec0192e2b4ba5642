"""The documentation as tests see it: pages, their fenced blocks, and the files that blocks name.

A block names its file in a comment on its first line; one whose language has no comments names it after the language.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from unittest import mock

from penstock.components import registry
from penstock.errors import CODES

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.*") if path.suffix in (".yaml", ".sql", ".py"))
_FENCE = re.compile(r"^```(\S*)[ \t]*([^\n]*)\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_FILE_NAME = re.compile(r"(?:#|--) ([\w./-]+\.\w+)\n")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str
    named: str = ""
    """What stands after the language."""

    @property
    def file_name(self) -> str | None:
        """The file it is, if it says so."""
        found = _FILE_NAME.match(self.text)
        return self.named or (found[1] if found else None)

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    return [
        Block(page, text.count("\n", 0, found.start()) + 1, found[1], found[3], found[2].strip())
        for found in _FENCE.finditer(text)
    ]


def without_blocks(page: Path) -> str:
    return _FENCE.sub("", page.read_text("utf-8"))


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


@contextmanager
def project_of(page: Path, folder: Path) -> Iterator[Path]:
    """A folder with all files that a page's blocks name, and the components the page declares installed."""
    for block in blocks_of(page):
        if block.file_name is not None:
            (folder / block.file_name).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.file_name).write_text(block.text, "utf-8")
    modules, codes = set(sys.modules), dict(CODES)
    sys.path.insert(0, str(folder))
    registry.components.cache_clear()
    try:
        with mock.patch.object(registry, "entry_points", lambda group: _entry_points(folder, group)):
            yield folder
    finally:
        registry.components.cache_clear()
        sys.path.remove(str(folder))
        for name in set(sys.modules) - modules:
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).is_relative_to(folder):
                del sys.modules[name]
        CODES.clear()
        CODES.update(codes)


def _entry_points(folder: Path, group: str) -> list[EntryPoint]:
    file = folder / "pyproject.toml"
    declared = tomllib.loads(file.read_text("utf-8"))["project"]["entry-points"] if file.exists() else {}
    return [EntryPoint(name, value, group) for name, value in declared.get(group, {}).items()]
