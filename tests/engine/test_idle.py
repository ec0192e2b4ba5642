"""A source that is silent does not hold the watermark back for ever, and a wrong clock does not run it away."""

from __future__ import annotations

import datetime as dt
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.engine.idle import Remembered, SourceTime, catch_up, tick
from penstock.engine.query import RunningPipeline
from penstock.testing import Harness

if TYPE_CHECKING:
    from tests.conftest import Project

START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
START_MS = int(START.timestamp() * 1000)
IDLE_AFTER = {"quiet": 60.0}


def at(second: float) -> dt.datetime:
    return START + dt.timedelta(seconds=second)


def row(id: str, second: float) -> dict[str, Any]:
    return {"id": id, "ts": at(second).isoformat()}


@pytest.mark.parametrize(
    ("sources", "target"),
    [
        pytest.param({"quiet": SourceTime(10, 59.9), "busy": SourceTime(50, 0)}, None, id="not silent long enough"),
        pytest.param({"quiet": SourceTime(10, 60), "busy": SourceTime(50, 0)}, 50, id="silent and behind"),
        pytest.param({"quiet": SourceTime(0, 60), "busy": SourceTime(50, 0)}, 50, id="never gave a row"),
        pytest.param({"quiet": SourceTime(50, 60), "busy": SourceTime(50, 0)}, None, id="silent and level"),
        pytest.param({"quiet": SourceTime(70, 60), "busy": SourceTime(50, 0)}, None, id="silent and ahead"),
        pytest.param({"quiet": SourceTime(10, 60), "busy": SourceTime(0, 0)}, None, id="the other has no time yet"),
        pytest.param({"quiet": SourceTime(10, 60)}, None, id="alone"),
        pytest.param(
            {"quiet": SourceTime(10, 60), "busy": SourceTime(50, 0), "slow": SourceTime(30, 900)},
            30,
            id="not beyond the slowest that may hold back",
        ),
    ],
)
def test_a_silent_source_is_taken_to_the_slowest_of_the_others(
    sources: dict[str, SourceTime], target: int | None
) -> None:
    assert catch_up("quiet", sources, IDLE_AFTER) == target


def test_when_all_are_silent_all_are_taken_to_the_furthest() -> None:
    sources = {"quiet": SourceTime(10, 60), "other": SourceTime(30, 60)}
    idle_after = {**IDLE_AFTER, "other": 60.0}
    assert catch_up("quiet", sources, idle_after) == 30
    assert catch_up("other", sources, idle_after) is None


def test_watermarks_are_remembered_and_never_go_back(tmp_path: Path) -> None:
    assert Remembered(tmp_path).with_new({"a": 5}) == {"a": 5}
    again = Remembered(tmp_path)
    assert again.with_new({"a": 3, "b": 1}) == {"a": 5, "b": 1}
    assert Remembered(tmp_path).marks == {"a": 5, "b": 1}


def test_old_ticks_are_removed(tmp_path: Path) -> None:
    for second in range(103):
        tick(tmp_path, "ts", at(second))
    left = sorted(path.read_text("utf-8") for path in tmp_path.iterdir())
    assert len(left) == 100
    assert at(102).isoformat() in left[-1]


TWO = """
    sources:
      quiet:
        memory: {schema: {id: string, ts: timestamp}}
        eventTime: {column: ts, maxDelay: 0 seconds, idleAfter: 1 minute}
      busy:
        memory: {schema: {id: string, ts: timestamp}}
        eventTime: {column: ts, maxDelay: 5 seconds}
    steps:
      both: {from: [quiet, busy], union: {}}
      minutes: {from: both, window: {size: 1 minute, values: {n: count(*)}}}
    sinks:
      out: {from: minutes, memory: {}}
"""


def running(harness: Harness) -> RunningPipeline:
    harness.start()
    assert harness._running is not None
    return harness._running


def windows(harness: Harness) -> list[tuple[dt.datetime, int]]:
    return sorted((item["window_start"], item["n"]) for item in harness.rows("out"))


@pytest.mark.spark
def test_windows_close_although_one_source_is_silent_also_after_a_restart(project: Project) -> None:
    with Harness(project.write(TWO)) as harness:
        harness.feed("quiet", [row("a", 1)])
        harness.feed("busy", [row("b", 2)])
        harness.step()
        harness.feed("busy", [row("c", 70)])
        harness.step()
        assert windows(harness) == []
        assert running(harness).watermarks() == {"quiet": START_MS + 1000, "busy": START_MS + 65_000}
        assert running(harness).release_idle(time.monotonic() + 30) == []
        assert running(harness).release_idle(time.monotonic() + 90) == ["quiet"]
        harness.step()
        assert windows(harness) == [(at(0), 2)]
        assert running(harness).watermarks()["quiet"] == START_MS + 65_000
        # What is level needs no further tick.
        assert running(harness).release_idle(time.monotonic() + 300) == []

        # Spark keeps the watermark of the slowest only: how far each was must not be lost with the process.
        harness.crash()
        harness.feed("busy", [row("d", 131)])
        harness.step()
        assert windows(harness) == [(at(0), 2)]
        # Silence is counted anew from the start of a run.
        assert running(harness).release_idle() == []
        assert running(harness).release_idle(time.monotonic() + 90) == ["quiet"]
        harness.step()
        assert windows(harness) == [(at(0), 2), (at(60), 1)]

        # It is heard again, and its rows count as any others, late ones included.
        harness.feed("quiet", [row("e", 135), row("late", 80)])
        harness.feed("busy", [row("f", 200)])
        harness.step()
        harness.finish()
        assert windows(harness) == [(at(0), 2), (at(60), 1), (at(120), 2), (at(180), 1)]
        assert sum(entry.late.get("minutes", 0) for entry in harness.ledger()) == 1
        assert sum(sum(entry.rows_in.values()) for entry in harness.ledger()) == 7


AHEAD = """
    sources:
      views:
        memory: {schema: {id: string, ts: timestamp}}
        eventTime: {column: ts, maxDelay: 0 seconds, maxAhead: 1 hour}
    steps:
      minutes: {from: views, window: {size: 1 minute, values: {n: count(*)}}}
    sinks:
      out: {from: minutes, memory: {}}
"""


@pytest.mark.spark
def test_a_time_far_ahead_of_the_clock_is_a_dead_letter_and_moves_no_watermark(project: Project) -> None:
    with Harness(project.write(AHEAD)) as harness:
        ahead = dt.datetime.now(dt.UTC) + dt.timedelta(hours=2)
        near = dt.datetime.now(dt.UTC) - dt.timedelta(minutes=30)
        harness.feed("views", [{"id": "a", "ts": near.isoformat()}, {"id": "wrong", "ts": ahead.isoformat()}])
        harness.step()
        harness.feed("views", [{"id": "b", "ts": near.isoformat()}, {"id": "c", "ts": near.isoformat()}])
        harness.step()
        (dead,) = harness.dead_letters("views")
        assert "wrong" in dead["raw"]
        assert "1 hour ahead of the clock" in dead["error"]
        assert running(harness).watermarks()["views"] == int(near.timestamp() * 1000)
        harness.finish()
        assert sum(item["n"] for item in harness.rows("out")) == 3
