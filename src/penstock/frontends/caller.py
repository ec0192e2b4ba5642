"""Where in a user's Python code a call stands."""

from __future__ import annotations

import inspect
import sys

from penstock.errors import Location


def calling_place() -> Location:
    """The place of the call by which code outside Penstock came in."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    positions = inspect.getframeinfo(frame, context=0).positions
    column = 1 if positions is None or positions.col_offset is None else positions.col_offset + 1
    line = frame.f_lineno if positions is None or positions.lineno is None else positions.lineno
    return Location(frame.f_code.co_filename, line, column)


def _is_ours(module: str) -> bool:
    return module == "penstock" or module.startswith("penstock.")
