"""Conditions of alerts such as `watermark_lag > 5 minutes`: what can be watched, and how it is written."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any, Literal

from penstock.errors import did_you_mean
from penstock.spec.fields import unfit
from penstock.spec.units import Duration, Parsed, Size

HEALTH = (
    "STARTING", "RUNNING", "IDLE", "CATCHING_UP", "DEGRADED", "STALLED", "STOPPING", "STOPPED", "BACKING_OFF", "FAILED",
    "SAVING", "RESTORING", "RESCALING", "UPGRADING",
)  # fmt: skip
"""What the health of a pipeline can be."""


class Quantity(StrEnum):
    """What is measured, and thereby how it is written and in which unit it is compared."""

    DURATION = "duration"  # seconds
    SIZE = "size"  # bytes
    COUNT = "number"
    SHARE = "share"  # 0 to 1
    HEALTH = "health"


@dataclass(frozen=True)
class Measure:
    """Something of a running pipeline that a condition can watch."""

    name: str
    quantity: Quantity
    doc: str
    of: Literal["source", "sink"] | None = None
    """Of which nodes there is one each; without a node the largest counts."""


MEASURES = {
    measure.name: measure
    for measure in (
        Measure(
            "watermark_lag", Quantity.DURATION,
            "How far the watermark is behind the clock. Not measured while there is nothing to read, and while "
            "history is read.", of="source",
        ),
        Measure(
            "commit_age", Quantity.DURATION,
            "How long ago the last batch was committed, or the pipeline was started if none was yet. Not measured "
            "while there is nothing to read.",
        ),
        Measure("backlog", Quantity.COUNT, "What waits at a source: messages, rows or files.", of="source"),
        Measure("catch_up", Quantity.DURATION, "How long catching up takes at the present pace.", of="source"),
        Measure("batch_duration", Quantity.DURATION, "How long the last batch took."),
        Measure("sink_duration", Quantity.DURATION, "How long a sink took to store the last batch.", of="sink"),
        Measure("rows_per_second", Quantity.COUNT, "Rows read in a second, over the last batches."),
        Measure("restarts", Quantity.COUNT, "How often it was started again after a failure, in the last hour."),
        Measure("dead_share", Quantity.SHARE, "Dead letters among the rows read in the last ten minutes."),
        Measure("late_share", Quantity.SHARE, "Late rows among the rows read in the last ten minutes."),
        Measure("ledger_unbalanced", Quantity.COUNT, "Batches of the last hour whose counts do not add up."),
        Measure("disk_free", Quantity.SIZE, "Free space on the disk of the state folder."),
        Measure("state_rows", Quantity.COUNT, "Rows that stateful steps keep."),
        Measure("state_bytes", Quantity.SIZE, "Memory that their state takes."),
        Measure("checkpoint_bytes", Quantity.SIZE, "Size of the checkpoint on disk."),
        Measure("health", Quantity.HEALTH, f"What the supervisor finds: {', '.join(HEALTH)}."),
    )
}  # fmt: skip

_SHAPE = re.compile(r"\s*(\w+)(?:\s*\(\s*(\w+)\s*\))?\s*(>=|<=|==|!=|>|<|=)\s*(|\S.*)", re.DOTALL)
_NUMBER = re.compile(r"(\d[\d_]*(?:\.\d+)?)\s*(%?)")
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_OF_HEALTH = ("==", "!=")
_EXAMPLE = "Write for example `watermark_lag > 5 minutes`."
_VALUES = {
    Quantity.DURATION: "a duration such as `5 minutes`",
    Quantity.SIZE: "a size such as `10 GiB`",
    Quantity.COUNT: "a number such as `1000`",
    Quantity.SHARE: "a share such as `1%`, and at most 100%",
    Quantity.HEALTH: "a health",
}


@dataclass(frozen=True)
class Condition(Parsed):
    """What is watched and from where on it counts, such as `watermark_lag > 5 minutes` or `backlog(views) > 1000`."""

    measure: str
    operator: str
    threshold: float | str
    """Seconds, bytes, a number, a share from 0 to 1, or a health."""
    node: str | None = None

    @classmethod
    def parse(cls, value: Any) -> Condition:
        if isinstance(value, Condition):
            return value
        if not isinstance(value, str):
            raise unfit("a condition is a text", _EXAMPLE)
        shape = _SHAPE.fullmatch(value.strip())
        if shape is None:
            raise unfit(f"'{value}' is not a condition", _EXAMPLE)
        name, node, sign, text = shape.groups()
        measure = MEASURES.get(name)
        if measure is None:
            raise unfit(f"'{name}' cannot be watched", did_you_mean(name, MEASURES))
        if node is not None and measure.of is None:
            raise unfit(f"there is one {name} of the whole pipeline", f"Write `{name} {sign} {text}`.")
        return cls(name, _operator(measure, sign), _threshold(measure, text), node)

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        pattern = rf"^\s*({'|'.join(MEASURES)})\s*(\(\s*\w+\s*\)\s*)?(>=|<=|==|!=|>|<)\s*\S"
        examples = ["watermark_lag > 5 minutes", "dead_share > 1%", "disk_free < 10 GiB", "backlog(views) > 100000"]
        return {"type": "string", "pattern": pattern, "examples": examples}

    def holds(self, value: float | str | None) -> bool:
        """Whether a measured value meets it; what could not be measured does not."""
        return value is not None and _OPERATORS[self.operator](value, self.threshold)

    @property
    def subject(self) -> str:
        """What is watched, as it is written."""
        return f"{self.measure}({self.node})" if self.node else self.measure

    def __str__(self) -> str:
        return f"{self.subject} {self.operator} {in_words(self.measure, self.threshold)}"


def in_words(measure: str, value: float | str) -> str:
    """A value of a measure as conditions write it."""
    quantity = MEASURES[measure].quantity
    if isinstance(value, str):
        return value
    if quantity is Quantity.DURATION:
        return str(Duration(round(value * 1000)))
    if quantity is Quantity.SIZE:
        return str(Size(round(value)))
    if quantity is Quantity.SHARE:
        return f"{_plain(Decimal(repr(value)) * 100)}%"
    return _plain(Decimal(repr(value)))


def _operator(measure: Measure, sign: str) -> str:
    if sign == "=":
        raise unfit("`=` does not compare", "Write `==`.")
    if measure.quantity is Quantity.HEALTH and sign not in _OF_HEALTH:
        raise unfit(f"a health cannot be compared with `{sign}`", "Write for example `health == STALLED`.")
    return sign


def _threshold(measure: Measure, text: str) -> float | str:
    """The value that a text stands for, in the unit of comparison."""
    quantity = measure.quantity
    if quantity is Quantity.HEALTH:
        if text.upper() not in HEALTH:
            raise unfit(f"'{text}' is not a health", did_you_mean(text.upper(), HEALTH))
        return text.upper()
    try:
        if quantity is Quantity.DURATION:
            return Duration.parse(text).seconds
        if quantity is Quantity.SIZE:
            return float(Size.parse(text).bytes)
        return _number(text, percent=quantity is Quantity.SHARE)
    except ValueError:
        reason = f"'{text}' cannot be compared with {measure.name}"
        raise unfit(reason, f"{measure.name} is compared with {_VALUES[quantity]}.") from None


def _number(text: str, *, percent: bool) -> float:
    shape = _NUMBER.fullmatch(text)
    if shape is None or (shape[2] and not percent):
        raise ValueError(text)
    value = Decimal(shape[1].replace("_", "")) / (100 if shape[2] else 1)
    if percent and value > 1:
        raise ValueError(text)
    return float(value)


def _plain(value: Decimal) -> str:
    """A number without an exponent and without zeros that say nothing."""
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
