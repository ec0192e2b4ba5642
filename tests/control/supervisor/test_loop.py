"""The supervisor with processes that report as runners do: what is wanted comes about, whatever happens to them."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.control.supervisor.world import FAKE, Pretended, World, notice

from penstock.control.supervisor.act import Processes, remove_old_runs
from penstock.control.supervisor.notices.file import FileNotices
from penstock.control.supervisor.notices.hook import HookNotices
from penstock.control.supervisor.ports import Target
from penstock.reports.folder import RunFolder
from penstock.reports.processes import is_alive


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    found = World(tmp_path)
    yield found
    found.end()


def started(world: World, *names: str) -> None:
    for name in names:
        world.store.want(name)
    world.until(lambda: all(world.state(name) == "RUNNING" for name in names), "all run")


def test_what_is_wanted_runs_and_reports_and_stops_when_it_is_not(world: World) -> None:
    started(world, "demo")
    run = world.open_run("demo")
    assert run is not None
    world.until(lambda: len(world.store.batches) >= 3, "batches")
    assert sorted(number for _, number in world.store.batches) == list(range(len(world.store.batches)))
    assert world.store.pipeline("demo").observed_generation == 1
    order = RunFolder(world.folders.run("demo", run.id)).order
    assert order is not None
    assert (order.file, order.version, order.folder) == ("/versions/demo.yaml", 1, str(world.folder))
    assert world.supervisor.live()["demo"].status is not None

    world.store.want("demo", desired="stopped")
    world.tick()
    assert (world.state("demo"), world.store.pipeline("demo").observed_generation) == ("STOPPING", 1)
    world.until(lambda: world.state("demo") == "STOPPED", "it stopped")
    assert world.store.pipeline("demo").observed_generation == 2
    (ended,) = world.store.runs("demo")
    assert (ended.outcome, ended.exit_code, ended.epoch) == ("stopped", 0, 1)
    assert world.store.kinds("demo") == ["start", "stop", "run_ended"]
    before = len(world.store.runs("demo"))
    for _ in range(3):
        world.tick()
    assert len(world.store.runs("demo")) == before


def test_a_new_version_takes_the_place_of_the_old_one(world: World) -> None:
    started(world, "demo")
    world.store.want("demo", version=2)
    world.until(lambda: [run.version for run in world.store.runs("demo")] == [1, 2], "the new version")
    first, second = world.store.runs("demo")
    assert first.ended_at is not None
    assert first.ended_at <= second.started_at, "never two at once"
    world.until(lambda: world.store.pipeline("demo").observed_generation == 2, "it is seen to")


def test_a_killed_runner_comes_back_and_no_batch_is_noted_twice_or_lost(world: World) -> None:
    started(world, "demo")
    pid, _ = world.process("demo")
    os.kill(pid, signal.SIGKILL)
    world.until(lambda: world.state("demo") == "BACKING_OFF", "it is seen")
    (died,) = world.store.runs("demo")
    assert (died.outcome, died.reason) == ("died", "its process ended without a word")
    written = RunFolder(world.folders.run("demo", died.id)).read_batches()[0]
    assert [line.batch for line in written] == sorted(number for run, number in world.store.batches if run == died.id)
    world.clock.skip(3)
    world.until(lambda: world.state("demo") == "RUNNING", "it is back")
    assert world.store.kinds("demo") == ["start", "run_ended", "start"]


def test_a_mistake_fails_at_once_with_its_cause_and_is_tried_again_only_after_a_change(world: World) -> None:
    world.mode("demo", "mistake")
    world.store.want("demo")
    world.until(lambda: world.state("demo") == "FAILED", "it is given up")
    assert world.store.pipeline("demo").state_reason == "SQL of 'clean' cannot be parsed: near FORM"
    assert world.store.failures[0]["code"] == "SQL_SYNTAX"
    world.clock.skip(3600)
    world.tick()
    assert len(world.store.runs("demo")) == 1
    assert world.store.kinds("demo") == ["start", "run_ended", "give_up"]
    world.mode("demo", "run")
    world.store.want("demo")
    world.until(lambda: world.state("demo") == "RUNNING", "it runs")


def test_an_outage_is_waited_out_with_a_budget(world: World) -> None:
    world.targets["local"] = Target(conf={"spark.fake.mode": "outage", "spark.fake.budget": "2"})
    world.store.want("demo")
    for count in (1, 2, 3):
        world.until(lambda count=count: len([r for r in world.store.runs("demo") if not r.open]) == count, "a failure")  # type: ignore[misc]
        world.clock.skip(20)
    world.tick()
    assert world.state("demo") == "BACKING_OFF"
    assert "2 restarts in the last hour" in world.supervisor.live()["demo"].health.evidence
    world.targets["local"] = Target()
    world.clock.skip(3600)
    world.until(lambda: world.state("demo") == "RUNNING", "the next hour has its own budget")


def test_a_run_that_gives_no_sign_of_life_is_killed_and_its_state_taken_over(world: World) -> None:
    started(world, "demo")
    pid, born = world.process("demo")
    os.kill(pid, signal.SIGSTOP)
    time.sleep(0.1)
    world.tick()
    world.clock.skip(20)
    world.tick()
    assert world.state("demo") == "STALLED"
    assert world.supervisor.live()["demo"].health.evidence.startswith("no sign of life for 2")
    world.clock.skip(45)
    world.until(lambda: not is_alive(pid, born), "the zombie is dead")
    world.until(lambda: not any(run.open for run in world.store.runs("demo")), "its end is noted")
    world.clock.skip(5)
    world.until(lambda: world.state("demo") == "RUNNING", "another run")
    first, second = world.store.runs("demo")
    assert (first.outcome, second.take_over) == ("died", True)
    assert (first.reason or "").startswith("no sign of life for 1 min")


def test_a_run_that_does_not_stop_is_killed(world: World) -> None:
    world.targets["local"] = Target(conf={"spark.fake.mode": "deaf"})
    started(world, "demo")
    world.store.want("demo", desired="stopped")
    world.tick()
    world.tick()
    assert world.state("demo") == "STOPPING"
    world.clock.skip(121)
    world.until(lambda: world.state("demo") == "STOPPED", "it is gone")
    assert world.store.kinds("demo") == ["start", "stop", "kill", "run_ended"]


def test_a_new_server_adopts_what_runs_within_one_tick(world: World) -> None:
    started(world, "one", "two")
    processes = [world.process(name) for name in ("one", "two")]
    seen = len(world.store.batches)
    world.serve()
    time.sleep(0.2)
    world.tick()
    assert world.store.kinds("one") == ["start", "adopt"]
    assert all(is_alive(*process) for process in processes)
    assert len(world.store.batches) > seen, "what was reported meanwhile is noted"
    for name in ("one", "two"):
        assert len(world.store.runs(name)) == 1
        numbers = sorted(number for run, number in world.store.batches if run == world.store.runs(name)[0].id)
        assert numbers == list(range(len(numbers)))


def test_a_server_that_died_between_noting_and_starting_a_run_starts_another(world: World) -> None:
    world.store.want("demo")
    world.processes = Processes(("/bin/true",))
    world.serve().tick()
    (lost,) = world.store.runs("demo")
    world.processes = Processes(FAKE)
    world.serve()
    world.clock.skip(61)
    world.until(lambda: world.store.runs("demo")[0].ended_at, "it is found to be lost")
    assert world.store.runs("demo")[0].id == lost.id
    world.clock.skip(5)
    world.until(lambda: world.state("demo") == "RUNNING", "another one runs")


def test_pipelines_go_on_without_the_store_and_it_learns_later_what_happened(world: World) -> None:
    started(world, "demo")
    world.store.down = True
    pid, _ = world.process("demo")
    os.kill(pid, signal.SIGKILL)
    for _ in range(5):
        world.tick()
        time.sleep(0.05)
    down = world.supervisor.store_down
    assert down == "cannot write to the store: it is down"
    world.clock.skip(5)
    world.until(lambda: world.supervisor.live()["demo"].health.state == "RUNNING", "a new run without the store")
    world.store.down = False
    world.tick()
    world.tick()
    assert [run.outcome for run in world.store.runs("demo")] == ["died", None]
    assert world.supervisor.store_down is None
    for run in world.store.runs("demo"):
        numbers = sorted(number for found, number in world.store.batches if found == run.id)
        assert numbers == list(range(len(numbers)))


def test_a_notice_moves_pipelines_and_the_times_are_kept(tmp_path: Path) -> None:
    hook = HookNotices()
    targets = {"spot": Target(failover=("calm",)), "calm": Target()}
    world = World(tmp_path, targets=targets, heralds=(hook,))
    try:
        world.store.want("demo", target="spot")
        world.until(lambda: world.state("demo") == "RUNNING", "it runs")
        hook.tell(notice("spot"))
        world.until(lambda: len(world.store.runs("demo")) == 2, "it has moved")
        world.until(lambda: world.state("demo") == "RUNNING", "it runs elsewhere")
        world.until(lambda: all(move.caught_up_at for move in world.store.failovers.values()), "it has caught up")
        (move,) = world.store.failovers.values()
        assert (move.from_target, move.to_target) == ("spot", "calm")
        assert move.stopped_at is not None
        assert move.started_at is not None
        assert move.caught_up_at is not None
        assert move.noticed_at <= move.stopped_at <= move.started_at <= move.caught_up_at
        assert [run.target for run in world.store.runs("demo")] == ["spot", "calm"]
        assert world.store.pipeline("demo").target == "calm"
        assert world.store.kinds("demo") == ["start", "fail_over", "run_ended", "start", "failover_done"]
        hook = HookNotices()
        world.heralds = (hook,)
        world.serve()
        world.tick()
        assert [item.target for item in world.store.snapshot.notices] == ["spot"], "a new server still knows it"
        hook.withdraw("spot")
        world.tick()
        assert world.store.snapshot.notices == ()
    finally:
        world.end()


def test_a_runner_that_somebody_else_terminates_goes_on_elsewhere(tmp_path: Path) -> None:
    world = World(tmp_path, targets={"spot": Target(failover=("calm",)), "calm": Target()})
    try:
        world.store.want("demo", target="spot")
        world.until(lambda: world.state("demo") == "RUNNING", "it runs")
        os.kill(world.process("demo")[0], signal.SIGTERM)
        world.until(lambda: world.store.runs("demo")[0].outcome == "stopped", "it stopped by itself")
        world.clock.skip(5)
        world.until(lambda: world.state("demo") == "RUNNING", "it runs again")
        assert [run.target for run in world.store.runs("demo")] == ["spot", "calm"]
        assert [move.to_target for move in world.store.failovers.values()] == ["calm"]
    finally:
        world.end()


def test_a_file_is_a_notice_while_it_is_there(tmp_path: Path) -> None:
    heard = FileNotices(tmp_path / "notices", ["spot", "local"])
    assert heard.notices() == ()
    (tmp_path / "notices").mkdir()
    (tmp_path / "notices" / "spot").write_text("2024-01-01T12:00:00Z\n")
    (tmp_path / "notices" / "unknown").touch()
    (found,) = heard.notices()
    assert (found.target, found.deadline) == ("spot", dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC))
    (tmp_path / "notices" / "spot").write_text("soon")
    assert heard.notices()[0].deadline is None


def test_two_hundred_pipelines_take_one_read_and_one_write_a_tick(tmp_path: Path) -> None:
    processes = Pretended()
    world = World(tmp_path, processes=processes)
    for number in range(200):
        world.store.want(f"p{number}")
    world.tick()
    assert len(processes.orders) == 200
    took, calls = [], []
    for batch in range(6):
        processes.report(batch)
        before, began = world.store.loads + world.store.saves, time.process_time()
        world.supervisor.tick()
        took.append(time.process_time() - began)
        calls.append(world.store.loads + world.store.saves - before)
    assert set(calls[2:]) == {2}
    assert len(world.store.batches) == 200 * 6
    assert {world.state(f"p{number}") for number in range(200)} == {"RUNNING"}
    assert sorted(took)[len(took) // 2] < 1.0
    assert len(world.store.snapshot.runs) == 200


def test_a_signal_reaches_only_the_very_process(world: World) -> None:
    started(world, "demo")
    pid, born = world.process("demo")
    world.processes.kill(pid, f"{born}0")
    assert is_alive(pid, born)
    world.processes.kill(pid, born)
    world.until(lambda: not is_alive(pid, born), "its end")
    world.processes.kill(pid, born)


def test_a_runner_that_cannot_be_started_is_a_failed_run(world: World) -> None:
    world.processes = Processes(("/no/such/program",))
    world.serve()
    world.store.want("demo")
    world.until(lambda: world.state("demo") == "BACKING_OFF", "it is tried again later")
    (run,) = world.store.runs("demo")
    assert (run.outcome, run.code) == ("failed", "RUN_NOT_STARTED")


def test_folders_of_old_runs_are_removed(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"r{number}").mkdir()
        os.utime(tmp_path / f"r{number}", (number, number))
    assert remove_old_runs(tmp_path, 2, frozenset({"r0"})) == ["r2", "r1"]
    assert sorted(item.name for item in tmp_path.iterdir()) == ["r0", "r3", "r4"]


def test_one_pipeline_that_cannot_be_seen_to_does_not_stop_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = world.folders.run

    def wrong(name: str, run: str) -> Path:
        if name == "bad":
            raise RuntimeError("no such luck")
        return right(name, run)

    started(world, "bad")
    monkeypatch.setattr(type(world.folders), "run", lambda self, name, run: wrong(name, run))
    world.store.want("good")
    world.until(lambda: world.state("good") == "RUNNING", "the other one runs")
    assert [event.text for event in world.store.events if event.kind == "supervisor_failed"] == [
        "the supervisor failed: RuntimeError: no such luck"
    ]
    monkeypatch.undo()


def test_events_are_plain_values(world: World) -> None:
    started(world, "demo")
    data = [dict(event.data) for event in world.store.events]
    assert data
    assert json.loads(json.dumps(data)) == data
