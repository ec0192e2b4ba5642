"""From batches in the store to advice in events, in the API and on the command line."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.control.api.server import T0, Server
from tests.control.clocks import HandClock
from tests.control.files import yaml

from penstock.control.auth.roles import Role
from penstock.control.autoscale.service import ScalingService
from penstock.control.config import ServerConfig, Target
from penstock.control.store import history, pipelines
from penstock.control.store.supervision import numbers
from penstock.control.supervisor.health import Health
from penstock.control.supervisor.ports import BatchOf, Run
from penstock.control.supervisor.watched import Live
from penstock.reports.values import BacklogReport, BatchLine, HistoryReport, RunStatus

SCALE = "scale: {min: 1, max: 8}\n"


class World:
    """A server with a pipeline that runs on two cores and processes 1,000 rows a second on each."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.clock = HandClock(T0)
        self.live: dict[str, Live] = {}
        self.service = ScalingService(server.store, lambda: self.live, {"local": Target(master="local[2]")}, self.clock)
        object.__setattr__(server.services, "scaling", self.service.decision)
        self.number = 0

    def apply(self, body: str = SCALE) -> None:
        files = [{"path": "clicks.yaml", "text": yaml("clicks", body)}]
        assert self.server.client(Role.AUTHOR).post("/api/v1/apply", {"files": files}).status_code == 200

    def run(self, *, waiting: int = 0, unit: str = "rows", catching_up: bool = False) -> None:
        status = RunStatus(
            "r1", 1, "", "running", T0, backlog={"views": BacklogReport(waiting, unit)},
            history=HistoryReport(1, 2) if catching_up else None,
        )  # fmt: skip
        run = Run("r1", "clicks", 1, 1, "local", T0 - dt.timedelta(hours=1))
        self.live["clicks"] = Live("clicks", Health("RUNNING", ""), run, status)

    def batches(self, count: int, load: float, *, cores: int | None = 2) -> None:
        """One in ten seconds, up to now."""
        found = []
        for back in range(count, 0, -1):
            at = self.clock.now() - dt.timedelta(seconds=10 * back)
            line = BatchLine(
                self.number, at, round(10_000 * load / 2000), rows_in={"views": round(load * 10)}, epoch=1, cores=cores
            )
            found.append(numbers(BatchOf("clicks", "r1", line)))
            self.number += 1
        with self.server.store.writing() as connection:
            history.add_batches(connection, found)

    def minutes(self, count: int, load: float, **more: int) -> None:
        for _ in range(count):
            self.clock.skip(60)
            self.batches(6, load, **more)
            self.service.look()

    def advice(self) -> Sequence[history.Event]:
        with self.server.store.reading() as connection:
            return history.listed_events(connection, kind="scaling_advice", newest_first=False).items

    def scaling(self) -> dict[str, object]:
        found = self.server.client(Role.VIEWER).get("/api/v1/pipelines/clicks/scaling")
        assert found.status_code == 200
        return dict(found.json())


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    server = Server(tmp_path, ServerConfig())
    yield World(server)
    server.close()


def test_advice_is_an_event_with_each_term_of_its_formula(world: World) -> None:
    world.apply()
    world.run(waiting=1_200_000)
    world.minutes(6, 1900)

    (event,) = world.advice()
    assert event.pipeline == "clicks"
    assert event.text == (
        "load 1,800/s ÷ 0.7 + lag 1.2 M ÷ 30 min + restart 1 min → 3,300/s; 2 cores give 2,000/s → 4 cores: "
        "more is needed, 2 → 4 cores"
    )
    assert (event.data["action"], event.data["before"], event.data["after"]) == ("up", 2, 4)
    assert event.data["evaluation"]["by_lag"] == pytest.approx(1_200_000 / 1800)
    assert event.data["wanted"] == pytest.approx(1900 / 0.7 + 1_200_000 / 1800 + 1900 * 60 / 1800, rel=0.05)


def test_the_api_answers_with_the_last_decision(world: World) -> None:
    world.apply()
    world.run()
    world.minutes(6, 1900)

    found = world.scaling()
    assert (found["configured"], found["action"], found["cores"], found["advised"]) == (True, "up", 2, 3)
    terms = found["terms"]
    assert isinstance(terms, dict)
    assert terms["wanted"] == pytest.approx(terms["byLoad"] + terms["byLag"] + terms["byRestart"])
    assert terms["capacity"] == pytest.approx(2000)
    assert str(found["text"]).startswith("load 1,900/s ÷ 0.7")


def test_a_pipeline_without_scale_gets_no_advice(world: World) -> None:
    world.apply("")
    world.run()
    world.minutes(6, 1900)

    assert not world.advice()
    assert world.scaling()["configured"] is False


def test_a_pipeline_that_does_not_run_gets_no_advice(world: World) -> None:
    world.apply()
    world.minutes(6, 1900)

    assert world.scaling() | {"configured": True, "action": None, "text": None} == world.scaling()


def test_history_that_is_read_first_is_not_judged(world: World) -> None:
    world.apply()
    world.run(catching_up=True)
    world.minutes(6, 1900)

    assert not world.advice()


def test_cores_that_no_batch_tells_of_are_those_of_the_target(world: World) -> None:
    world.apply()
    world.run()
    world.minutes(6, 1900, cores=None)  # type: ignore[arg-type]

    assert world.scaling()["cores"] == 2


def test_files_that_wait_are_not_taken_for_rows(world: World) -> None:
    world.apply()
    world.run(waiting=1_200_000, unit="files")
    world.minutes(6, 1400)

    assert not world.advice()
    assert world.scaling()["action"] == "keep"


def test_another_pipeline_of_the_same_name_begins_anew(world: World) -> None:
    world.apply()
    world.run()
    world.minutes(6, 1900)
    with world.server.store.writing() as connection:
        pipelines.forget(connection, "clicks")
    world.server.time = T0 + dt.timedelta(hours=1)
    world.apply("scale: {min: 1, max: 2}\n")
    world.minutes(6, 1900)

    assert world.scaling()["advised"] == 2


def test_a_changed_scale_holds_from_the_next_look_on(world: World) -> None:
    world.apply()
    world.run()
    world.minutes(6, 1900)
    world.apply("scale: {min: 1, max: 2}\n")
    world.minutes(1, 1900)

    assert world.scaling()["why"] == "2 is the most that is allowed, and it is not enough"


def test_a_failing_look_is_said_and_is_not_the_last(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    def fail() -> None:
        looks.append(1)
        if len(looks) == 2:
            world.service.end()
        raise OSError("no space left")

    monkeypatch.setattr(world.service, "look", fail)
    monkeypatch.setattr("penstock.control.autoscale.service.LOOK_SECONDS", 0.001)
    world.service.run()

    assert len(looks) == 2
    assert world.service.trouble == "OSError: no space left"
