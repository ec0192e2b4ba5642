"""Collects what is wrong with a pipeline, each with its place, in words that people use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.errors import Location, PenstockError, Problem
from penstock.spec.location import Path_, Places

_KINDS = {"sources": "source", "steps": "step", "sinks": "sink"}
_LISTS = {"alerts": "alert", "tests": "test"}
_LONGEST_EXCERPT = 40


class Findings:
    """Problems found so far, and the places they point to."""

    def __init__(self, places: Places, problems: Iterable[Problem] = ()) -> None:
        self.places = places
        self.problems: list[Problem] = list(problems)

    def add(self, code: str, place: Location, **params: Any) -> None:
        self.problems.append(Problem(code, params, place))

    def at_value(self, code: str, path: Path_, **params: Any) -> None:
        self.add(code, self.places.of(*path), **params)

    def at_key(self, code: str, path: Path_, **params: Any) -> None:
        self.add(code, self.places.of_key(*path), **params)

    def take(self, error: PenstockError, path: Path_) -> None:
        """Problems that something else found in the value at a path."""
        place = self.places.of(*path)
        self.problems.extend(Problem(item.code, item.params, item.location or place) for item in error.problems)

    def in_order(self) -> list[Problem]:
        return sorted(self.problems, key=lambda problem: _order(problem.location))

    def raise_if_any(self) -> None:
        if self.problems:
            raise PenstockError(self.in_order())


def _order(location: Location | None) -> tuple[bool, int, int]:
    return (location is None, location.line if location else 0, location.column if location else 0)


def place_in_words(path: Path_) -> str:
    """How a message names the part of a pipeline at a path, such as "`files.path` of source 'views'"."""
    if not path:
        return "the pipeline file"
    inside = path[1:] if path[0] == "spec" and len(path) > 1 else path
    section, rest = inside[0], inside[1:]
    if section in _KINDS and rest:
        return _part_of(rest[1:], f"{_KINDS[str(section)]} '{rest[0]}'")
    if section in _LISTS and rest and isinstance(rest[0], int):
        return _part_of(rest[1:], f"{_LISTS[str(section)]} {rest[0] + 1}")
    return f"`{_dotted(inside)}`"


def _part_of(path: Path_, whole: str) -> str:
    return f"`{_dotted(path)}` of {whole}" if path else whole


def _dotted(path: Path_) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def describe(value: Any) -> str:
    """What was found, in plain words."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        short = value if len(value) <= _LONGEST_EXCERPT else value[: _LONGEST_EXCERPT - 1] + "…"
        return f"the text {short!r}"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    kind, name = getattr(value, "kind", None), getattr(value, "name", None)
    return f"the {kind} '{name}'" if kind and name else f"a {type(value).__name__}"
