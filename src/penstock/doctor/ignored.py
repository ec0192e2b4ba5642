"""Findings that somebody has looked at and accepted, by a comment: `# doctor: ignore state-unbounded`."""

from __future__ import annotations

import re
from collections.abc import Mapping

_COMMENT = re.compile(r"#\s*doctor:\s*ignore\s+([a-z-]+(?:\s*,\s*[a-z-]+)*)")


def ignored_rules(text: str) -> Mapping[int, frozenset[str]]:
    """The ids of rules that are ignored, by line. A comment alone on a line holds for the next line that is none."""
    found: dict[int, frozenset[str]] = {}
    waiting: frozenset[str] = frozenset()
    for number, line in enumerate(text.splitlines(), start=1):
        comment = _COMMENT.search(line)
        named = frozenset(re.split(r"\s*,\s*", comment[1])) if comment else frozenset()
        if line.lstrip().startswith("#"):
            waiting |= named
        elif line.strip():
            found[number] = waiting | named
            waiting = frozenset()
    return found
