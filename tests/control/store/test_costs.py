"""What makes a server of hundreds of pipelines fast: few statements, whatever their number, and indexes for them."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

import pytest
from sqlalchemy import text
from tests.control.clocks import HandClock
from tests.control.counting import statements
from tests.control.store.databases import T0, create
from tests.control.supervisor.world import Pretended

from penstock.control.files import DataFolder
from penstock.control.metrics import scrape
from penstock.control.store import history, pipelines
from penstock.control.store.database import Store
from penstock.control.store.recent import recent
from penstock.control.store.supervision import SupervisorStore
from penstock.control.supervisor import decide
from penstock.control.supervisor.loop import Supervisor
from penstock.control.supervisor.ports import Target
from penstock.errors import PenstockError
from penstock.reports.values import RunEnd

MANY = 200


def filled(store: Store, count: int) -> None:
    with store.writing() as connection:
        for number in range(count):
            create(connection, f"p{number}")
        batches = (
            history.BatchNumbers(f"p{number}", "r000000000001", batch, T0, 10, 1, 1, balanced=batch > 0)
            for number in range(count)
            for batch in range(3)
        )
        history.add_batches(connection, batches)


@pytest.mark.parametrize("count", [1, MANY])
def test_metrics_take_the_same_few_statements_for_one_pipeline_and_for_many(store: Store, count: int) -> None:
    filled(store, count)
    with statements(store) as asked:
        scrape(store, {}, HandClock(T0), tick_seconds=0.1)
    # Pipelines, their last batches, rows, unbalanced ones, restarts, pipelines again; alerts, channels, the outbox.
    assert len(asked) == 9


def test_the_unbalanced_batches_of_an_hour_are_found_without_reading_the_others(store: Store) -> None:
    filled(store, 50)
    with statements(store) as asked, store.reading() as connection:
        found = recent(connection, T0, T0 - dt.timedelta(hours=1))
    assert {each.unbalanced for each in found.values()} == {1}
    (query,) = [statement for statement in asked if "balanced IS" in statement]
    if store.engine.dialect.name == "sqlite":
        with store.reading() as connection:
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}", ("2026-03-01",)).all()
        assert "ix_batches_unbalanced" in str(plan)
    else:
        with store.reading() as connection:
            connection.execute(text("SET LOCAL enable_seqscan = off"))
            values = {"at_1": T0 - dt.timedelta(hours=1)}
            plan = connection.exec_driver_sql(f"EXPLAIN {query}", values).all()
        assert "ix_batches_unbalanced" in str(plan)


def test_the_newest_batches_of_a_pipeline_are_found_without_sorting_all(store: Store) -> None:
    filled(store, 50)
    with statements(store) as asked, store.reading() as connection:
        assert [item.batch for item in history.batches_of(connection, "p7", limit=2).items] == [2, 1]
    with store.reading() as connection:
        if store.engine.dialect.name == "sqlite":
            plan = str(connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {asked[0]}", ("p7", 3, 0)).all())
            assert "TEMP B-TREE" not in plan
        else:
            connection.execute(text("SET LOCAL enable_seqscan = off"))
            connection.execute(text("SET LOCAL enable_sort = off"))
            plan = str(connection.exec_driver_sql(f"EXPLAIN {asked[0]}", {"pipeline_1": "p7", "param_1": 3}).all())
        assert "ix_batches_pipeline_id" in plan


class Fleet:
    """A supervisor on a real store, whose runs report when they are told to."""

    def __init__(self, store: Store, folder: Path, count: int) -> None:
        with store.writing() as connection:
            for number in range(count):
                create(connection, f"p{number}")
        self.store, self.data, self.processes = store, DataFolder(folder), Pretended()
        self.supervisor = Supervisor(
            SupervisorStore(store, self.data, "local"),
            self.data,
            lambda: {"local": Target()},
            base=folder,
            processes=self.processes,
        )

    def tick(self, before: Callable[[], object] = lambda: None, *, ended: bool = False) -> int:
        """How many statements a tick took; `ended` says that no process of a run lives any more."""
        before()
        is_alive = "penstock.control.supervisor.observe.is_alive"
        alive = mock.patch(is_alive, return_value=False) if ended else nullcontext()
        with statements(self.store) as asked, alive:
            self.supervisor.tick()
        return len(asked)

    def fail(self) -> None:
        """All runs end at once."""
        problem = PenstockError.of("SINK_UNREACHABLE", node="store", server="db", reason="no").problems[0].as_dict()
        for folder, order in self.processes.orders.values():
            folder.write_end(RunEnd(order.run, dt.datetime.now(dt.UTC), 1, "failed", (problem,)))


def test_a_tick_takes_as_many_statements_for_many_pipelines_as_for_a_few(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decide, "FIRST_PAUSE", 600.0)
    few = Fleet(store, tmp_path / "few", 3)
    costs = [[few.tick(), few.tick(lambda: few.processes.report(0)), few.tick(lambda: few.processes.report(1))]]
    costs[0] += [few.tick(few.fail, ended=True), few.tick()]
    with store.writing() as connection:
        for number in range(3):
            pipelines.forget(connection, f"p{number}")
    many = Fleet(store, tmp_path / "many", MANY)
    first = many.tick()
    costs.append([many.tick(lambda: many.processes.report(0)), many.tick(lambda: many.processes.report(1))])
    costs[1] += [many.tick(many.fail, ended=True), many.tick()]

    assert len(many.processes.orders) == MANY
    # The first tick reads the file of each pipeline once.
    assert first - costs[0][0] == MANY - 3
    assert costs[0][1:] == costs[1]
    assert max(costs[1]) <= 16
    with store.reading() as connection:
        found = pipelines.every(connection)
        assert {(item.state, item.observed_generation, item.rows_in) for item in found} == {("BACKING_OFF", 1, 2)}
        assert len(history.batches_of(connection, "p7").items) == 2
        (failed,) = history.exceptions_of(connection, pipeline="p7").items
        assert failed.code == "SINK_UNREACHABLE"
    assert os.getpid() not in [pid for _, pid in many.processes.signals]
