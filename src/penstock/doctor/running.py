"""What can be said of a pipeline that runs, from its batches and reports: pure rules like those over files."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.capacity.figures import byte_size, length, number
from penstock.capacity.fit import MeasuredBatch
from penstock.capacity.fitted import growth
from penstock.doctor.findings import Finding, Severity
from penstock.errors import Location

LEAST_BATCHES = 10
_LATE_SHARE = 0.5
_COMMIT_SHARE = 0.25
_DEAD_SHARE = 0.01
_SINK_SHARE = 0.6
_DAILY_GROWTH = 0.2
_LEAST_STATE = 10_000
_LEAST_FAILURES = 3
_DISK_DAYS = 7.0


@dataclass(frozen=True)
class Vitals:
    """What is known of a pipeline that runs."""

    name: str
    trigger: float
    """Seconds."""
    batches: Sequence[MeasuredBatch]
    """The oldest first."""
    growing: Mapping[str, str] = field(default_factory=dict)
    """What waits, in words, at sources at which ever more waits."""
    rows_in: int = 0
    rows_dead: int = 0
    unbalanced: tuple[int, ...] = ()
    """Batches whose rows do not add up."""
    failed_runs: int = 0
    """In the last day."""
    disk_free: int | None = None

    @property
    def seconds(self) -> float:
        return sum(batch.seconds for batch in self.batches)


Evidence = Mapping[str, Any]


@dataclass(frozen=True)
class RunningRule:
    """One rule. `message` and `fix` are templates over what the check has found."""

    id: str
    severity: Severity
    message: str
    why: str
    fix: str
    check: Callable[[Vitals], Iterator[Evidence]]


def diagnose_running(vitals: Vitals) -> list[Finding]:
    """All rules that a running pipeline breaks. They stand at no line of its file."""
    place = Location(vitals.name, 0, 0)
    return [
        Finding(
            each.id, each.severity, each.message.format_map(found), each.why, each.fix.format_map(found), place, found
        )
        for each in RULES
        for found in each.check(vitals)
    ]


def _lag(vitals: Vitals) -> Iterator[Evidence]:
    yield from ({"source": source, "waiting": waiting} for source, waiting in vitals.growing.items())


def _late_batches(vitals: Vitals) -> Iterator[Evidence]:
    late = [batch for batch in vitals.batches if batch.seconds > vitals.trigger]
    if len(vitals.batches) < LEAST_BATCHES or len(late) <= len(vitals.batches) * _LATE_SHARE:
        return
    median = statistics.median(batch.seconds for batch in vitals.batches)
    yield {
        "share": f"{len(late) / len(vitals.batches):.0%}",
        "trigger": length(vitals.trigger),
        "median": length(median),
    }


def _commits(vitals: Vitals) -> Iterator[Evidence]:
    spent = sum(batch.commit_seconds for batch in vitals.batches)
    if len(vitals.batches) >= LEAST_BATCHES and spent > vitals.seconds * _COMMIT_SHARE:
        each = spent / len(vitals.batches)
        yield {"share": f"{spent / vitals.seconds:.0%}", "each": length(each)}


def _sinks(vitals: Vitals) -> Iterator[Evidence]:
    if len(vitals.batches) < LEAST_BATCHES:
        return
    names = {name for batch in vitals.batches for name in batch.sink_seconds or ()}
    for name in sorted(names):
        spent = sum((batch.sink_seconds or {}).get(name, 0.0) for batch in vitals.batches)
        if spent > vitals.seconds * _SINK_SHARE:
            yield {"sink": name, "share": f"{spent / vitals.seconds:.0%}"}


def _state(vitals: Vitals) -> Iterator[Evidence]:
    found = growth([(batch.at, batch.state_rows) for batch in vitals.batches])
    if found is None or found.now < _LEAST_STATE or found.per_day <= found.now * _DAILY_GROWTH:
        return
    yield {
        "rows": number(round(found.now)),
        "per_day": number(round(found.per_day)),
        "share": f"{found.per_day / found.now:.0%}",
    }


def _disk(vitals: Vitals) -> Iterator[Evidence]:
    found = growth([(batch.at, batch.state_bytes) for batch in vitals.batches])
    if found is None or vitals.disk_free is None or found.per_day <= 0:
        return
    days = vitals.disk_free / found.per_day
    if days < _DISK_DAYS:
        yield {"days": number(days), "per_day": byte_size(found.per_day), "free": byte_size(vitals.disk_free)}


def _dead(vitals: Vitals) -> Iterator[Evidence]:
    if vitals.rows_dead > vitals.rows_in * _DEAD_SHARE:
        share = vitals.rows_dead / max(vitals.rows_in, 1)
        yield {"dead": f"{vitals.rows_dead:,}", "rows": f"{vitals.rows_in:,}", "share": f"{share:.1%}"}


def _balance(vitals: Vitals) -> Iterator[Evidence]:
    if vitals.unbalanced:
        yield {"count": len(vitals.unbalanced), "first": vitals.unbalanced[0]}


def _failures(vitals: Vitals) -> Iterator[Evidence]:
    if vitals.failed_runs >= _LEAST_FAILURES:
        yield {"count": vitals.failed_runs}


RULES: tuple[RunningRule, ...] = (
    RunningRule(
        "lag-growing", Severity.ERROR,
        "ever more waits at source '{source}': {waiting}",
        "It does not keep up with its load. What waits may be removed at the source before it is read.",
        "See what limits it with `penstock capacity NAME`, and give it more cores or a faster sink.",
        _lag,
    ),
    RunningRule(
        "rows-unbalanced", Severity.ERROR,
        "the rows of {count} batches do not add up; the first is batch {first}",
        "Rows were lost or stored twice, or a step gives more or fewer rows than it says.",
        "See `penstock ledger NAME`, and report it.",
        _balance,
    ),
    RunningRule(
        "disk-filling", Severity.ERROR,
        "the disk is full in {days} days: state grows by {per_day} a day, and {free} are free",
        "A batch that cannot write its checkpoint ends the run.",
        "Bound the state, or give it a larger disk.",
        _disk,
    ),
    RunningRule(
        "batches-late", Severity.WARNING,
        "{share} of its batches take longer than the trigger of {trigger}; half of them more than {median}",
        "Rows are not as fresh as the trigger says, and nothing is left to catch up with after an outage.",
        "Write the trigger that it can keep, or give it more cores: `penstock capacity NAME` tells which.",
        _late_batches,
    ),
    RunningRule(
        "state-growing", Severity.WARNING,
        "its state has {rows} rows and grows by {per_day} a day, {share} of it",
        "State that only grows makes checkpoints and restarts slower every day, until memory or disk is full.",
        "Wait until its windows are filled once; if it goes on, see which step it is with `penstock state NAME`.",
        _state,
    ),
    RunningRule(
        "checkpoint-slow", Severity.WARNING,
        "{share} of the time of its batches goes into logs of offsets and commits, {each} in each",
        "Small files are written for every batch; on a slow disk or in an object store rows wait for them.",
        "Write a longer `run.trigger`, or keep the state on a faster disk.",
        _commits,
    ),
    RunningRule(
        "dead-letters-many", Severity.WARNING,
        "{share} of its rows cannot be read: {dead} of {rows}",
        "A format or an expression does not fit what comes; these rows are in no result.",
        "Look at them with `penstock replay dead`, correct the pipeline, and feed them back.",
        _dead,
    ),
    RunningRule(
        "runs-failing", Severity.WARNING,
        "{count} runs have failed in the last day",
        "Each restart takes time in which nothing is processed, and their number in an hour is limited.",
        "See the last errors in `penstock describe NAME`.",
        _failures,
    ),
    RunningRule(
        "sink-slow", Severity.INFO,
        "{share} of the time of its batches goes into sink '{sink}'",
        "More cores do not help where the sink is the limit. Where it takes rows straight from the query, "
        "computing them is part of that time.",
        "Compare with another sink, or look for indexes and locks in the database.",
        _sinks,
    ),
)  # fmt: skip
