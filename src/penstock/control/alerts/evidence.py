"""Sentences that say what was measured, for people."""

from __future__ import annotations

import math

from penstock.spec.conditions import MEASURES, Condition, Quantity, in_words

_TIMES = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB")
_COMPARED = {">": "more than", ">=": "at least", "<": "less than", "<=": "at most", "==": "exactly", "!=": "not"}


def evidence(condition: Condition, value: float | str | None, reason: str = "") -> str:
    """Such as `watermark_lag is 7 min 11 s, more than 5 minutes`; a health comes with its reason."""
    if isinstance(value, str):
        return f"{condition.subject} is {value}" + (f": {reason}" if reason else "")
    if value is None:
        return f"{condition.subject} is not measured"
    threshold = in_words(condition.measure, condition.threshold)
    return f"{condition.subject} is {shown(condition.measure, value)}, {_COMPARED[condition.operator]} {threshold}"


def after_all(condition: Condition, value: float | str | None) -> str:
    """What was measured when an alert is over."""
    if value is None:
        return f"{condition.subject} is not measured any more"
    return f"{condition.subject} is {value if isinstance(value, str) else shown(condition.measure, value)}"


def shown(measure: str, value: float) -> str:
    """A value, rounded as people say it."""
    if math.isinf(value):
        return "without end"
    quantity = MEASURES[measure].quantity
    if quantity is Quantity.DURATION:
        return _time(value)
    if quantity is Quantity.SIZE:
        return _size(value)
    if quantity is Quantity.SHARE:
        return f"{value * 100:.3g}%"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def _time(seconds: float) -> str:
    """The two largest units."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    left = round(seconds)
    parts: list[tuple[int, str]] = []
    for name, size in _TIMES:
        count, left = divmod(left, size)
        if count or parts:
            parts.append((count, name))
    return " ".join(f"{count} {name}" for count, name in parts[:2] if count)


def _size(count: float) -> str:
    power = 0
    while count >= 1024 and power < len(_SIZES) - 1:
        count, power = count / 1024, power + 1
    return f"{count:.3g} {_SIZES[power]}" if count < 1000 else f"{count:.0f} {_SIZES[power]}"
