"""A sink that has lost batches, and state that is older than its sinks, are refused before anything is written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.components.sql_stores import PostgresStore, Store, batch, frame, opened
from tests.engine.running import course, json_lines

from penstock.components.shared import crashpoints
from penstock.engine.ledger import Gap, Ledger
from penstock.engine.savepoints.take import Wish
from penstock.errors import PenstockError
from penstock.runner.savepoints import create, restore_into
from penstock.runner.sink_gaps import accept_gap
from penstock.testing import shared_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.conftest import Project

pytestmark = pytest.mark.spark


def body(sink: str) -> str:
    return f"""
        sources:
          rows:
            files: {{path: ./in, maxFilesPerBatch: 1}}
            format: {{json: {{schema: {{id: bigint, at: timestamp}}}}}}
        sinks:
          out: {{from: rows, {sink}}}
    """


class Case:
    """A pipeline that stores ten rows with each batch."""

    def __init__(self, project: Project, sink: str) -> None:
        self.project = project
        self.text = body(sink)
        self.state = project.folder / "state"
        self.batches = 0

    def run(self, batches: int = 1) -> None:
        for _ in range(batches):
            rows = [{"id": 10 * self.batches + number} for number in range(10)]
            self.project.put(f"in/{self.batches}.json", json_lines(rows))
            self.batches += 1
        course(self.project.build(self.text), self.state)

    def refused(self, code: str = "SINK_BEHIND") -> dict[str, Any]:
        with pytest.raises(PenstockError) as told:
            course(self.project.build(self.text), self.state)
        assert told.value.code == code
        return dict(told.value.problems[0].params)


def backup(store: Store) -> Callable[[], None]:
    """Keeps a copy of the database as it is now; what puts it back."""
    back: tuple[str, ...]
    if isinstance(store, PostgresStore):
        store.execute("CREATE TABLE kept AS TABLE t", "CREATE TABLE kept_batches AS TABLE _penstock_batches")
        back = ("TRUNCATE t, _penstock_batches", "INSERT INTO t TABLE kept",
                "INSERT INTO _penstock_batches TABLE kept_batches")  # fmt: skip
    else:
        store.execute(
            "CREATE TABLE kept AS SELECT * FROM t", "CREATE TABLE kept_batches AS SELECT * FROM _penstock_batches"
        )
        back = ("DELETE FROM t", "DELETE FROM _penstock_batches", "INSERT INTO t SELECT * FROM kept",
                "INSERT INTO _penstock_batches SELECT * FROM kept_batches")  # fmt: skip
    return lambda: store.execute(*back)


def stored(store: Store) -> list[int]:
    return [int(row[0]) for row in store.query("SELECT id FROM t ORDER BY id")]


def test_a_restored_database_is_refused_and_a_savepoint_brings_the_rows_back(
    store: Store, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    if store.database is not None:
        monkeypatch.setenv("DB_URL", store.url())
    case = Case(project, f"{store.yaml()}, batchColumn: batch}}")
    case.run(2)
    create(project.load(case.text), case.state, Wish("early"), spark=shared_session())
    put_back = backup(store)
    case.run(3)
    put_back()
    case.project.put("in/5.json", json_lines([{"id": 50}]))
    for _ in range(2):
        told = case.refused()
        assert (told["node"], told["position"], told["noted"]) == ("out", 1, 4)
        assert "3 batches with 30 rows" in str(told["missing"])
        assert "--restore early" in str(told["way"])
        assert stored(store) == list(range(20))
    assert Ledger(case.state / "ledger.db").gaps() == [Gap("out", 1, 4, 30)]
    restore_into(project.load(case.text), case.state, case.state / "savepoints" / "early")
    course(project.build(case.text), case.state)
    assert stored(store) == [*range(50), 50]


def test_a_loss_that_was_accepted_is_not_refused_again_and_the_next_one_is(store: Store, project: Project) -> None:
    if store.name != "sqlite":
        pytest.skip("what is accepted is noted in the ledger, whatever the database")
    case = Case(project, f"{store.yaml()}}}")
    file = project.load(case.text)
    case.run(1)
    with pytest.raises(PenstockError, match="SINK_NOT_BEHIND"):
        accept_gap(file, case.state, "out")
    put_back = backup(store)
    case.run(2)
    put_back()
    case.refused()
    assert [(gap.position, gap.noted, gap.rows) for gap in accept_gap(file, case.state, "out")] == [(0, 2, 20)]
    case.run(1)
    assert stored(store) == [*range(10), *range(30, 40)]
    (gap,) = Ledger(case.state / "ledger.db").gaps()
    assert gap.accepted is not None
    put_back()
    assert (case.refused()["position"], case.refused()["noted"]) == (0, 3)


def test_a_replica_that_takes_over_while_a_run_is_at_work_is_refused(store: Store, spark: SparkSession) -> None:
    writer = opened(store, spark)
    for number in range(3):
        assert writer.write(batch(number), frame(spark, (f"a{number}",)))
    back = "UPDATE _penstock_batches SET batch = 0"

    def fail_over(point: str, number: int) -> None:
        if point == "sink.staged":
            store.execute(back)

    crashpoints.install(fail_over)
    try:
        with pytest.raises(PenstockError, match="SINK_BEHIND"):
            writer.write(batch(3), frame(spark, ("a3",)))
    finally:
        crashpoints.install(None)
    with pytest.raises(PenstockError, match="SINK_BEHIND"):
        writer.write(batch(3), frame(spark, ("a3",)))
    assert store.query("SELECT count(*) FROM t") == [(3,)]
    writer.close()


PLACES = {
    "sqlite": "sqlite: {path: out.db, table: t}",
    "keyed sqlite": "sqlite: {path: out.db, table: t, key: [id]}",
    "files": "files: {path: ./out}",
    "delta": "delta: {path: ./out}",
    "keyed delta": "delta: {path: ./out, key: [id]}",
}


def parts(project: Project) -> list[Path]:
    return [path for path in project.folder.iterdir() if path.name.startswith("out")]


@pytest.mark.parametrize("sink", PLACES.values(), ids=PLACES.keys())
def test_a_copy_of_the_sink_that_was_put_back_is_refused(sink: str, project: Project, tmp_path: Path) -> None:
    case = Case(project, sink)
    case.run(1)
    kept = project.folder / "kept"
    kept.mkdir()
    for path in parts(project):
        (shutil.copytree if path.is_dir() else shutil.copy2)(path, kept / path.name)
    case.run(1)
    for path in parts(project):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in kept.iterdir():
        path.rename(project.folder / path.name)
    assert (case.refused()["position"], case.refused()["noted"]) == (0, 1)


@pytest.mark.parametrize("sink", [PLACES["sqlite"], PLACES["files"], PLACES["keyed delta"]])
def test_state_that_is_older_than_the_sink_is_refused(sink: str, project: Project, tmp_path: Path) -> None:
    case = Case(project, sink)
    case.run(1)
    shutil.copytree(case.state, project.folder / "kept")
    case.run(2)
    shutil.rmtree(case.state)
    (project.folder / "kept").rename(case.state)
    told = case.refused("SINK_AHEAD")
    assert (told["node"], told["position"], told["begun"]) == ("out", 2, 0)


@pytest.mark.parametrize("sink", [PLACES["files"], PLACES["delta"], PLACES["sqlite"]])
def test_batches_without_rows_and_another_place_are_no_gap(sink: str, project: Project) -> None:
    case = Case(project, sink)
    case.run(1)
    project.put("in/1.json", "")
    case.batches += 1
    course(project.build(case.text), case.state)
    case.run(1)
    other = sink.replace("table: t", "table: other").replace("./out", "./another")
    case.text = body(other)
    case.run(1)
    assert json.loads((case.state / "pipeline.json").read_text())["epoch"] == 4
