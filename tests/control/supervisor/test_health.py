"""Health is told by progress: each state with what shows it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.supervisor.health import Health, Trail, begin, follow, judge, span
from penstock.control.supervisor.watched import Watched, calm
from penstock.reports.folder import Cursor
from penstock.reports.values import BacklogReport, BatchLine, HistoryReport, LastBatch, RunStatus

NOW = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)


def after(seconds: float) -> dt.datetime:
    return NOW + dt.timedelta(seconds=seconds)


def status(seconds: float, batch: int | None = None, phase: str = "running", **changes: Any) -> RunStatus:
    last = None if batch is None else LastBatch(batch, after(seconds), 400)
    batches = 0 if batch is None else batch + 1
    return RunStatus("r1", 7, "x", phase, after(seconds), batches=batches, last_batch=last, **changes)


def line(number: int, **changes: Any) -> BatchLine:
    return replace(BatchLine(number, NOW, 400, rows_in={"views": 100}, sink_ms={"store": 200}), **changes)


def followed(*seen: tuple[float, RunStatus | None, Sequence[BatchLine]]) -> Trail:
    trail = begin(NOW)
    for seconds, found, lines in seen:
        trail = follow(trail, found, lines, after(seconds))
    return trail


def running(seconds: int, **changes: Any) -> Trail:
    """A batch a second, for so long."""
    return followed(*((at, status(at, at, **changes), [line(at)]) for at in range(seconds)))


def test_a_process_that_has_said_nothing_starts_until_that_takes_too_long() -> None:
    assert judge(begin(NOW), after(10)) == Health("STARTING", "its process starts")
    assert judge(followed((1, status(1, phase="starting Spark"), ())), after(5)).state == "STARTING"
    stuck = followed(*((at, status(at, phase="starting Spark"), ()) for at in range(400)))
    assert judge(stuck, after(400)) == Health("STALLED", "it has been starting Spark for 6 min 40 s")


def test_batches_that_are_committed_are_running() -> None:
    assert judge(running(20), after(20)) == Health("RUNNING", "batch 19 took 0.4 s")


def test_nothing_to_read_is_idle_however_long_that_lasts() -> None:
    trail = followed(*((at, status(at, 3, "waiting for data"), ()) for at in range(0, 4000, 5)))
    assert judge(trail, after(4000)) == Health("IDLE", "there is nothing to read; batch 3 took 0.4 s")


def test_a_run_that_gives_no_sign_of_life_is_stalled() -> None:
    trail = running(10)
    assert judge(trail, after(20)).state == "RUNNING"
    assert judge(trail, after(40)) == Health("STALLED", "no sign of life for 31 s; before that it was running")


def test_no_batch_while_something_waits_is_stalled() -> None:
    trail = running(10)
    for at in range(10, 100):
        trail = follow(trail, status(at, 9, backlog={"views": BacklogReport(1200, "rows")}), (), after(at))
    evidence = "no batch has finished for 1 min 30 s, and 1,200 rows at 'views' wait"
    assert judge(trail, after(99)) == Health("STALLED", evidence)


def test_something_that_waits_and_is_not_read_is_stalled() -> None:
    trail = running(10)
    waiting = {"views": BacklogReport(5, "files")}
    for at in range(10, 100):
        trail = follow(trail, status(at, 9, "waiting for data", backlog=waiting), (), after(at))
    found = judge(trail, after(99))
    assert (found.state, "wait and are not read" in found.evidence) == ("STALLED", True)


def test_a_driver_that_hangs_is_told_from_one_that_waits() -> None:
    trail = running(10)
    for at in range(10, 100):
        trail = follow(trail, status(at, 9, turned_at=after(10)), (), after(at))
    evidence = "no batch has finished for 1 min 30 s, and its driver hangs for 1 min 29 s"
    assert judge(trail, after(99)) == Health("STALLED", evidence)


def test_a_long_trigger_or_long_batches_are_no_stall() -> None:
    slow = followed(
        *((at * 60, status(at * 60, at, trigger_ms=60_000), [line(at, duration_ms=50_000)]) for at in range(5))
    )
    for at in range(240, 500, 5):
        slow = follow(slow, status(at, 4, trigger_ms=60_000), (), after(at))
    assert judge(slow, after(500)).state == "RUNNING"


def test_the_first_batch_may_take_longer() -> None:
    trail = followed(*((at, status(at), ()) for at in range(200)))
    assert judge(trail, after(200)).state == "STARTING"
    trail = followed(*((at, status(at), ()) for at in range(400)))
    assert judge(trail, after(400)).state == "STALLED"
    counted = followed((0, status(0), ()), (1, replace(status(1), batches=1), ()))
    assert judge(counted, after(1)) == Health("RUNNING", "its first batch has finished")


def test_catching_up_tells_how_long() -> None:
    behind = {"backlog": {"views": BacklogReport(12_000, "rows")}, "caught_up_in": {"views": 130.0}}
    found = judge(running(10, **behind), after(10))
    assert found == Health("CATCHING_UP", "12,000 rows at 'views' wait; caught up in about 2 min 10 s", 130.0)
    soon = {"backlog": {"views": BacklogReport(50, "rows")}, "caught_up_in": {"views": 2.0}}
    assert judge(running(10, **soon), after(10)).state == "RUNNING"
    little = {"backlog": {"views": BacklogReport(1, "rows")}, "caught_up_in": {"views": 20.0}, "rows_per_second": 500.0}
    assert judge(running(10, **little), after(10)).state == "RUNNING"


def test_history_is_catching_up() -> None:
    found = judge(running(10, history=HistoryReport(500, 2000, 90.0)), after(10))
    assert found == Health("CATCHING_UP", "history is read: 500 of 2,000 rows, about 1 min 30 s left", 90.0)


def test_ever_more_that_waits_is_degraded() -> None:
    found = judge(running(10, backlog={"views": BacklogReport(9000, "rows")}, caught_up_in={"views": None}), after(10))
    assert found == Health("DEGRADED", "ever more waits at source 'views': 9,000 rows by now")


@pytest.mark.parametrize(("unit", "amount", "state"), [("rows", 2, "RUNNING"), ("rows", 5001, "DEGRADED"),
                                                       ("files", 2, "DEGRADED")])  # fmt: skip
def test_what_is_read_in_a_few_seconds_anyway_may_wait(unit: str, amount: int, state: str) -> None:
    waiting = {"backlog": {"views": BacklogReport(amount, unit)}, "caught_up_in": {"views": None}}
    assert judge(running(10, rows_per_second=500.0, **waiting), after(10)).state == state


def degraded(lines: Sequence[BatchLine]) -> Health:
    trail = followed(*((item.batch, status(item.batch, item.batch), [item]) for item in lines))
    return judge(trail, after(lines[-1].batch))


def test_a_sink_that_has_become_slow_is_degraded() -> None:
    lines = [line(at) for at in range(20)] + [
        line(at, duration_ms=5000, sink_ms={"store": 4500}) for at in range(20, 25)
    ]
    assert degraded(lines) == Health("DEGRADED", "sink 'store' takes 4.5 s for a batch, it took 0.2 s before")
    grown = [replace(item, rows_in={"views": 100_000}) if item.batch >= 20 else item for item in lines]
    assert degraded(grown).state == "RUNNING", "batches of more rows take longer"


@pytest.mark.parametrize(
    ("changes", "evidence"),
    [
        ({"sink_retries": {"store": 2}}, "sink 'store' had to try again 2 times in the last 5 batches"),
        ({"dead": {"views": 390}}, "390 of the last 500 rows could not be used"),
        ({"balanced": False}, "the rows of batch 19 do not add up"),
    ],
)
def test_trouble_in_a_batch_is_degraded(changes: dict[str, Any], evidence: str) -> None:
    assert degraded([line(at) for at in range(19)] + [line(19, **changes)]) == Health("DEGRADED", evidence)
    calm = [line(at) for at in range(19)] + [line(19, **changes)] + [line(at) for at in range(20, 25)]
    assert degraded(calm).state == "RUNNING"


def test_a_watermark_that_stands_while_rows_come_is_degraded() -> None:
    marks = {"watermark": 1000, "watermarks": {"views": 5000, "clicks": 1000}}
    found = judge(running(700, **marks), after(700))
    evidence = "rows come in, and the watermark has not moved for 11 min 40 s; source 'clicks' is the furthest behind"
    assert found == Health("DEGRADED", evidence)


def test_little_room_on_the_disk_is_degraded() -> None:
    found = judge(running(10, disk_free=100_000_000), after(10))
    assert found == Health("DEGRADED", "only 100 MB are free on the disk of its state")


def test_a_run_that_was_asked_to_stop_is_stopping() -> None:
    assert calm(Watched(running(10), Cursor(), adopted=True), after(10), stopping=True).state == "STOPPING"
    assert judge(running(10, phase="stopping"), after(10)).state == "STOPPING"


PHASES = ("starting", "starting Spark", "sorting history", "reading history", "running", "waiting for data")


@given(
    seen=st.lists(
        st.tuples(
            st.integers(0, 300),
            st.sampled_from(PHASES),
            st.booleans(),
            st.integers(0, 3),
            st.none() | st.floats(0, 1000),
        ),
        max_size=30,
    )
)
def test_every_course_has_a_state_with_evidence_and_running_is_never_silent(seen: list[Any]) -> None:
    """Whatever it reports, a run is RUNNING or IDLE only if it was heard of, and moves or has nothing to read."""
    trail, now, batch = begin(NOW), NOW, 0
    for seconds, phase, moves, waits, left in seen:
        now += dt.timedelta(seconds=seconds)
        batch += moves
        backlog = {"views": BacklogReport(waits, "rows")}
        found = RunStatus("r1", 7, "x", phase, now, batches=batch, backlog=backlog, caught_up_in={"views": left},
                          last_batch=LastBatch(batch, now, 100) if batch else None)  # fmt: skip
        trail = follow(trail, found, [line(batch)] if moves else [], now)
        health = judge(trail, now)
        assert health.evidence
        if health.state == "RUNNING":
            assert now - trail.moved < dt.timedelta(minutes=5)
        if health.state == "IDLE":
            assert (phase, waits) == ("waiting for data", 0)
        later = judge(trail, now + dt.timedelta(hours=1))
        assert later.state == "STALLED"


def test_spans_are_said_as_people_say_them() -> None:
    spans = [span(dt.timedelta(seconds=seconds)) for seconds in (0, 59, 60, 3600, 3725, 90_000)]
    assert spans == ["0 s", "59 s", "1 min", "1 h", "1 h 2 min", "1 d 1 h"]
