"""What conditions are held against: the values of one pipeline at one moment."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.reports.values import BatchLine, RunStatus
from penstock.spec.conditions import Condition

RECENT_ROWS = dt.timedelta(minutes=10)
"""Over which time shares of rows are taken."""
RECENT_TROUBLE = dt.timedelta(hours=1)
"""Over which time restarts and batches that do not add up are counted."""
_NOTHING_TO_DO = ("IDLE", "STOPPING", "STOPPED")

Value = float | str | None
_Values = Value | Mapping[str, float]


@dataclass(frozen=True)
class Sample:
    """What is known of a pipeline at a moment; the times of `RECENT_ROWS` and `RECENT_TROUBLE` end there."""

    now: dt.datetime
    health: str
    wanted_since: dt.datetime | None
    """Since when it is meant to run; None if it is not."""
    status: RunStatus | None = None
    last_batch: BatchLine | None = None
    last_commit: dt.datetime | None = None
    """When a batch was committed last, by whichever run."""
    restarts: int = 0
    unbalanced: int = 0
    rows_in: int = 0
    rows_dead: int = 0
    rows_late: int = 0


def value_of(condition: Condition, sample: Sample) -> Value:
    """What a condition watches; None if it cannot be measured now, as of a pipeline that is not meant to run."""
    if sample.wanted_since is None:
        return None
    found = _MEASURES[condition.measure](sample)
    if not isinstance(found, Mapping):
        return found
    return found.get(condition.node) if condition.node else max(found.values(), default=None)


def _watermark_lag(sample: Sample) -> Mapping[str, float]:
    status = sample.status
    if status is None or status.history is not None or sample.health in _NOTHING_TO_DO:
        return {}
    now = sample.now.timestamp()
    return {source: max(0.0, now - millis / 1000) for source, millis in status.watermarks.items() if millis > 0}


def _commit_age(sample: Sample) -> Value:
    if sample.health in _NOTHING_TO_DO or sample.wanted_since is None:
        return None
    started = sample.wanted_since
    return max(0.0, (sample.now - max(started, sample.last_commit or started)).total_seconds())


def _backlog(sample: Sample) -> _Values:
    return {} if sample.status is None else {name: float(at.amount) for name, at in sample.status.backlog.items()}


def _catch_up(sample: Sample) -> _Values:
    if sample.status is None:
        return {}
    return {name: math.inf if left is None else left for name, left in sample.status.caught_up_in.items()}


def _batch_duration(sample: Sample) -> Value:
    last = sample.status.last_batch if sample.status else None
    return None if last is None else last.duration_ms / 1000


def _sink_duration(sample: Sample) -> _Values:
    return {} if sample.last_batch is None else {name: ms / 1000 for name, ms in sample.last_batch.sink_ms.items()}


def _share(part: int, rows: int) -> Value:
    return part / rows if rows > 0 else None


def _of_status(pick: Callable[[RunStatus], float | None]) -> Callable[[Sample], Value]:
    def of(sample: Sample) -> Value:
        value = None if sample.status is None else pick(sample.status)
        return None if value is None else float(value)

    return of


_MEASURES: dict[str, Callable[[Sample], _Values]] = {
    "watermark_lag": _watermark_lag,
    "commit_age": _commit_age,
    "backlog": _backlog,
    "catch_up": _catch_up,
    "batch_duration": _batch_duration,
    "sink_duration": _sink_duration,
    "rows_per_second": _of_status(lambda status: status.rows_per_second),
    "restarts": lambda sample: float(sample.restarts),
    "dead_share": lambda sample: _share(sample.rows_dead, sample.rows_in),
    "late_share": lambda sample: _share(sample.rows_late, sample.rows_in),
    "ledger_unbalanced": lambda sample: float(sample.unbalanced),
    "disk_free": _of_status(lambda status: status.disk_free),
    "state_rows": _of_status(lambda status: status.state_rows),
    "state_bytes": _of_status(lambda status: status.state_bytes),
    "checkpoint_bytes": _of_status(lambda status: status.checkpoint_bytes),
    "health": lambda sample: sample.health,
}
