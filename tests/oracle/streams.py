"""Streams for differential tests: rows drawn by chance, cut into batches, with a crash or a stop on the way.

A pipeline is run over a stream on Spark; afterwards its ledger says which rows came in which batch, and Spark's log
which watermark each batch had. Plain Python is then asked, batch by batch, what each step must have given.
"""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import patch

from tests.kernels.window_oracle import comparable

from penstock.components.shared.crashpoints import POINTS
from penstock.testing import Harness
from penstock.testing.harness import END_OF_TIME

Row = dict[str, Any]
SECOND = 1_000_000
START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
START_MICROS = int(START.timestamp()) * SECOND
NEVER = -(1 << 62)
END = int(END_OF_TIME.timestamp()) * 1_000_000
"""The watermark before there is one."""
SIDE_BY_SIDE = 7
"""How many streams, each with its own keys and its own habits, are drawn for one query: starting one is what costs."""
HEAD = "apiVersion: penstock/v1\nkind: Pipeline\nmetadata: {name: oracle}\nspec:\n  sources:\n"
SOURCE = """\
    {name}:
      memory: {{schema: {{{schema}}}}}
      eventTime: {{column: ts, maxDelay: {delay} seconds}}
"""


@dataclass(frozen=True)
class Feed:
    """Rows that are handed to the sources together, as one batch, and what happens then."""

    rows: Mapping[str, Sequence[Row]]
    then: str
    """`go on`: the next ones follow at once; `stop`: all are processed before; `point@batch`: the run dies there."""


@dataclass(frozen=True)
class Moment:
    """One batch as it was: its rows, the watermark that judged them, and the watermark that closed results."""

    number: int
    rows: Mapping[str, Sequence[Row]]
    before: int
    watermark: int


@dataclass(frozen=True)
class Verdict:
    """What a step must have given in a batch, how many results rows came too late for, and how many it cannot use."""

    rows: list[Row]
    late: int
    dead: int = 0


class Judge(Protocol):
    """Knows what a step must give in each batch; is asked once for each, in their order."""

    def batch(self, moment: Moment) -> Verdict: ...


@dataclass(frozen=True)
class Step:
    """A step under test: its name and YAML, and who knows what it must give."""

    name: str
    text: str
    judge: Judge | None
    """None for a step that only others read; it has no sink."""


class Drawn(Protocol):
    def __call__(self, chance: random.Random, number: int) -> Row:
        """The columns of a row beside its time."""


@dataclass
class Times:
    """Times that mostly go forward: with ties, jumps, rows out of order within the delay, and late ones."""

    chance: random.Random
    delay: int
    now: int = 100

    def next(self, late: float) -> int:
        chance = self.chance
        self.now += chance.choice([0, 0, 0, 1, 1, 2]) if chance.random() < 0.97 else chance.choice([15, 40])
        lag = chance.choice([0, 0, 0, chance.randint(0, self.delay)])
        if chance.random() < late:
            lag = chance.randint(0, 90)
        micros = START_MICROS + (self.now - lag) * SECOND
        # A microsecond more than the delay would be late.
        return micros + chance.choice([0, 0, 0, 0, 1, 999, SECOND // 2, -1 if lag < self.delay else 0])


def draw_feeds(chance: random.Random, sources: Mapping[str, Drawn], delay: int, *, late: bool) -> list[Feed]:
    """A few batches for these sources; a column `k` gets keys of its own for each of the streams side by side."""
    times, number = Times(chance, delay), 0
    habits = [chance.choice([0.1, 0.3]) if late and stream else 0.0 for stream in range(SIDE_BY_SIDE)]
    feeds: list[Feed] = []
    for _ in range(chance.randint(3, 5)):
        streams = [
            (source, stream)
            for source in sources
            for stream in range(SIDE_BY_SIDE)
            for _ in range(chance.choice([0, 1, 3, 8]))
        ]
        chance.shuffle(streams)
        rows: dict[str, list[Row]] = {source: [] for source in sources}
        for source, stream in streams if chance.random() < 0.9 else ():
            number += 1
            time = times.next(habits[stream])
            row = {"_time": time, "ts": instant(time), **sources[source](chance, number)}
            rows[source].append({**row, "k": row["k"] and f"{row['k']}{stream}"} if "k" in row else row)
        feeds.append(Feed(rows, "go on"))
    place = chance.randrange(1, len(feeds))
    point = chance.choice([point for point in POINTS if point != "sink.in_transaction"])
    happens = chance.choice(["stop", *[f"{point}@{chance.randrange(place)}"] * 2])
    feeds[place - 1] = Feed(feeds[place - 1].rows, happens)
    return feeds


def instant(micros: int) -> dt.datetime:
    return START + dt.timedelta(microseconds=micros - START_MICROS)


def pipeline(path: Path, sources: Mapping[str, str], delay: int, steps: Sequence[Step], more: str = "") -> Path:
    """Writes a pipeline in which each step has a sink of its own."""
    declared = "".join(SOURCE.format(name=name, schema=schema, delay=delay) for name, schema in sources.items())
    listed = "".join(f"    {step.name}: {{{step.text}}}\n" for step in steps)
    sinks = "".join(f"    to_{step.name}: {{from: {step.name}, memory: {{}}}}\n" for step in steps if step.judge)
    path.write_text(f"{HEAD}{declared}  steps:\n{listed}  sinks:\n{sinks}{more}")
    return path


def play(harness: Harness, feeds: Sequence[Feed]) -> None:
    """Feeds a stream, dying or stopping and coming back where it says, and moves event time to the end.

    Rows are handed over while nothing runs: several steps each read a source for themselves, and one could see new
    rows a batch before another.
    """
    for feed in feeds:
        for source, rows in feed.rows.items():
            harness.feed(source, [_given(row) for row in rows])
        if feed.then == "stop":
            harness.step()
            harness.stop()
        elif feed.then != "go on":
            die(harness, feed.then)
    harness.finish()


def die(harness: Harness, place: str) -> None:
    """Runs until a batch dies at `point@batch`."""
    point, batch = place.split("@")
    harness.crash_at(point)
    dying = harness._hook

    def hook(point: str, number: int) -> None:
        if number >= int(batch):
            dying(point, number)

    with patch.object(harness, "_hook", hook):
        harness.step()
    assert harness._running is None, f"nothing came to {place}"


def _given(row: Row) -> Row:
    return {name: value.isoformat() if name == "ts" else value for name, value in row.items() if name != "_time"}


def moments(harness: Harness, feeds: Sequence[Feed], delay: int) -> list[Moment]:
    """The batches as they were. Checks that Spark moved the watermark as it says it does.

    Kernels on Spark's state store follow its watermark a batch behind. Kernels that run on the batch close what the
    rows of the batch itself let them close, and judge rows by the watermark that the batch before left.
    """
    marks = list(_watermarks(harness))
    on_batch = (harness.state_dir / "checkpoint" / "chunks").is_dir()
    waiting = {source: [feed.rows[source] for feed in feeds if feed.rows[source]] for source in feeds[0].rows}
    clock = _Clock(delay * SECOND, list(waiting))
    found: list[Moment] = []
    for entry in harness.ledger():
        told = any(waiting.values())
        rows = {source: _taken(parts, entry.rows_in[source]) for source, parts in waiting.items()}
        assert not told or marks[entry.batch] == clock.watermark, f"watermark of batch {entry.batch}"
        clock.move(entry.epoch, rows)
        if on_batch:
            after = marks[entry.batch + 1] if entry.batch + 1 < len(marks) else END - delay * SECOND
            found.append(Moment(entry.batch, rows, marks[entry.batch], after))
        else:
            before = marks[entry.batch - 1] if entry.batch else NEVER
            found.append(Moment(entry.batch, rows, before, marks[entry.batch]))
    assert not any(waiting.values()), "rows that no batch has read"
    return found


def _taken(parts: list[Sequence[Row]], count: int) -> Sequence[Row]:
    if not count:
        return []
    assert len(parts[0]) == count, "a batch has other rows than were fed together"
    return parts.pop(0)


def _watermarks(harness: Harness) -> Iterator[int]:
    """The watermark of each batch in microseconds, from Spark's log."""
    folder = harness.state_dir / "checkpoint" / "offsets"
    for number in range(len([entry for entry in folder.iterdir() if entry.name.isdigit()])):
        millis = int(json.loads((folder / str(number)).read_text("utf-8").splitlines()[1])["batchWatermarkMs"])
        yield millis * 1000 if millis else NEVER


@dataclass
class _Clock:
    """The watermark as Spark moves it: to that of the slowest source, when each has given rows in this run."""

    delay: int
    sources: Sequence[str]
    epoch: int = 0
    watermark: int = NEVER
    newest: dict[str, int] = field(default_factory=dict)

    def move(self, epoch: int, rows: Mapping[str, Sequence[Row]]) -> None:
        if epoch != self.epoch:
            self.epoch, self.newest = epoch, {}
        for source, came in rows.items():
            if came:
                newest = max(int(row["_time"]) for row in came)
                self.newest[source] = max(newest, self.newest.get(source, newest))
        if len(self.newest) == len(self.sources):
            self.watermark = max(self.watermark, min(self.newest.values()) // 1000 * 1000 - self.delay)


def check(path: Path, feeds: Sequence[Feed], delay: int, steps: Sequence[Step]) -> None:
    """Runs a pipeline over a stream and compares all that each step gives, batch by batch, and what came too late."""
    with Harness(path) as harness:
        play(harness, feeds)
        history = moments(harness, feeds, delay)
        entries = harness.ledger()
        judged = [(step.name, step.judge, dict(harness.batches(f"to_{step.name}"))) for step in steps if step.judge]
    for name, judge, given in judged:
        for moment, entry in zip(history, entries, strict=True):
            verdict, place = judge.batch(moment), f"{name} in batch {moment.number}"
            assert plain(given.get(moment.number, [])) == plain(verdict.rows), place
            assert entry.late.get(name, 0) == verdict.late, f"late rows of {place}"
            assert entry.rows_dead.get(name, 0) == verdict.dead, f"dead letters of {place}"


def plain(rows: Sequence[Row]) -> list[str]:
    """Rows as texts that can be compared, whatever the order of rows and columns."""
    return comparable([dict(sorted(row.items())) for row in rows])
