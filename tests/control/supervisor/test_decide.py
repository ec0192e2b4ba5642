"""What the supervisor decides, from what it knows and the clock alone."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.control.supervisor.decide import Case, Decision, decide, in_a_row, next_target, pause
from penstock.control.supervisor.health import Health
from penstock.control.supervisor.ports import Notice, Run, Wanted

NOW = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)
WANTED = Wanted("demo", "running", generation=1, version=1, file="/v/1.yaml", observed_generation=1)


def ago(seconds: float) -> dt.datetime:
    return NOW - dt.timedelta(seconds=seconds)


def open_run(**changes: Any) -> Run:
    return replace(Run("r1", "demo", 1, 1, "local", ago(100), pid=7, process_started="x"), **changes)


def ended(seconds: float, run: str = "r1", **changes: Any) -> Run:
    found = open_run(id=run, started_at=ago(seconds + 30), ended_at=ago(seconds), outcome="failed", owner="external",
                     code="SINK_UNREACHABLE", reason="sink 'store' does not reach db")  # fmt: skip
    return replace(found, **changes)


def decided(run: Run | None = None, *past: Run, wanted: Wanted = WANTED, **changes: Any) -> Decision:
    return decide(Case(wanted, run, past=past, **changes), NOW)


def test_what_should_run_and_does_not_is_started() -> None:
    assert decided() == Decision("start", "it should run", "STARTING", {"target": "local", "take_over": False})


def test_what_should_not_run_is_left_alone_or_stopped_once() -> None:
    stopped = replace(WANTED, desired="stopped")
    assert decided(wanted=stopped).state == "STOPPED"
    assert decided(open_run(), wanted=stopped) == Decision("stop", "it should not run", "STOPPING")
    assert decided(open_run(stop_asked_at=ago(5)), wanted=stopped).kind == "wait"
    assert decided(open_run(stop_asked_at=ago(121)), wanted=stopped).kind == "kill"
    assert decided(open_run(stop_asked_at=ago(121), kill_asked_at=ago(1)), wanted=stopped).kind == "wait"


def test_a_healthy_run_is_left_alone_and_a_found_one_adopted() -> None:
    health = Health("RUNNING", "batch 7 took 0.1 s")
    assert decided(open_run(), health=health) == Decision("nothing", health.evidence, "RUNNING")
    assert decided(open_run(), health=health, adopted=False).kind == "adopt"


def test_a_new_version_stops_the_old_run_and_starts_anew() -> None:
    wanted = replace(WANTED, version=2, generation=2)
    assert decided(open_run(), wanted=wanted) == Decision("stop", "version 2 takes the place of 1", "STOPPING")
    over = ended(0, outcome="stopped", owner=None, code=None, stop_asked_at=ago(5), stop_reason="version 2")
    assert decided(None, over, wanted=wanted).kind == "start"


def test_a_new_generation_of_the_same_version_leaves_the_run_alone() -> None:
    assert decided(open_run(), wanted=replace(WANTED, generation=5)).kind == "nothing"


def test_a_silent_run_is_killed_and_its_state_taken_over() -> None:
    assert decided(open_run(), silent=dt.timedelta(seconds=59)).kind == "nothing"
    found = decided(open_run(), silent=dt.timedelta(seconds=61))
    assert (found.kind, found.reason) == ("kill", "no sign of life for 1 min 1 s")
    after = ended(10, outcome="died", owner=None, code=None, kill_asked_at=ago(11))
    assert decided(None, after).data["take_over"] is True


def test_a_process_that_a_kill_does_not_end_is_abandoned() -> None:
    found = decided(open_run(kill_asked_at=ago(31)))
    assert (found.kind, found.data) == ("give_up", {"abandon": True})


@pytest.mark.parametrize("owner", ["author", "operator"])
def test_a_mistake_is_not_tried_again_before_something_has_changed(owner: str) -> None:
    past = ended(3600, owner=owner, code="SQL_SYNTAX", reason="SQL of 'a' cannot be parsed")
    found = decided(None, past)
    assert (found.kind, found.state, found.reason) == ("give_up", "FAILED", "SQL of 'a' cannot be parsed")
    assert decided(None, past, wanted=replace(WANTED, generation=2)).kind == "start"


@pytest.mark.parametrize("code", ["DISK_FULL", "JVM_FAILED", "STATE_IN_USE", "FENCED", "SINK_FENCED", "JVM_DIED"])
def test_what_may_pass_by_itself_is_tried_again(code: str) -> None:
    assert decided(None, ended(10, owner="operator", code=code)).kind == "start"


def test_a_failure_outside_is_tried_again_after_a_pause() -> None:
    found = decided(None, ended(0.5))
    assert (found.kind, found.state) == ("wait", "BACKING_OFF")
    assert found.reason.startswith("sink 'store' does not reach db (next start in ")
    found = decided(None, ended(3))
    assert (found.kind, found.reason) == ("start", "after a failure: sink 'store' does not reach db")


def test_pauses_double_up_to_a_limit_and_differ_from_run_to_run() -> None:
    assert 1.5 <= pause(1, "r1") <= 2.5
    assert all(pause(number + 1, "r1") == 2 * pause(number, "r1") for number in range(1, 7))
    assert 225 <= pause(50, "r1") <= 375
    assert len({pause(3, f"r{number}") for number in range(50)}) == 50


def test_a_run_that_had_lasted_starts_the_count_anew() -> None:
    runs = [ended(900, "r1"), ended(800, "r2"), ended(700, "r3", lasted=True), ended(600, "r4"), ended(500, "r5")]
    assert in_a_row(runs) == 3
    assert in_a_row(runs[:3]) == 1
    assert in_a_row([*runs, ended(1, "r6", outcome="stopped", stop_asked_at=ago(2))]) == 0


def failing(count: int, **changes: Any) -> list[Run]:
    """So many failures within the hour, and long enough ago that no pause counts."""
    return [ended(3000 - 30 * number, f"r{number}", **changes) for number in range(count)]


def test_a_used_budget_waits_for_what_is_outside_and_gives_up_a_bug() -> None:
    assert decided(None, *failing(6)).kind == "start"
    outside = decided(None, *failing(7))
    assert (outside.kind, outside.state) == ("wait", "BACKING_OFF")
    assert "6 restarts in the last hour; next at 12:10:00Z" in outside.reason
    bug = decided(None, *failing(7, owner="bug", code="BATCH_FAILED"))
    assert (bug.kind, bug.state) == ("give_up", "FAILED")
    died = decided(None, *failing(7, owner=None, code=None, outcome="died"))
    assert died.state == "FAILED"


def test_the_budget_is_what_the_pipeline_says() -> None:
    assert decided(None, *failing(3, restarts_per_hour=2, owner="bug")).state == "FAILED"
    assert decided(None, *failing(1, restarts_per_hour=0, owner="bug")).state == "FAILED"
    assert decided(None, *failing(20, restarts_per_hour=100, owner="bug")).kind == "start"
    # Runs that die before they have read their file do not know it.
    died = failing(20, restarts_per_hour=None, owner=None, code=None, outcome="died")
    assert decided(None, *died, wanted=replace(WANTED, restarts_per_hour=100)).kind == "start"
    assert decided(None, *died, wanted=replace(WANTED, restarts_per_hour=3)).state == "FAILED"


def test_starts_of_an_earlier_generation_and_wanted_ones_cost_nothing() -> None:
    assert decided(None, *failing(7, owner="bug"), wanted=replace(WANTED, generation=2)).kind == "start"
    asked = failing(9, owner="bug", stop_asked_at=ago(1))
    assert decided(None, *asked).kind == "start"


def test_a_pipeline_that_came_to_its_end_stays_there() -> None:
    found = decided(None, ended(100, outcome="done", owner=None))
    assert (found.kind, found.state) == ("nothing", "STOPPED")


NOTICE = Notice("spot", "file", ago(1), deadline=NOW + dt.timedelta(seconds=30))
ON_SPOT = replace(WANTED, target="spot")
PLACES = ("spot", "other", "local")


def test_a_notice_moves_the_run_to_the_next_target() -> None:
    found = decided(open_run(target="spot"), wanted=ON_SPOT, targets=PLACES, notices=(NOTICE,))
    assert (found.kind, found.data["to"]) == ("fail_over", "other")
    over = ended(0, outcome="stopped", owner=None, code=None, target="spot", stop_asked_at=ago(1))
    found = decided(None, over, wanted=ON_SPOT, targets=PLACES, notices=(NOTICE,))
    assert (found.kind, found.data["target"]) == ("start", "other")


def test_a_run_that_does_not_stop_is_killed_when_its_target_goes() -> None:
    late = replace(NOTICE, deadline=ago(0))
    found = decided(open_run(target="spot", stop_asked_at=ago(3)), wanted=ON_SPOT, targets=PLACES, notices=(late,))
    assert found.kind == "kill"


def test_without_another_target_it_stays_as_long_as_it_can() -> None:
    found = decided(open_run(target="spot"), wanted=ON_SPOT, targets=("spot",), notices=(NOTICE,))
    assert found.kind == "nothing"
    assert decided(wanted=ON_SPOT, targets=("spot",), notices=(NOTICE,)).kind == "wait"


def test_a_run_that_somebody_else_stopped_goes_on_elsewhere() -> None:
    over = ended(10, outcome="stopped", owner=None, code=None, target="spot")
    assert decided(None, over, wanted=ON_SPOT, targets=PLACES).data["target"] == "other"
    assert decided(None, over, wanted=ON_SPOT, targets=("spot",)).data["target"] == "spot"


def test_another_target_that_is_wanted_is_gone_to() -> None:
    found = decided(open_run(), wanted=ON_SPOT, targets=PLACES)
    assert (found.kind, found.reason) == ("stop", "it should run on target 'spot'")


def test_a_target_that_is_not_configured_is_said() -> None:
    found = decided(wanted=ON_SPOT, targets=("spot",), configured={"local"})
    assert (found.kind, found.state) == ("give_up", "FAILED")


def test_targets_are_gone_through_in_their_order() -> None:
    case = Case(ON_SPOT, None, targets=("a", "b", "c"), notices=(Notice("b", "file", NOW),))
    assert [next_target(case, name) for name in ("a", "b", "c")] == ["c", "c", "a"]


RUNS = st.builds(
    lambda start, took, changes: open_run(started_at=ago(start + took), ended_at=ago(start), **changes),
    st.floats(0, 7200),
    st.floats(0, 3600),
    st.fixed_dictionaries(
        {
            "outcome": st.sampled_from(["stopped", "done", "failed", "fenced", "died", "lost"]),
            "owner": st.sampled_from([None, "author", "operator", "external", "bug"]),
            "code": st.sampled_from([None, "SINK_UNREACHABLE", "JVM_DIED", "DISK_FULL"]),
            "generation": st.integers(1, 2),
            "stop_asked_at": st.none() | st.just(ago(50)),
            "kill_asked_at": st.none() | st.just(ago(40)),
            "lasted": st.booleans(),
            "restarts_per_hour": st.none() | st.integers(0, 10),
        }
    ),
)


@given(
    past=st.lists(RUNS, max_size=12),
    run=st.none() | st.builds(
        open_run, version=st.integers(1, 2), target=st.sampled_from(["local", "spot"]),
        stop_asked_at=st.none() | st.just(ago(5)) | st.just(ago(500)),
        kill_asked_at=st.none() | st.just(ago(5)) | st.just(ago(500)),
    ),
    desired=st.sampled_from(["running", "stopped"]),
    silent=st.integers(0, 200),
    noticed=st.booleans(),
    generation=st.integers(1, 2),
)  # fmt: skip
def test_rules_that_hold_whatever_happens(
    past: list[Run], run: Run | None, desired: Any, silent: int, noticed: bool, generation: int
) -> None:
    wanted = replace(WANTED, desired=desired, generation=generation)
    past = sorted(past, key=lambda item: item.started_at)
    notices = (Notice("local", "file", ago(1)),) if noticed else ()
    case = Case(wanted, run, None, dt.timedelta(seconds=silent), True, past, ("local", "spot"), None, notices)
    found = decide(case, NOW)
    assert found.reason
    assert decide(case, NOW) == found, "the same facts give the same decision"
    if found.kind == "start":
        assert run is None, "never a second run beside an open one"
        assert desired == "running"
        assert not (noticed and found.data["target"] == "local"), "never on a target that is taken away"
    if found.kind in ("stop", "kill", "adopt", "fail_over"):
        assert run is not None
    if desired == "stopped" and run is None:
        assert found.state == "STOPPED"
    if found.kind == "stop":
        assert run is not None
        assert run.stop_asked_at is None, "asked once"


@settings(max_examples=20)
@given(seed=st.integers(0, 1000), budget=st.integers(0, 10))
def test_a_pipeline_that_always_fails_is_never_started_more_often_than_its_budget(seed: int, budget: int) -> None:
    """Six hours of a run that dies three seconds after each start, looked at every twenty seconds."""
    past: list[Run] = []
    starts: list[dt.datetime] = []
    for step in range(0, 6 * 3600, 20):
        now = NOW + dt.timedelta(seconds=step)
        recent = [run for run in past if run.started_at > now - dt.timedelta(hours=1)] or past[-1:]
        found = decide(Case(WANTED, None, past=recent), now)
        if found.kind == "start":
            starts.append(now)
            over = now + dt.timedelta(seconds=3)
            past.append(ended(0, f"r{seed}-{step}", started_at=now, ended_at=over, restarts_per_hour=budget))
    for start in starts:
        within = [other for other in starts if start <= other < start + dt.timedelta(hours=1)]
        assert len(within) <= budget + 1
    assert len(starts) >= (1 if budget == 0 else 6)
