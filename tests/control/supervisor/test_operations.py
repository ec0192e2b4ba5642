"""Work on the state of pipelines: in its turn, by the run or by a process of its own, and to its end."""

from __future__ import annotations

import datetime as dt
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.control.supervisor.fake_savepoints import put_savepoint, put_state
from tests.control.supervisor.world import World

from penstock.control.supervisor.decide import BIRTH_PATIENCE, Case, Held, decide
from penstock.control.supervisor.operations import ATTEMPTS, Seen, Step, holds, in_turn, next_step
from penstock.control.supervisor.ports import Operation, OperationKind, Run, Wanted
from penstock.reports.savepoints import SAVEPOINTS
from penstock.reports.values import OperationEnd

T0 = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
RUN = Run("r1", "a", 1, 1, "local", T0)
DONE = OperationEnd("o1", T0, "done", {"savepoint": "s"})


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    world.store.want("a")
    yield world
    world.end()


def operation(kind: OperationKind = "rescale", **changes: Any) -> Operation:
    return replace(Operation("o1", "a", kind, T0, "ann"), **changes)


# --- what to do next ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "seen", "run", "kind"),
    [
        (operation("savepoint"), Seen(), RUN, "ask"),
        (operation("savepoint"), Seen(), None, "begin"),
        (operation("savepoint", run="r1"), Seen(), RUN, "nothing"),
        (operation("savepoint", run="r1"), Seen(asked=False), RUN, "ask"),
        (operation("savepoint", run="r0"), Seen(), RUN, "ask"),
        (operation("savepoint", run="r0"), Seen(), None, "begin"),
        (operation("savepoint", run="r0"), Seen(answer=DONE), None, "end"),
        (operation("rescale"), Seen(), RUN, "nothing"),
        (operation("rescale"), Seen(), None, "begin"),
        (operation("verify"), Seen(), RUN, "begin"),
        (operation("cutover"), Seen(), RUN, "begin"),
        (operation("compare"), Seen(), RUN, "begin"),
        (operation("abandon"), Seen(), RUN, "begin"),
        (operation("takeover"), Seen(), RUN, "nothing"),
        (operation("takeover"), Seen(), None, "begin"),
        (operation(begun_at=T0, attempts=1), Seen(True, 5, "x"), None, "nothing"),
        (operation(begun_at=T0, attempts=1), Seen(True, 5, "x", end=DONE), None, "nothing"),
        (operation(begun_at=T0, attempts=1), Seen(False, 5, "x", end=DONE), None, "end"),
        (operation(begun_at=T0, attempts=1), Seen(), None, "nothing"),
        (operation(begun_at=T0 - BIRTH_PATIENCE, attempts=1), Seen(), None, "begin"),
        (operation(begun_at=T0, attempts=1), Seen(False, 5, "x"), None, "begin"),
        (operation(begun_at=T0, attempts=ATTEMPTS), Seen(False, 5, "x"), None, "end"),
        (operation("savepoint", run="r0", begun_at=T0, attempts=1), Seen(True, 5, "x"), RUN, "nothing"),
    ],
)
def test_the_next_step(found: Operation, seen: Seen, run: Run | None, kind: str) -> None:
    assert next_step(found, seen, run, T0).kind == kind


def test_what_nobody_wants_any_more_is_ended_unless_it_is_done() -> None:
    gone = operation(begun_at=T0, attempts=1, cancelled_by="bob")
    assert next_step(gone, Seen(True, 5, "x"), None, T0).kind == "kill"
    ended = next_step(gone, Seen(False, 5, "x"), None, T0)
    assert ended.problem is not None
    assert (ended.kind, ended.problem["code"]) == ("end", "OPERATION_CANCELLED")
    assert next_step(gone, Seen(False, 5, "x", end=DONE), None, T0) == Step("end", result={"savepoint": "s"})
    assert next_step(operation(cancelled_by="bob"), Seen(), RUN, T0).kind == "end"
    asked = operation("savepoint", run="r1", cancelled_by="bob")
    assert next_step(asked, Seen(), RUN, T0).failed
    assert not next_step(asked, Seen(answer=DONE), RUN, T0).failed


def test_how_it_ended_is_what_it_said() -> None:
    begun = operation(begun_at=T0, attempts=1)
    assert next_step(begun, Seen(False, 5, "x", end=DONE), None, T0) == Step("end", result={"savepoint": "s"})
    problem = {"code": "DISK_FULL", "message": "full", "owner": "operator"}
    refused = OperationEnd("o1", T0, "failed", {"begun": True}, (problem,))
    assert next_step(begun, Seen(False, 5, "x", end=refused), None, T0) == Step("end", "", problem, {"begun": True})
    of_another = Seen(False, 5, "x", end=replace(DONE, operation="o2"))
    assert next_step(begun, of_another, None, T0).kind == "begin"


def test_one_after_the_other_but_what_is_only_read_beside_them() -> None:
    asked = [operation("verify", id="v1"), operation("savepoint", id="s1"), operation("rescale", id="x"),
             operation("verify", id="v2")]  # fmt: skip
    assert [item.id for item in in_turn(asked)] == ["v1", "s1", "v2"]
    assert [item.kind for item in asked if holds(item, RUN)] == ["rescale"]
    assert [item.kind for item in asked if holds(item, None)] == ["savepoint", "rescale"]


def test_a_new_version_follows_beside_everything_until_it_takes_over() -> None:
    asked = [operation("cutover", id="c"), operation("savepoint", id="s"), operation("compare", id="v"),
             operation("takeover", id="t"), operation("abandon", id="a")]  # fmt: skip
    assert [item.id for item in in_turn(asked)] == ["c", "s", "v", "a"]
    assert [item.id for item in in_turn([asked[0], asked[3]])] == ["c", "t"]
    assert [item.kind for item in asked if holds(item, RUN)] == ["takeover"]
    assert [item.kind for item in asked if holds(item, None)] == ["savepoint", "takeover"]


def test_a_run_makes_room_and_none_is_started_meanwhile() -> None:
    held = Held(operation(), "RESCALING", "its state is to be divided anew", "half of it")
    wanted = Wanted("a", "running", 1, 1, "a.yaml")
    stop = decide(Case(wanted, RUN, held=held), T0)
    assert (stop.kind, stop.reason, stop.data) == ("stop", held.purpose, {"operation": "o1"})
    wait = decide(Case(wanted, None, held=held), T0)
    assert (wait.kind, wait.state, wait.reason) == ("wait", "RESCALING", "half of it")
    # Whatever else is wanted waits too.
    assert decide(Case(replace(wanted, desired="stopped"), None, held=held), T0).kind == "wait"


# --- with processes -----------------------------------------------------------------------------------------


def running(world: World) -> str:
    """Waits until it runs; which run."""
    world.until(lambda: world.state("a") == "RUNNING", "that it runs")
    run = world.open_run("a")
    assert run is not None
    return run.id


def done(world: World, asked: str, outcome: str = "done") -> Operation:
    world.until(lambda: not world.operation(asked).open, "that it is done")
    found = world.operation(asked)
    assert found.outcome == outcome, found
    return found


def test_a_savepoint_is_taken_by_the_run_that_goes_on(world: World) -> None:
    run = running(world)
    found = done(world, world.store.ask("a", "savepoint", name="now", note="why"))
    assert (found.run, found.attempts, found.result["savepoint"]) == (run, 0, "now")
    assert running(world) == run
    assert [(item.name, item.note) for item in world.store.savepoints["a"]] == [("now", "why")]
    # Nothing is left of the request.
    assert list((world.folders.state("a") / SAVEPOINTS / "requests").iterdir()) == []


def test_what_the_run_refuses_is_told(world: World) -> None:
    running(world)
    found = done(world, world.store.ask("a", "savepoint", name="bad"), "failed")
    assert (found.code, found.owner) == ("SAVEPOINT_NOTHING", "operator")
    assert [problem["code"] for problem in world.store.failures] == ["SAVEPOINT_NOTHING"]


def test_a_pipeline_that_stops_takes_its_savepoint_with_its_last_batch(world: World) -> None:
    run = running(world)
    asked = world.store.ask("a", "savepoint", name="last")
    world.store.want("a", desired="stopped")
    assert done(world, asked).run == run
    world.until(lambda: world.state("a") == "STOPPED", "that it stands")
    assert [item.name for item in world.store.savepoints["a"]] == ["last"]


def test_without_a_run_a_process_of_its_own_takes_it(world: World) -> None:
    world.store.want("a", desired="stopped")
    world.worker("a", "hang")
    asked = world.store.ask("a", "savepoint", name="cold")
    world.until(lambda: world.state("a") == "SAVING", "that it is at work")
    world.store.want("a", desired="running")
    world.until(lambda: "25 %" in world.supervisor.live()["a"].health.evidence, "how far it is")
    assert world.store.runs("a") == []
    world.worker("a", "work")
    found = done(world, asked)
    assert (found.run, found.attempts) == (None, 1)
    running(world)


def test_a_run_that_dies_before_it_has_answered_is_followed_by_a_process(world: World) -> None:
    world.mode("a", "deaf")
    world.until(lambda: world.open_run("a") is not None, "that it runs")
    world.until(lambda: (world.folders.run("a", world.store.runs("a")[0].id) / "status.json").exists(), "its word")
    asked = world.store.ask("a", "savepoint", name="late")
    world.until(lambda: world.operation(asked).run is not None, "that it was asked")
    world.store.want("a", desired="stopped")
    world.mode("a", "die")
    found = done(world, asked)
    assert (found.attempts, found.result["savepoint"]) == (1, "late")


def test_state_is_changed_between_two_runs(world: World) -> None:
    first = running(world)
    world.worker("a", "hang")
    asked = world.store.ask("a", "rescale", partitions=8)
    world.until(lambda: world.state("a") == "RESCALING", "that it is at work")
    assert world.open_run("a") is None
    assert world.store.runs("a")[0].outcome == "stopped"
    world.worker("a", "work")
    done(world, asked)
    assert running(world) != first
    assert [kind for kind in world.store.kinds("a") if kind in ("stop", "operation", "rescaled", "start")] == [
        "start", "stop", "operation", "rescaled", "start"
    ]  # fmt: skip


def test_one_that_fails_leaves_the_version_that_there_was(world: World) -> None:
    running(world)
    world.worker("a", "fail")
    world.store.want("a", version=2)
    asked = world.store.ask("a", "upgrade", back_to=1)
    found = done(world, asked, "failed")
    assert (found.code, found.owner) == ("SINK_CANNOT_REWIND", "operator")
    running(world)
    assert (world.store.pipeline("a").version, world.store.runs("a")[-1].version) == (1, 1)
    assert [run.version for run in world.store.runs("a")] == [1, 1]
    (told,) = [event.text for event in world.store.events if event.kind == "operation_failed"]
    assert "goes on with version 1" in told


def test_a_fork_without_its_state_does_not_begin_with_nothing(world: World) -> None:
    world.worker("a", "fail")
    done(world, world.store.ask("a", "fork", savepoint="s", of="b"), "failed")
    world.until(lambda: world.state("a") == "STOPPED", "that it stands")
    assert world.store.pipeline("a").desired == "stopped"
    assert world.store.runs("a") == []


def test_a_process_that_dies_is_followed_by_another(world: World) -> None:
    world.worker("a", "die once")
    assert done(world, world.store.ask("a", "upgrade")).attempts == 2
    running(world)


def test_after_a_few_it_is_given_up(world: World) -> None:
    world.worker("a", "die")
    found = done(world, world.store.ask("a", "upgrade"), "failed")
    assert (found.attempts, found.code) == (ATTEMPTS, "OPERATION_FAILED")
    running(world)


def test_one_that_is_not_wanted_any_more_is_killed(world: World) -> None:
    world.worker("a", "hang")
    world.store.want("a", version=2)
    asked = world.store.ask("a", "upgrade", back_to=1)
    world.until(lambda: world.state("a") == "UPGRADING" and world.operation(asked).pid, "that it is at work")
    world.store.cancel(asked, "bob")
    assert done(world, asked, "failed").code == "OPERATION_CANCELLED"
    running(world)
    assert world.store.pipeline("a").version == 1


def test_one_that_died_on_the_new_side_leaves_the_new_version(world: World) -> None:
    state = world.folders.state("a")
    put_state(state, {"v": 1})
    world.worker("a", "hang")
    world.store.want("a", version=2)
    asked = world.store.ask("a", "upgrade", back_to=1)
    world.until(lambda: world.state("a") == "UPGRADING" and world.operation(asked).pid, "that it is at work")
    put_state(state, {"v": 2})
    world.store.cancel(asked, "bob")
    done(world, asked, "failed")
    running(world)
    assert world.store.pipeline("a").version == 2


def test_a_server_that_comes_back_finds_what_was_begun(world: World) -> None:
    world.worker("a", "hang")
    asked = world.store.ask("a", "rescale", partitions=8)
    world.until(lambda: world.operation(asked).pid is not None, "that it is at work")
    pid = world.operation(asked).pid
    world.serve()
    world.tick()
    world.tick()
    assert world.operation(asked).pid == pid
    assert world.state("a") == "RESCALING"
    world.worker("a", "work")
    assert done(world, asked).attempts == 1


def test_a_request_that_was_never_written_is_written_later(world: World) -> None:
    run = running(world)
    asked = world.store.ask("a", "savepoint", name="now")
    # A server that was killed right after it had noted whom it asks.
    known = replace(world.operation(asked), run=run)
    world.store.operations[asked] = known
    world.store.snapshot = replace(world.store.snapshot, operations=(known,))
    world.serve()
    assert done(world, asked).run == run


def test_a_savepoint_is_verified_beside_the_run(world: World) -> None:
    run = running(world)
    found = done(world, world.store.ask("a", "verify", savepoint="s"))
    assert (found.attempts, found.run) == (1, None)
    assert running(world) == run


def test_savepoints_that_come_and_go_are_seen(world: World) -> None:
    running(world)
    state = world.folders.state("a")
    put_savepoint(state, "auto-1", automatic=True)
    world.until(lambda: [item.name for item in world.store.savepoints.get("a", ())] == ["auto-1"], "that it is seen")
    found = world.store.savepoints["a"][0]
    assert (found.batch, found.automatic, found.partitions) == (7, True, 2)
    put_savepoint(state, "two")
    (state / SAVEPOINTS / "broken").mkdir()
    world.until(lambda: len(world.store.savepoints["a"]) == 3, "that they are seen")
    assert {item.name: item.batch for item in world.store.savepoints["a"]} == {"auto-1": 7, "two": 7, "broken": None}
    shutil.rmtree(state / SAVEPOINTS / "auto-1")
    world.until(lambda: len(world.store.savepoints["a"]) == 2, "that it is gone")
    # A look at a folder that has not changed costs nothing more.
    old = 10**18
    os.utime(state / SAVEPOINTS, ns=(old, old))
    world.tick()
    world.store.savepoints.clear()
    world.tick()
    assert world.store.savepoints == {}
