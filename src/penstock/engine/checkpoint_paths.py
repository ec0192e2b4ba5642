"""Paths of its own that Spark writes into a checkpoint, and how they move with it.

Spark's file source notes the files it has read, and operators note where the schema of their state is; both with the
full path. Where these lie in the state folder itself, a moved checkpoint would read the files again, or look for the
schema where it no longer is. In a savepoint they begin with a word that stands for the folder.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

_WORD = "penstock-state"
_ENCODED = re.compile(r'"file://(/[^"\\]*)"')
_PLAIN = re.compile(r'"file:(/(?!/)[^"\\]*)"')
_HOLDERS = re.compile(r"sources/[^/]+/[^/.]+(\.compact)?|state/\d+/_metadata/(.+/)?[^/.]+")
_QUOTED = frozenset('"%<>[]\\^`{|} #?')


def may_hold_paths(path: str) -> bool:
    """Whether a file of a checkpoint can name paths; `path` is relative to the checkpoint."""
    return _HOLDERS.fullmatch(path) is not None


def without_place(text: str, state: Path) -> str:
    """The text with the word where it had the path of the state folder."""
    root = f"{state}/"

    def encoded(found: re.Match[str]) -> str:
        path = unquote(found[1])
        return f'"{_WORD}:///{_quoted(path[len(root) :])}"' if path.startswith(root) else found[0]

    def plain(found: re.Match[str]) -> str:
        return f'"{_WORD}:/{found[1][len(root) :]}"' if found[1].startswith(root) else found[0]

    return _PLAIN.sub(plain, _ENCODED.sub(encoded, text))


def with_place(text: str, state: Path) -> str:
    """The text with the path of this state folder where it had the word."""
    text = text.replace(f'"{_WORD}:///', f'"file://{_quoted(str(state))}/')
    return text.replace(f'"{_WORD}:/', f'"file:{state}/')


def _quoted(path: str) -> str:
    """As Java writes a path in a URI: only what may not stand there is quoted."""
    return "".join(f"%{ord(mark):02X}" if mark in _QUOTED or ord(mark) < 32 else mark for mark in path)
