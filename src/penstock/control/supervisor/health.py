"""How well a run does, told by its progress and with evidence. Pure: what is known comes in, time is passed in.

A process that lives proves nothing. RUNNING means that batches are committed and the watermark advances; IDLE that
there is nothing to read; everything else says what stands still, is slow or is behind, and since when.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from penstock.control.supervisor.ports import State
from penstock.reports.values import BacklogReport, BatchLine, RunStatus

SILENT = dt.timedelta(seconds=15)
"""Without a sign of life for so long a run is STALLED."""
STARTING = dt.timedelta(minutes=5)
STANDING = dt.timedelta(seconds=60)
"""The least time without a batch, while there is something to read, that counts as standing still."""
WATERMARK_STANDING = dt.timedelta(minutes=10)
BEHIND = dt.timedelta(seconds=10)
"""A backlog that is gone sooner than this is ordinary work."""
LOW_DISK = 500_000_000
_BATCHES_KEPT = 60
_NEWEST = 5
_SLOW_MS = 1000
_SLOWER = 3.0
_STARTING_PHASES = ("starting", "starting Spark", "sorting history")
_ENDED_PHASES = ("stopped", "done", "failed")


@dataclass(frozen=True)
class Health:
    """The state of a run and what shows it, in one sentence."""

    state: State
    evidence: str
    seconds_left: float | None = None
    """Until it has caught up, where that can be told."""


@dataclass(frozen=True)
class Trail:
    """What a run has shown so far. All times are those of the clock of who watches."""

    first: dt.datetime
    heard: dt.datetime
    """When its status last changed."""
    moved: dt.datetime
    """When it last finished a batch, or had nothing to read."""
    watermark_moved: dt.datetime
    status: RunStatus | None = None
    batches: tuple[BatchLine, ...] = ()
    rows_since_watermark: int = field(default=0)


STOPS = Health("STOPPING", "it finishes its batch and stops")


def begin(now: dt.datetime) -> Trail:
    return Trail(now, now, now, now)


def follow(trail: Trail, status: RunStatus | None, lines: Sequence[BatchLine], now: dt.datetime) -> Trail:
    """The trail with what was seen now."""
    if lines:
        trail = replace(trail, batches=(*trail.batches, *lines)[-_BATCHES_KEPT:])
    if status is None or status == trail.status:
        return trail
    before = trail.status
    moved = before is None or status.batches != before.batches or _number(status) != _number(before)
    advanced = before is None or status.watermark != before.watermark or status.phase == "reading history"
    rows = sum(line_rows for line in lines for line_rows in line.rows_in.values())
    return replace(
        trail,
        status=status,
        heard=now if before is None or status.at != before.at else trail.heard,
        moved=now if moved or _nothing_to_read(status) else trail.moved,
        watermark_moved=now if advanced else trail.watermark_moved,
        rows_since_watermark=0 if advanced else trail.rows_since_watermark + rows,
    )


def judge(trail: Trail, now: dt.datetime) -> Health:
    """How the run is; the most pressing thing first."""
    status = trail.status
    if status is not None and status.phase in ("stopping", *_ENDED_PHASES):
        return STOPS
    for look in (_silence, _start, _standing, _degraded, _behind):
        found = look(trail, now)
        if found is not None:
            return found
    assert status is not None
    if _nothing_to_read(status):
        return Health("IDLE", f"there is nothing to read; {_last(status)}")
    return Health("RUNNING", _last(status))


def _silence(trail: Trail, now: dt.datetime) -> Health | None:
    silent = now - trail.heard
    if trail.status is None or silent < SILENT:
        return None
    return Health("STALLED", f"no sign of life for {span(silent)}; before that it was {trail.status.phase}")


def _start(trail: Trail, now: dt.datetime) -> Health | None:
    status = trail.status
    if status is not None and status.phase == "running" and status.last_batch is None and not status.batches:
        return Health("STARTING", "its first batch has not finished yet") if now - trail.first < STARTING else None
    if status is not None and (status.phase not in _STARTING_PHASES or status.last_batch is not None):
        return None
    took = now - trail.first
    if status is not None and status.phase == "sorting history":
        return Health("CATCHING_UP", f"history is being sorted for {span(took)}")
    if took >= STARTING:
        phase = "not reported anything" if status is None else f"been {status.phase}"
        return Health("STALLED", f"it has {phase} for {span(took)}")
    return Health("STARTING", "its process starts" if status is None else status.phase)


def _standing(trail: Trail, now: dt.datetime) -> Health | None:
    status = trail.status
    assert status is not None
    stands, limit = now - trail.moved, _patience(trail)
    if stands < limit:
        return None
    waiting = _waiting(status)
    what = f"{waiting} wait" if waiting else f"it is {status.phase}"
    if status.phase == "waiting for data" and waiting:
        what = f"{waiting} wait and are not read"
    if status.turned_at is not None and status.at - status.turned_at >= STANDING:
        what = f"its driver hangs for {span(status.at - status.turned_at)}"
    return Health("STALLED", f"no batch has finished for {span(stands)}, and {what}")


def _patience(trail: Trail) -> dt.timedelta:
    """How long a batch may take before it is strange: ten times as long as they took, or were to be apart."""
    assert trail.status is not None
    usual = median(line.duration_ms for line in trail.batches) if trail.batches else 0
    usual = max(usual, trail.status.trigger_ms)
    # The first batch may have much to read, and Spark compiles it.
    least = STANDING if trail.batches else STARTING
    return max(least, dt.timedelta(milliseconds=10 * usual))


def _degraded(trail: Trail, now: dt.datetime) -> Health | None:
    status = trail.status
    assert status is not None
    newest = trail.batches[-_NEWEST:]
    evidence = (
        _unbalanced(newest)
        or _slow_sink(trail.batches)
        or _retrying(newest)
        or _mostly_dead(newest)
        or _stuck_watermark(trail, now)
        or _falling_behind(status)
        or _full(status)
    )
    return None if evidence is None else Health("DEGRADED", evidence)


def _unbalanced(newest: Sequence[BatchLine]) -> str | None:
    wrong = [line.batch for line in newest if not line.balanced]
    return f"the rows of batch {wrong[-1]} do not add up" if wrong else None


def _slow_sink(batches: Sequence[BatchLine]) -> str | None:
    """A sink that takes most of the time of each batch, and much longer than it did."""
    newest, before = batches[-_NEWEST:], batches[:-_NEWEST]
    if len(newest) < _NEWEST or len(before) < _NEWEST:
        return None
    for sink in newest[-1].sink_ms:
        now = median(line.sink_ms.get(sink, 0) for line in newest)
        usual = median(line.sink_ms.get(sink, 0) for line in before)
        took = median(line.duration_ms for line in newest)
        if now >= _SLOW_MS and now > _SLOWER * usual and 2 * now > took and not _more_rows(newest, before):
            return f"sink '{sink}' takes {now / 1000:.1f} s for a batch, it took {usual / 1000:.1f} s before"
    return None


def _more_rows(newest: Sequence[BatchLine], before: Sequence[BatchLine]) -> bool:
    """Whether batches have grown by as much as would explain that they take longer."""

    def usual(lines: Sequence[BatchLine]) -> float:
        return median(sum(line.rows_in.values()) for line in lines)

    return usual(newest) > _SLOWER * max(usual(before), 1)


def _retrying(newest: Sequence[BatchLine]) -> str | None:
    retries: dict[str, int] = {}
    for line in newest:
        for sink, count in line.sink_retries.items():
            retries[sink] = retries.get(sink, 0) + count
    if not retries:
        return None
    sink = max(retries, key=lambda name: retries[name])
    return f"sink '{sink}' had to try again {_times(retries[sink])} in the last {len(newest)} batches"


def _mostly_dead(newest: Sequence[BatchLine]) -> str | None:
    read = sum(sum(line.rows_in.values()) for line in newest)
    dead = sum(sum(line.dead.values()) for line in newest)
    if dead * 2 <= read or dead < 10:
        return None
    return f"{dead:,} of the last {read:,} rows could not be used"


def _stuck_watermark(trail: Trail, now: dt.datetime) -> str | None:
    status = trail.status
    stands = now - trail.watermark_moved
    if status is None or status.watermark is None or not trail.rows_since_watermark or stands < WATERMARK_STANDING:
        return None
    slowest = min(status.watermarks, key=lambda name: status.watermarks[name], default=None)
    source = f"; source '{slowest}' is the furthest behind" if slowest and len(status.watermarks) > 1 else ""
    return f"rows come in, and the watermark has not moved for {span(stands)}{source}"


def _falling_behind(status: RunStatus) -> str | None:
    for source, seconds in status.caught_up_in.items():
        waiting = status.backlog.get(source)
        if seconds is None and waiting is not None and waiting.amount > _ordinary(status, waiting):
            return f"ever more waits at source '{source}': {waiting.amount:,} {waiting.unit} by now"
    return None


def _ordinary(status: RunStatus, waiting: BacklogReport) -> float:
    """So much may wait without meaning anything: what is read in a few seconds anyway."""
    return 0.0 if waiting.unit == "files" else status.rows_per_second * BEHIND.total_seconds()


def _is_little(status: RunStatus, source: str) -> bool:
    """Whether no more waits than comes in a second."""
    waiting = status.backlog.get(source)
    return waiting is not None and waiting.unit != "files" and waiting.amount <= status.rows_per_second


def _full(status: RunStatus) -> str | None:
    if status.disk_free is None or status.disk_free >= LOW_DISK:
        return None
    return f"only {status.disk_free // 1_000_000:,} MB are free on the disk of its state"


def _behind(trail: Trail, now: dt.datetime) -> Health | None:
    status = trail.status
    assert status is not None
    if status.history is not None:
        done, total, left = status.history.done, status.history.total, status.history.seconds_left
        rest = f", about {span(dt.timedelta(seconds=left))} left" if left is not None else ""
        return Health("CATCHING_UP", f"history is read: {done:,} of {total:,} rows{rest}", left)
    times = ((name, seconds) for name, seconds in status.caught_up_in.items() if seconds is not None)
    left = max((seconds for name, seconds in times if not _is_little(status, name)), default=0.0)
    if dt.timedelta(seconds=left) < max(BEHIND, dt.timedelta(milliseconds=3 * status.trigger_ms)):
        return None
    return Health(
        "CATCHING_UP", f"{_waiting(status)} wait; caught up in about {span(dt.timedelta(seconds=left))}", left
    )


def _nothing_to_read(status: RunStatus) -> bool:
    return status.phase == "waiting for data" and not any(item.amount for item in status.backlog.values())


def _waiting(status: RunStatus) -> str:
    return ", ".join(f"{item.amount:,} {item.unit} at '{name}'" for name, item in status.backlog.items() if item.amount)


def _number(status: RunStatus) -> int | None:
    return None if status.last_batch is None else status.last_batch.batch


def _last(status: RunStatus) -> str:
    if status.last_batch is None:
        # It is counted a moment before Spark reports it.
        return "its first batch has finished" if status.batches else "no batch yet"
    rate = f", {status.rows_per_second:,.0f} rows/s" if status.rows_per_second else ""
    return f"batch {status.last_batch.batch} took {status.last_batch.duration_ms / 1000:.1f} s{rate}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


_UNITS: Mapping[str, int] = {"d": 86_400, "h": 3600, "min": 60, "s": 1}


def span(time: dt.timedelta) -> str:
    """A span as people say it: 12 s, 4 min, 3 h 2 min."""
    left = max(int(time.total_seconds()), 0)
    parts = []
    for unit, seconds in _UNITS.items():
        if left >= seconds:
            parts.append(f"{left // seconds} {unit}")
            left %= seconds
    return " ".join(parts[:2]) or "0 s"
