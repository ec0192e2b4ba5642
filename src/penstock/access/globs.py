"""Patterns of paths as Hadoop reads them, so that a path is judged by what it will open.

Hadoop first expands braces that hold a slash, everywhere in the text, and only then looks at the components of each
result: one with a wildcard is compared with the names in a folder, any other is taken literally.
"""

from __future__ import annotations

from itertools import pairwise

WILDCARDS = frozenset("*?[{")
"""A component that holds one of these is compared with names. Hadoop escapes by a backslash, which no path may hold."""
MOST = 1_000
"""So many alternatives may stand in one pattern; Spark would list the folder of each."""


def count(pattern: str) -> int:
    """For how many patterns one stands that holds braces, or the most that may be."""
    try:
        return len(expand(pattern)) if "{" in pattern else 0
    except BadGlob:
        return MOST


class BadGlob(ValueError):
    """Why a pattern cannot be used."""


def is_glob(text: str) -> bool:
    return not WILDCARDS.isdisjoint(text)


def expand(pattern: str) -> list[str]:
    """The patterns, none with a slash inside braces, for which this one stands; raises BadGlob.

    Braces are expanded from the left, each with the braces that its alternatives hold. Braces that are not closed, and
    those without a slash, stay.
    """
    done: list[str] = []
    waiting = [(pattern, 0)]
    while waiting:
        text, start = waiting.pop()
        group = _first_group(text, start)
        if group is None:
            done.append(text)
        else:
            opened, closed, cuts = group
            edges = [opened, *cuts, closed]
            parts = [text[edge + 1 : following] for edge, following in pairwise(edges)]
            waiting += [(text[:opened] + part + text[closed + 1 :], opened) for part in reversed(parts)]
        if len(done) + len(waiting) > MOST:
            raise BadGlob(f"it stands for more than {MOST:,} patterns")
    return done


def _first_group(text: str, start: int) -> tuple[int, int, list[int]] | None:
    """The first outer braces that hold a slash: where they open and close, and their commas."""
    depth, opened, slash = 0, -1, False
    cuts: list[int] = []
    for at in range(start, len(text)):
        char = text[at]
        if char == "{":
            depth += 1
            if depth == 1:
                opened, cuts = at, []
        elif depth == 0:
            continue
        elif char == "}":
            depth -= 1
            if depth == 0 and slash:
                return opened, at, cuts
        elif char == "/":
            slash = True
        elif char == "," and depth == 1:
            cuts.append(at)
    return None
