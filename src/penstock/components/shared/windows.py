"""What steps with windows check of their lengths."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.errors import Problem
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
