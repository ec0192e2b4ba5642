"""What is measured: jobs, who takes part, how many rows each gets, and what is aimed at."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

from benchmarks.environments import python_of
from benchmarks.views import Views

VIEWS = Views(rows=2_000_000, files=40, seconds=7200)
UNIFORM, THIRD = replace(VIEWS, spread="uniform"), replace(VIEWS, spread="third")


@dataclass(frozen=True)
class Entry:
    """One contender in a workload: `small` and `large` are its numbers of rows."""

    name: str
    command: Callable[[], list[str]]
    small: int
    large: int
    dealt: bool = False
    """Whether it reads one file per reader instead of files in order."""
    note: str = ""
    views: Views = VIEWS


@dataclass(frozen=True)
class Target:
    """The rate of `own` is to be at least `ratio` times the rate of `other`."""

    other: str
    ratio: float
    rate: str = "steady"
    """`steady` or `whole`: between the small and the large set when warm, or a whole run with its start."""
    own: str = "penstock"


@dataclass(frozen=True)
class Workload:
    name: str
    title: str
    kind: str
    """What is written: `windows` or `rows`."""
    entries: tuple[Entry, ...]
    targets: tuple[Target, ...]
    missing: tuple[str, ...] = ()
    """Who cannot take part, and why."""

    def quick(self) -> Workload:
        """The same with few rows: whether everything works, not how fast."""
        return replace(self, entries=tuple(replace(entry, small=50_000, large=100_000) for entry in self.entries))

    def only(self, names: list[str]) -> Workload:
        """The same with some contenders; duckdb stays, since answers are compared with its own."""
        return replace(self, entries=tuple(entry for entry in self.entries if entry.name in ("duckdb", *names)))


def _module(python: str, module: str, *arguments: object) -> list[str]:
    return [python, "-m", f"benchmarks.{module}", *(str(argument) for argument in arguments)]


def _penstock(job: str, small: int, large: int, files: int) -> Entry:
    return Entry("penstock", lambda: _module(sys.executable, "pipelines", job, files), small, large)


def _spark(job: str, small: int, large: int, files: int) -> Entry:
    return Entry("spark", lambda: _module(sys.executable, "peers.spark", job, files), small, large)


def _flink(job: str, backend: str, small: int, large: int, note: str = "") -> Entry:
    return Entry(
        f"flink {backend}", lambda: _module(python_of("flink"), "peers.flink", job, backend), small, large, True, note
    )


def _bytewax(small: int, large: int) -> Entry:
    return Entry("bytewax", lambda: _module(python_of("bytewax"), "peers.bytewax_run"), small, large, dealt=True)


def _duckdb(job: str, small: int, large: int) -> Entry:
    return Entry("duckdb", lambda: _module(python_of("duckdb"), "peers.duckdb_batch", job), small, large)


REPORTING = Workload(
    "reporting",
    "count per user and minute",
    "windows",
    (
        _duckdb("reporting", 500_000, 2_000_000),
        _spark("reporting", 500_000, 2_000_000, 10),
        _flink("reporting", "hashmap", 500_000, 2_000_000),
        _flink("reporting", "rocksdb", 500_000, 2_000_000),
        _penstock("reporting", 500_000, 2_000_000, 10),
    ),
    (
        Target("spark", 1.5),
        Target("flink hashmap", 1.5),
        Target("flink rocksdb", 1.5),
        Target("flink hashmap", 1.2, "whole"),
    ),
)
ROLLING = Workload(
    "rolling",
    "for each row: rows and distinct items of its user in the hour before it",
    "rows",
    (
        _duckdb("rolling", 500_000, 2_000_000),
        _flink("rolling", "hashmap", 100_000, 200_000, "fewer rows, so its windows hold fewer: in its favour"),
        _flink("rolling", "rocksdb", 50_000, 100_000, "fewer rows, so its windows hold fewer: in its favour"),
        _bytewax(500_000, 2_000_000),
        _penstock("rolling", 500_000, 2_000_000, 10),
    ),
    (
        Target("flink hashmap", 10),
        Target("flink rocksdb", 10),
        Target("bytewax", 2),
        Target("duckdb", 0.25),
    ),
    ("spark: has no window functions over streams, so it cannot be written",),
)
SLIDING = Workload(
    "sliding",
    "count per user in windows of an hour that start every minute",
    "windows",
    (
        _duckdb("sliding", 100_000, 500_000),
        _spark("sliding", 100_000, 500_000, 2),
        _flink("sliding", "hashmap", 100_000, 500_000),
        _flink("sliding", "rocksdb", 50_000, 100_000, "fewer rows"),
        _penstock("sliding", 100_000, 500_000, 2),
    ),
    (
        Target("spark", 3),
        Target("flink hashmap", 1.5),
        Target("flink rocksdb", 1.5),
    ),
)
SKEW = Workload(
    "skew",
    "count per user and minute: users alike, or a third of the rows on 0.3 % of the users",
    "windows",
    (
        replace(_duckdb("reporting", 500_000, 2_000_000), views=UNIFORM),
        replace(_penstock("reporting", 500_000, 2_000_000, 10), name="penstock, users alike", views=UNIFORM),
        replace(_penstock("reporting", 500_000, 2_000_000, 10), name="penstock, a third on few", views=THIRD),
    ),
    (Target("penstock, users alike", 0.9, own="penstock, a third on few"),),
)
LATE = Workload(
    "late",
    "count per user and minute of a clean stream: late rows would be dropped, or kept and fed again",
    "windows",
    (
        _duckdb("reporting", 500_000, 2_000_000),
        replace(_penstock("reporting", 500_000, 2_000_000, 10), name="penstock, late: drop"),
        replace(_penstock("reporting-late", 500_000, 2_000_000, 10), name="penstock, late: side"),
    ),
    (Target("penstock, late: drop", 0.9, own="penstock, late: side"),),
)
WORKLOADS = {workload.name: workload for workload in (REPORTING, LATE, SKEW, ROLLING, SLIDING)}
