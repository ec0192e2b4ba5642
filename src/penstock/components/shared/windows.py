"""What steps with windows have in common: checks of their lengths, and what a change does to their state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from penstock.components.shared.aggregates import begun_anew
from penstock.errors import Problem
from penstock.spec.fields import Change
from penstock.spec.units import Duration


def check_lengths(
    where: str, size: Duration | None, slide: Duration | None, gap: Duration | None = None
) -> Iterator[Problem]:
    """Problems with the lengths of windows, or of the gap between sessions."""

    def bad(reason: str, advice: str = "", *at: str) -> Problem:
        return Problem("SPEC_BAD_VALUE", {"where": where, "reason": reason, "advice": advice}, at=at)

    if (size is None) == (gap is None):
        yield bad("it needs either `size` or `gap`", "Write `size: 1 minute`, or `gap: 30 minutes` for sessions.")
    for name, value in (("size", size), ("slide", slide), ("gap", gap)):
        if value is not None and value.millis <= 0:
            yield bad(f"`{name}` must be more than zero", "", name)
    if slide is not None and gap is not None:
        yield bad("`slide` does not go with `gap`", "", "slide")
    if slide is not None and size is not None and slide.millis > size.millis:
        reason = f"`slide` ({slide}) is larger than `size` ({size}), so rows between windows would be lost"
        yield bad(reason, "Make `slide` at most `size`.", "slide")


class _Windowed(Protocol):
    @property
    def values(self) -> Mapping[str, str]: ...
    @property
    def emit(self) -> str: ...


def window_state_after(before: _Windowed, after: _Windowed) -> tuple[Change, str]:
    """What becomes of the state of windows of which only the values are others, or when they are given."""
    if (before.emit, after.emit) == ("close", "update"):
        return Change.LOSES_STATE, "windows that are open would not be given unless further rows come for them"
    fresh = begun_anew(before.values, after.values)
    told = f"{', '.join(fresh)}: in windows that are open only rows that come from now on are in it"
    return Change.RESTART, told if fresh else "its state goes on"
