"""Streams for differential tests: rows drawn by chance, cut into batches, with crashes and stops between them.

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

from tests.kernels.window_oracle import comparable

from penstock.components.shared.crashpoints import POINTS
from penstock.testing import Harness

Row = dict[str, Any]
SECOND = 1_000_000
START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
START_MICROS = int(START.timestamp()) * SECOND
NEVER = -(1 << 62)
"""The watermark before there is one."""
FEW_POINTS = tuple(point for point in POINTS if point != "sink.in_transaction")
"""The crash points that a batch with sinks in memory comes to."""
HEAD = "apiVersion: penstock/v1\nkind: Pipeline\nmetadata: {name: oracle}\nspec:\n  sources:\n"
SOURCE = """\
    {name}:
      memory: {{schema: {{{schema}}}}}
      eventTime: {{column: ts, maxDelay: {delay} seconds}}
"""


@dataclass(frozen=True)
class Feed:
    """Rows that are handed to the sources together, and what happens then."""

    rows: Mapping[str, Sequence[Row]]
    then: str
    """`go on`: the next ones follow at once; `wait` until they are processed; `stop` and start again; or die there."""


@dataclass(frozen=True)
class Moment:
    """One batch as it was: its rows, the watermark that judged them, and the watermark that closed results."""

    number: int
    rows: Mapping[str, Sequence[Row]]
    before: int
    watermark: int


class Judge(Protocol):
    """Knows what a step must give in each batch."""

    def batch(self, moment: Moment) -> tuple[list[Row], int]:
        """The rows that leave, and how many results rows of this batch were too late for."""


@dataclass(frozen=True)
class Step:
    """A step under test: its name and YAML, and who knows what it must give."""

    name: str
    text: str
    judge: Judge


class Drawn(Protocol):
    def __call__(self, chance: random.Random, number: int) -> Row:
        """The columns of a row beside its time."""


@dataclass
class Times:
    """Times that mostly go forward: with ties, jumps, rows out of order within the delay, and late ones."""

    chance: random.Random
    delay: int
    late: bool
    now: int = 100

    def next(self) -> int:
        chance = self.chance
        self.now += chance.choice([0, 0, 1, 1, 3]) if chance.random() < 0.93 else chance.choice([15, 40])
        lag = chance.choice([0, 0, 0, chance.randint(0, self.delay)])
        if self.late and chance.random() < 0.2:
            lag = chance.randint(0, 90)
        micros = START_MICROS + (self.now - lag) * SECOND
        return micros + chance.choice([0, 0, 0, 0, -1, 1, 999, SECOND // 2])


def draw_feeds(chance: random.Random, sources: Mapping[str, Drawn], delay: int, *, late: bool) -> list[Feed]:
    """A stream of a few batches for these sources."""
    times = Times(chance, delay, late)
    feeds: list[Feed] = []
    number = 0
    for _ in range(chance.randint(2, 4)):
        rows: dict[str, list[Row]] = {}
        for source, drawn in sources.items():
            rows[source] = []
            for _ in range(chance.choice([0, 3, 8, 8, 14])):
                time = times.next()
                number += 1
                rows[source].append({"_time": time, "ts": instant(time), **drawn(chance, number)})
        feeds.append(Feed(rows, chance.choice(["go on", "wait"])))
    place = chance.randrange(len(feeds))
    happening = chance.choice([*FEW_POINTS, "stop"])
    feeds[place] = Feed(feeds[place].rows, happening)
    return feeds


def instant(micros: int) -> dt.datetime:
    return START + dt.timedelta(microseconds=micros - START_MICROS)


def pipeline(path: Path, sources: Mapping[str, str], delay: int, steps: Sequence[Step], more: str = "") -> Path:
    """Writes a pipeline in which each step has a sink of its own."""
    declared = "".join(SOURCE.format(name=name, schema=schema, delay=delay) for name, schema in sources.items())
    listed = "".join(f"    {step.name}: {{{step.text}}}\n" for step in steps)
    sinks = "".join(f"    to_{step.name}: {{from: {step.name}, memory: {{}}}}\n" for step in steps)
    path.write_text(f"{HEAD}{declared}  steps:\n{listed}  sinks:\n{sinks}{more}")
    return path


def play(harness: Harness, feeds: Sequence[Feed]) -> None:
    """Feeds a stream, dying, stopping and coming back where it says, and moves event time to the end."""
    for feed in feeds:
        for source, rows in feed.rows.items():
            harness.feed(source, [_given(row) for row in rows])
        if feed.then in POINTS:
            harness.crash_at(feed.then)
            harness.step()
            harness.resume()
        elif feed.then != "go on":
            harness.step()
        if feed.then == "stop":
            harness.stop()
    harness.step()
    harness.finish()


def _given(row: Row) -> Row:
    return {name: value.isoformat() if name == "ts" else value for name, value in row.items() if name != "_time"}


def moments(harness: Harness, feeds: Sequence[Feed], delay: int) -> list[Moment]:
    """The batches as they were. Checks that Spark moved the watermark as it says it does."""
    marks = list(_watermarks(harness))
    waiting = {source: _fed(feeds, source) for source in feeds[0].rows}
    clock = _Clock(delay * SECOND, list(waiting))
    found: list[Moment] = []
    for entry in harness.ledger():
        rows = {source: _taken(parts, entry.rows_in[source]) for source, parts in waiting.items()}
        before = marks[entry.batch - 1] if entry.batch else NEVER
        found.append(Moment(entry.batch, rows, before, marks[entry.batch]))
        assert clock.ended or marks[entry.batch] == clock.watermark, f"watermark of batch {entry.batch}"
        clock.move(entry.epoch, rows)
        clock.ended = not any(any(parts) for parts in waiting.values())
    assert not any(any(parts) for parts in waiting.values()), "rows that no batch has read"
    return found


def _fed(feeds: Sequence[Feed], source: str) -> list[Sequence[Row]]:
    return [feed.rows[source] for feed in feeds if feed.rows[source]]


def _taken(parts: list[Sequence[Row]], count: int) -> Sequence[Row]:
    if not count:
        return []
    assert len(parts[0]) == count
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
    ended: bool = False

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
        late = {entry.batch: entry.late for entry in harness.ledger()}
        given = {step.name: dict(harness.batches(f"to_{step.name}")) for step in steps}
    for step in steps:
        for moment in history:
            rows, missed = step.judge.batch(moment)
            place = f"{step.name} in batch {moment.number}"
            assert plain(given[step.name].get(moment.number, [])) == plain(rows), place
            assert late[moment.number].get(step.name, 0) == missed, f"late rows of {place}"


def plain(rows: Sequence[Row]) -> list[str]:
    """Rows as texts that can be compared, whatever the order of rows and columns."""
    return comparable([dict(sorted(row.items())) for row in rows])
