"""Options for Java and Spark in files that only their owner can read: anyone may read the command line of a process."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

_ESCAPED = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}


def as_properties(conf: Mapping[str, str]) -> str:
    """The text of a properties file as Java reads it."""
    return "".join(f"{_key(key)}={_value(value)}\n" for key, value in sorted(conf.items()))


def as_arguments(options: Iterable[str]) -> str:
    """The text of a file of options as the `java` command reads it."""
    return "".join(f'"{_quoted(option)}"\n' for option in options)


def write_private(path: Path, text: str) -> Path:
    """Writes a new file that only its owner can read."""
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(opened, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def _key(text: str) -> str:
    return "".join(f"\\{each}" if each in " =:#!" else _escaped(each) for each in text)


def _value(text: str) -> str:
    found = "".join(_escaped(each) for each in text)
    return f"\\{found}" if found.startswith(" ") else found


def _escaped(character: str) -> str:
    if character in _ESCAPED:
        return _ESCAPED[character]
    if " " <= character <= "~":
        return character
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def _quoted(text: str) -> str:
    return "".join('\\"' if each == '"' else _ESCAPED.get(each, each) for each in text)
