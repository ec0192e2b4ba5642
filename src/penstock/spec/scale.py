"""`scale` of a pipeline: how many cores it may have, and by which rules their number is chosen."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationInfo, field_validator

from penstock.spec.fields import Change, Config, field, unfit
from penstock.spec.units import Duration, Parsed

_RANGE = re.compile(r"([01]\d|2[0-3]):([0-5]\d)\s*-\s*([01]\d|2[0-3]):([0-5]\d)")
_NOTHING = Change.NOTHING


@dataclass(frozen=True, order=True)
class DailyTime(Parsed):
    """A time of each day in UTC, written as `08:00-10:30`; one whose end is before its start goes over midnight."""

    start: int
    """Minutes from midnight."""
    end: int

    @classmethod
    def parse(cls, value: Any) -> DailyTime:
        if isinstance(value, DailyTime):
            return value
        found = _RANGE.fullmatch(value.strip()) if isinstance(value, str) else None
        if found is None:
            raise ValueError(f"'{value}' is not a time of day; write for example '08:00-10:30', in UTC")
        start, end = int(found[1]) * 60 + int(found[2]), int(found[3]) * 60 + int(found[4])
        if start == end:
            raise ValueError(f"'{value}' ends when it begins")
        return cls(start, end)

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^{_RANGE.pattern}$", "examples": ["08:00-10:30"]}

    def __str__(self) -> str:
        return "-".join(f"{minutes // 60:02}:{minutes % 60:02}" for minutes in (self.start, self.end))


class ScaleSettings(Config):
    """How many cores a pipeline may have. The server advises a number and says why; it does not change it itself."""

    min: int = field(ge=1, le=10_000, change=_NOTHING, doc="The fewest cores.")
    max: int = field(ge=1, le=10_000, change=_NOTHING, doc="The most cores.")
    utilisation: float = field(
        0.7, ge=0.3, le=0.95, change=_NOTHING,
        doc="The share of the time in which cores should be busy. Nothing is advised within 0.2 of it.",
    )  # fmt: skip
    catch_up: Duration = field(
        Duration(1_800_000), change=_NOTHING, doc="In which time rows that wait should be worked off."
    )
    stabilisation: Duration = field(
        Duration(300_000), change=_NOTHING, doc="How long after a start nothing is judged, and over which time load is."
    )
    down_after: Duration = field(
        Duration(3_600_000), change=_NOTHING, doc="How long fewer cores must have been enough."
    )
    max_per_day: int = field(
        8, ge=1, le=100, change=_NOTHING, doc="Changes in 24 hours at most; the last two are kept for more cores."
    )
    excluded: tuple[DailyTime, ...] = field(
        (), change=_NOTHING, doc="Times of day in UTC at which nothing is to be changed, such as `08:00-10:30`."
    )

    @field_validator("max")
    @classmethod
    def _is_not_less_than_min(cls, value: int, info: ValidationInfo) -> int:
        least = info.data.get("min")
        if isinstance(least, int) and value < least:
            raise unfit(f"must not be less than `min`, which is {least}", "Swap them, or write the same number twice.")
        return value

    @field_validator("catch_up", "stabilisation")
    @classmethod
    def _is_some_time(cls, value: Duration) -> Duration:
        if value.millis < 10_000:
            raise unfit("must be at least 10 seconds", "Write for example `5 minutes`.")
        return value
