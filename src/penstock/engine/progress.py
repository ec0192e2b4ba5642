"""What a running pipeline reports about itself, as plain values made from Spark's reports and the ledger."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from penstock.components.base import Backlog
from penstock.engine.ledger import BatchEntry

UTC = dt.UTC


@dataclass(frozen=True)
class BatchReport:
    """One finished batch as Spark reports it."""

    batch: int
    at: dt.datetime
    duration_ms: int
    rows: int
    rows_per_second: float
    watermark: dt.datetime | None
    phases_ms: Mapping[str, int]
    state_rows: int
    state_bytes: int
    late_rows: int
    sources: Mapping[str, Mapping[str, Any]]
    sink_ms: Mapping[str, int] = field(default_factory=dict)
    sink_retries: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Ended:
    """A finished batch: what Spark reports of it, and what became of its rows."""

    report: BatchReport
    entry: BatchEntry


@dataclass(frozen=True)
class Headway:
    """How far it is through something that has an end."""

    done: int
    total: int
    seconds_left: float | None = None
    """None as long as it cannot be told."""


@dataclass(frozen=True)
class Status:
    """The whole of a run so far; `earlier_rows` came in during runs before it."""

    pipeline: str
    phase: str
    started: dt.datetime
    batches: int = 0
    earlier_rows: int = 0
    rows_in: Mapping[str, int] = field(default_factory=dict)
    rows_dead: Mapping[str, int] = field(default_factory=dict)
    rows_out: Mapping[str, int] = field(default_factory=dict)
    late: Mapping[str, int] = field(default_factory=dict)
    """Results that rows came too late for, by step."""
    watermarks: Mapping[str, int] = field(default_factory=dict)
    """The watermark of each source in milliseconds since 1970."""
    last: BatchReport | None = None
    backlog: Mapping[str, Backlog] = field(default_factory=dict)
    caught_up_in: Mapping[str, float] = field(default_factory=dict)
    """Seconds until nothing waits at a source any more, at the pace of the last while; infinite if ever more waits."""
    recent_rates: tuple[float, ...] = ()
    history: Headway | None = None
    """While history is read: how many of its rows have been."""
    filtered: Mapping[str, int] = field(default_factory=dict)
    epoch: int = 0
    careful: bool = False
    """Whether rows on which an expression fails are set aside."""
    sink_retries: Mapping[str, int] = field(default_factory=dict)
    ended: tuple[Ended, ...] = ()
    """The batches that have finished since the status before this one."""

    def lag(self, now: dt.datetime) -> dt.timedelta | None:
        """How far the watermark is behind the clock."""
        if self.last is None or self.last.watermark is None:
            return None
        return now - self.last.watermark


_WHILE = 60.0


@dataclass(frozen=True)
class Waiting:
    """How much waited at a source, at times by a clock that only goes forward."""

    seen: tuple[tuple[float, int], ...] = ()

    def noted(self, now: float, amount: int) -> Waiting:
        recent = tuple(item for item in self.seen if now - item[0] <= _WHILE)
        return Waiting((*recent, (now, amount)))

    @property
    def seconds_left(self) -> float | None:
        """None if nothing waits, or if it cannot be told yet."""
        if len(self.seen) < 2 or self.seen[-1][1] == 0:
            return None
        (first, before), (last, now) = self.seen[0], self.seen[-1]
        if before <= now:
            return float("inf") if before < now else None
        return now * (last - first) / (before - now)


def progress_after(batch: int, kept: Sequence[Any]) -> list[dict[str, Any]]:
    """The reports of later batches among the last hundred, which Spark keeps in the JVM; only these are fetched."""
    newest = takewhile(lambda item: item.batchId() > batch, (kept[place] for place in reversed(range(len(kept)))))
    return [json.loads(item.json()) for item in newest][::-1]


def batch_report(progress: Mapping[str, Any], source_names: list[str]) -> BatchReport:
    """Reads one of Spark's progress reports; `source_names` are in the order of the plan."""
    operators = progress.get("stateOperators") or []
    return BatchReport(
        batch=int(progress["batchId"]),
        at=_time(progress["timestamp"]),
        duration_ms=_length(progress.get("batchDuration", 0)),
        rows=int(progress.get("numInputRows", 0)),
        rows_per_second=max(float(progress.get("processedRowsPerSecond") or 0.0), 0.0),
        watermark=_watermark(progress.get("eventTime") or {}),
        phases_ms={name: _length(value) for name, value in (progress.get("durationMs") or {}).items()},
        state_rows=sum(int(operator.get("numRowsTotal", 0)) for operator in operators),
        state_bytes=sum(int(operator.get("memoryUsedBytes", 0)) for operator in operators),
        late_rows=sum(int(operator.get("numRowsDroppedByWatermark", 0)) for operator in operators),
        sources=_by_name(progress.get("sources") or [], source_names),
    )


def _length(millis: int) -> int:
    """Spark takes the time by the time of day: it is negative where the clock was set back in between."""
    return max(int(millis), 0)


def _by_name(reports: list[Mapping[str, Any]], names: list[str]) -> dict[str, Mapping[str, Any]]:
    # Without one report for each source it cannot be told which is which.
    return dict(zip(names, reports, strict=True)) if len(reports) == len(names) else {}


def _watermark(event_time: Mapping[str, str]) -> dt.datetime | None:
    text = event_time.get("watermark")
    if text is None:
        return None
    time = _time(text)
    return None if time.timestamp() <= 0 else time


def _time(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)
