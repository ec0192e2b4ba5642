"""Where each part of a pipeline was written, so that every error can point there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.errors import Location
from penstock.spec.pipeline import Pipeline

Path_ = tuple[str | int, ...]


@dataclass
class Places:
    """Locations by path in the document, such as `("steps", "clean", "sql")`; a key and its value apart."""

    file: str
    keys: dict[Path_, Location] = field(default_factory=dict)
    values: dict[Path_, Location] = field(default_factory=dict)
    block_texts: set[Path_] = field(default_factory=set)
    """Paths of values written as `|` blocks, whose text starts on the line after."""
    text_parts: dict[Path_, tuple[tuple[int, int, Location], ...]] = field(default_factory=dict)
    """For quoted or folded texts: from which line and column (from 1 and 0) of the text on a place holds."""

    def of(self, *path: str | int) -> Location:
        """The place of the value at a path, or of the nearest thing around it."""
        for prefix in _shortening(path):
            found = self.values.get(prefix) or self.keys.get(prefix)
            if found is not None:
                return found
        return Location(self.file)

    def of_key(self, *path: str | int) -> Location:
        """The place of the key at a path, or of the nearest thing around it."""
        return self.keys.get(path) or self.of(*path)

    def inside_text(self, line: int, column: int, *path: str | int) -> Location:
        """The place of a position (from 1 and 0) inside a text value, as a parser of that text reports it."""
        for part_line, part_column, place in reversed(self.text_parts.get(path, ())):
            if (part_line, part_column) <= (line, column):
                further = column - part_column if part_line == line else 0
                return Location(place.file, place.line, place.column + further)
        start = self.of(*path)
        if path in self.block_texts:
            return Location(start.file, start.line + line - 1, start.column + column)
        return Location(start.file, start.line + line - 1, (start.column if line == 1 else 1) + column)

    def take_over(self, other: Places, path: Path_, to: Path_ | None = None) -> None:
        """Takes from other places, or from these, what stands at a path and below; to another path if one is given."""
        for found in {**other.keys, **other.values}:
            if found[: len(path)] == path:
                self._copy(other, found, (*(path if to is None else to), *found[len(path) :]))

    def take_over_keys(self, other: Places, path: Path_, to: Mapping[str, Path_]) -> None:
        """Takes what stands at and below some keys of a mapping, each to a path of its own, in one pass."""
        depth = len(path)
        for found in {**other.keys, **other.values}:
            key = found[depth] if len(found) > depth and found[:depth] == path else None
            if isinstance(key, str) and key in to:
                self._copy(other, found, (*to[key], *found[depth + 1 :]))

    def _copy(self, origin: Places, path: Path_, to: Path_) -> None:
        for mine, theirs in ((self.keys, origin.keys), (self.values, origin.values)):
            if path in theirs:
                mine[to] = theirs[path]
        if path in origin.text_parts:
            self.text_parts[to] = origin.text_parts[path]
        if path in origin.block_texts:
            self.block_texts.add(to)


def _shortening(path: Path_) -> Iterator[Path_]:
    for length in range(len(path), -1, -1):
        yield path[:length]


@dataclass(frozen=True)
class PipelineFile:
    """A pipeline together with where it was written; paths in it are relative to `folder`."""

    pipeline: Pipeline
    places: Places
    path: Path
    base: Path | None = None
    """Where relative paths start, if that is not beside the file."""

    @property
    def folder(self) -> Path:
        return self.path.parent if self.base is None else self.base
