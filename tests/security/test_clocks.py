"""The time of day is set by an hour, in either direction, while a server works: nothing waits an hour, and nothing is
killed or forgotten that should not be."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import select
from tests.control.alerts.memory import MemoryStore
from tests.control.alerts.test_measure import SAMPLE
from tests.control.clocks import HandClock
from tests.control.supervisor.world import World

from penstock.control.alerts.watch import Watch, Watched
from penstock.control.clock import Clock, Moments
from penstock.control.config import ServerConfig
from penstock.control.files import DataFolder
from penstock.control.serve import _Keeper
from penstock.control.store import schema
from penstock.control.store.database import Store
from penstock.control.supervisor.decide import Case, decide, recent
from penstock.control.supervisor.ports import Run, Target, Wanted
from penstock.reports.processes import is_alive
from penstock.spec.alerts import Alert

START = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
HOUR = 3600
STEP = 9.7
"""Seconds between two looks: no time that counts is a multiple of it, so none is missed by a millionth."""
JUMPS = st.dictionaries(
    st.integers(1, 900), st.sampled_from([-2 * HOUR, -HOUR, -600, -5, 5, 600, HOUR, 2 * HOUR]), max_size=5
)


class Story:
    """A pipeline whose runs fail one after the other and do not stop when they are told to, looked at now and then.

    Times of day are all that is kept of a run, as in the store.
    """

    def __init__(self, owner: str, lives: int, budget: int) -> None:
        self.clock = HandClock(START)
        self.moments = Moments(self.clock)
        self.wanted = Wanted("demo", "running", 1, 1, "/v/1.yaml", restarts_per_hour=budget)
        self.owner, self.lives = owner, lives
        self.run: Run | None = None
        self.past: list[Run] = []
        self.born = 0
        self.told: list[tuple[int, str]] = []

    def step(self, number: int, stop: bool) -> None:
        self.clock.skip(STEP)
        now, steady = self.clock.both()
        if self.run is not None and number - self.born >= self.lives and self.run.stop_asked_at is None:
            code = {"external": "SINK_UNREACHABLE", "bug": "BATCH_FAILED"}[self.owner]
            self.end(replace(self.run, ended_at=now, outcome="failed", owner=self.owner, code=code))
        # As much of the past as the store gives.
        since = self.clock.earliest(dt.timedelta(hours=1))
        past = [run for run in self.past[:-1] if run.started_at >= since] + self.past[-1:]
        wanted = replace(self.wanted, desired="stopped" if stop else "running")
        run = None if self.run is None else self.moments.run(self.run)
        past = recent([self.moments.run(item) for item in past], steady)
        found = decide(Case(wanted, run, past=past), steady)
        if found.kind not in ("nothing", "wait"):
            self.told.append((number, found.kind))
        if found.kind == "start":
            self.run = Run(f"r{number}", "demo", 1, 1, "local", now, restarts_per_hour=self.wanted.restarts_per_hour)
            self.born = number
        elif found.kind == "stop" and self.run is not None:
            self.run = replace(self.run, stop_asked_at=now)
        elif found.kind == "kill" and self.run is not None:
            self.end(replace(self.run, kill_asked_at=now, ended_at=now, outcome="died"))
        for item in (*self.past[-1:], *(() if self.run is None else (self.run,))):
            self.moments.run(item)

    def end(self, run: Run) -> None:
        self.past.append(run)
        self.run = None


def told(
    owner: str, lives: int, budget: int, stops: tuple[int, int], jumps: Mapping[int, int]
) -> list[tuple[int, str]]:
    """What was decided in two and a half hours, and at which look."""
    story = Story(owner, lives, budget)
    for number in range(900):
        story.clock.set(jumps.get(number, 0))
        story.step(number, stop=stops[0] <= number < stops[0] + stops[1])
    return story.told


@settings(max_examples=15, phases=(Phase.explicit, Phase.generate))
@given(
    owner=st.sampled_from(["external", "bug"]),
    lives=st.integers(1, 60),
    budget=st.integers(0, 8),
    stops=st.tuples(st.integers(0, 900), st.integers(1, 60)),
    jumps=JUMPS,
)
def test_what_is_decided_and_when_is_what_would_be_if_nobody_had_set_the_clock(
    owner: str, lives: int, budget: int, stops: tuple[int, int], jumps: Mapping[int, int]
) -> None:
    usual = told(owner, lives, budget, stops, {})
    assert told(owner, lives, budget, stops, jumps) == usual
    assert usual


# --- a supervisor with processes ---------------------------------------------------------------------------


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    found = World(tmp_path)
    yield found
    found.end()


@pytest.mark.parametrize("jump", [-HOUR, HOUR])
def test_a_run_that_failed_comes_back_in_seconds_and_one_that_runs_is_left_alone(world: World, jump: int) -> None:
    for name in ("fails", "runs"):
        world.store.want(name)
    world.until(lambda: {world.state(name) for name in ("fails", "runs")} == {"RUNNING"}, "both run")
    calm = world.process("runs")
    world.mode("fails", "outage")
    world.until(lambda: world.state("fails") == "BACKING_OFF", "it fails")
    world.clock.set(jump)
    world.mode("fails", "run")
    world.tick()
    assert "next start in" in world.supervisor.live()["fails"].health.evidence
    assert " h " not in world.supervisor.live()["fails"].health.evidence
    world.clock.skip(3)
    world.until(lambda: world.state("fails") == "RUNNING", "it is back after its pause")
    first, second = world.store.runs("fails")
    assert (first.open, second.open) == (False, True)
    assert is_alive(*calm)
    assert world.store.kinds("runs") == ["start"]


@pytest.mark.parametrize("jump", [-HOUR, HOUR])
def test_a_run_that_stops_has_its_two_minutes_and_no_more(world: World, jump: int) -> None:
    world.targets["local"] = Target(conf={"spark.fake.mode": "deaf"})
    world.store.want("demo")
    world.until(lambda: world.state("demo") == "RUNNING", "it runs")
    process = world.process("demo")
    world.store.want("demo", desired="stopped")
    world.tick()
    world.clock.set(jump)
    for _ in range(3):
        world.tick()
    assert is_alive(*process)
    assert world.state("demo") == "STOPPING"
    world.serve()
    world.clock.skip(115)
    world.tick()
    assert world.store.kinds("demo") == ["start", "stop"], "nor does another server kill it"
    world.clock.skip(10)
    world.until(lambda: world.state("demo") == "STOPPED", "it is gone")
    assert not is_alive(*process)


@pytest.mark.parametrize("jump", [-HOUR, HOUR])
def test_the_newest_run_is_the_one_that_was_started_last(world: World, jump: int) -> None:
    world.store.want("demo")
    world.until(lambda: world.state("demo") == "RUNNING", "it runs")
    for version in (2, 3):
        world.clock.set(jump)
        world.store.want("demo", version=version)
        world.until(
            lambda version=version: (run := world.open_run("demo")) is not None and run.version == version,  # type: ignore[misc]
            "the new version runs",
        )
    assert [run.version for run in world.store.runs("demo")] == [1, 2, 3]
    assert sum(run.open for run in world.store.runs("demo")) == 1


# --- alerts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jump", [-HOUR, HOUR])
def test_an_alert_fires_after_its_time_and_is_over_after_its_minute(jump: int) -> None:
    clock = HandClock(START)
    rule = Alert.model_validate({"when": "restarts >= 3", "for": "20 s"})
    watch = Watch(MemoryStore(), {}, Moments(clock).of)

    def look(restarts: int) -> list[str]:
        clock.skip(10)
        sample = replace(SAMPLE, restarts=restarts, now=clock.now())
        return [
            str(change.transition) for change in watch.look([Watched("demo", {rule.title: rule}, sample)], clock.now())
        ]

    assert look(3) == []
    clock.set(jump)
    assert [look(3), look(3)] == [[], ["firing"]]
    assert look(0) == []
    clock.set(jump)
    assert [look(0) for _ in range(6)] == [[]] * 5 + [["resolved"]]


def test_the_server_keeps_both_clocks_for_the_next_one(tmp_path: Path) -> None:
    file = tmp_path / "clock.json"
    assert Clock(file=file).steady() <= Clock(file=file).steady()
    assert file.exists()


# --- what deletes by age -----------------------------------------------------------------------------------


def test_files_of_deleted_pipelines_go_after_their_days_and_not_for_a_clock_that_was_set_forward(
    tmp_path: Path,
) -> None:
    folder, clock = DataFolder(tmp_path), HandClock(START)
    store = Store.in_folder(tmp_path)
    store.migrate()
    keeper = _Keeper(store, ServerConfig(), clock, folder)
    (folder.pipeline("gone") / "state").mkdir(parents=True)
    (folder.pipeline("gone") / "state" / "dead").write_bytes(b"x" * 10_000)
    folder.put_aside("gone", clock.now())
    clock.skip(6 * 86_400)
    clock.set(400 * 86_400)
    keeper.clean()
    assert len(list((tmp_path / "deleted").iterdir())) == 1
    clock.set(-400 * 86_400)
    clock.skip(86_401)
    keeper.clean()
    assert list((tmp_path / "deleted").iterdir()) == []
    with store.reading() as connection:
        noted = connection.execute(select(schema.audit)).mappings().one()
        (event,) = connection.execute(select(schema.events)).mappings()
    assert (noted["who"], noted["action"], noted["object"]) == ("server", "pipeline.purge", "gone")
    assert noted["detail"]["bytes"] >= 10_000
    assert event["kind"] == "files_removed"
    store.close()
