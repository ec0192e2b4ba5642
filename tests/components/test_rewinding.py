"""Every sink goes back to savepoints: it holds what it held then, and batches that come again leave no row twice."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest
from pyspark.sql import SparkSession
from tests.components.sql_stores import Store, made
from tests.components.test_delta_sink import Table
from tests.engine.running import Died
from tests.servers.s3 import S3

from penstock import read_files
from penstock.components.base import Batch, Sink, SinkContext, SinkWriter
from penstock.components.shared import crashpoints
from penstock.components.shared.s3 import S3 as Setting
from penstock.components.sinks.console import Console
from penstock.components.sinks.delta import Delta
from penstock.components.sinks.files import Files
from penstock.components.sinks.memory import Memory, stored_rows
from penstock.errors import PenstockError

pytestmark = pytest.mark.spark

COLUMNS = {"id": "string", "n": "int"}
Row = tuple[str, int]


class Look(Protocol):
    def __call__(self) -> list[Row]: ...


@dataclass(frozen=True)
class Subject:
    """A sink with nothing in it, and a way to look into it."""

    spark: SparkSession
    folder: Path
    sink: Sink
    look: Look
    key: bool = False
    exact: bool = True
    """Whether it holds after going back what it held then; others get there when batches come again."""
    forward: bool = False
    """Whether it can also go to a savepoint that lies ahead, after it went back before that."""

    def open(self, epoch: int) -> SinkWriter:
        context = SinkContext(self.spark, "out", self.folder, "demo", f"l-{self.folder}", epoch, COLUMNS)
        return self.sink.open(context)

    def write(self, writer: SinkWriter, number: int, epoch: int, rows: list[Row]) -> bool:
        frame = self.spark.createDataFrame(rows, "id string, n int").coalesce(1)
        return writer.write(Batch("demo", f"l-{self.folder}", epoch, number), frame)


def on_disk(spark: SparkSession, folder: Path, request: pytest.FixtureRequest) -> Subject:
    def look() -> list[Row]:
        return sorted(tuple(row) for row in read_files(spark, str(folder / "out")).collect())

    return Subject(spark, folder, Files(path="out", compact=3), look, forward=True)


def in_bucket(spark: SparkSession, folder: Path, request: pytest.FixtureRequest) -> Subject:
    s3: S3 = request.getfixturevalue("s3")
    path = f"s3a://{request.getfixturevalue('s3_bucket')}/out"
    setting = Setting(endpoint=s3.endpoint, access_key=s3.access_key, secret_key=s3.secret_key)

    def look() -> list[Row]:
        return sorted(tuple(row) for row in read_files(spark, path, setting).collect())

    return Subject(spark, folder, Files(path=path, s3=setting, compact=3, entropy=True), look, forward=True)


def by_uri(spark: SparkSession, folder: Path, request: pytest.FixtureRequest) -> Subject:
    """Through the file system of Hadoop."""
    subject = on_disk(spark, folder, request)
    sink = Files(path=f"file://{folder}/out", compact=3)
    return Subject(spark, folder, sink, subject.look, forward=True)


def look_into(table: Table) -> Look:
    return lambda: sorted(table.rows())


def delta(key: bool = False) -> Callable[..., Subject]:
    def make(spark: SparkSession, folder: Path, request: pytest.FixtureRequest) -> Subject:
        table = Table(spark, str(folder / "table"))
        return Subject(
            spark, folder, Delta(path=table.path, key=("id",) if key else ()), look_into(table), key, forward=True
        )

    return make


def delta_in_bucket(spark: SparkSession, folder: Path, request: pytest.FixtureRequest) -> Subject:
    table: Table = request.getfixturevalue("delta_bucket")
    return Subject(spark, folder, Delta(path=table.path, s3=table.setting), look_into(table), forward=True)


def table_of(name: str, key: bool = False) -> Callable[..., Subject]:
    def make(spark: SparkSession, folder: Path, request: pytest.FixtureRequest) -> Subject:
        store = made(name, request, folder)
        sink = store.sink(**({"key": ("id",)} if key else {"batch_column": "of_batch"}))
        return Subject(spark, folder, sink, lambda: sorted(store.query("SELECT id, n FROM t")), key, exact=not key)

    return make


def in_memory(spark: SparkSession, folder: Path, request: pytest.FixtureRequest) -> Subject:
    def look() -> list[Row]:
        return sorted((row["id"], row["n"]) for row in stored_rows(f"l-{folder}", "out"))

    return Subject(spark, folder, Memory(), look)


SUBJECTS: dict[str, Callable[..., Subject]] = {
    "files": on_disk, "files-s3": in_bucket, "files-uri": by_uri, "delta": delta(), "delta-key": delta(key=True),
    "sqlite": table_of("sqlite"), "sqlite-key": table_of("sqlite", key=True),
    "postgres": table_of("postgres"), "postgres-key": table_of("postgres", key=True),
    "mysql": table_of("mysql"), "mysql-key": table_of("mysql", key=True), "memory": in_memory,
}  # fmt: skip


@pytest.fixture
def delta_bucket(spark: SparkSession, s3: S3, s3_bucket: str) -> Table:
    setting = Setting(endpoint=s3.endpoint, access_key=s3.access_key, secret_key=s3.secret_key)
    options = {"aws_endpoint": s3.endpoint, "aws_access_key_id": s3.access_key, "aws_region": s3.region,
               "aws_secret_access_key": s3.secret_key, "aws_allow_http": "true"}  # fmt: skip
    return Table(spark, f"s3a://{s3_bucket}/table", setting, options)


@contextmanager
def dying() -> Iterator[list[str]]:
    """Runs die in the middle of going back; what they died at."""
    points: list[str] = []

    def die(point: str, number: int) -> None:
        if point == "sink.rewinding":
            points.append(point)
            raise Died

    crashpoints.install(die)
    try:
        yield points
    finally:
        crashpoints.install(None)


class Course:
    """One pipeline on one sink, beside a plain list of what it must hold."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.epoch, self.next, self.number = 1, 0, 0
        self.held: list[Row] = []
        self.writer = subject.open(1)
        self.savepoints: dict[str, tuple[int, dict[str, Any], list[Row]]] = {}

    def write(self, batches: int = 1) -> None:
        for _ in range(batches):
            rows = [(f"k{(self.number + offset) % 5}", self.number + offset) for offset in range(2)]
            self.number += 2
            assert self.subject.write(self.writer, self.next, self.epoch, rows)
            self.held = sorted({**dict(self.held), **dict(rows)}.items()) if self.subject.key else self.held + rows
            self.next += 1

    def savepoint(self) -> str:
        name = f"after {self.next - 1}, no. {len(self.savepoints)}"
        position = json.loads(json.dumps(self.writer.position()))
        self.writer.pin(name, position)
        self.savepoints[name] = (self.next - 1, position, list(self.held))
        return name

    def reopen(self) -> SinkWriter:
        self.epoch += 1
        older, self.writer = self.writer, self.subject.open(self.epoch)
        return older

    def go_back(self, name: str, deaths: int = 0) -> None:
        batch, position, held = self.savepoints[name]
        before, after = sorted(self.held), sorted(held) if self.subject.exact else sorted(self.held)
        older = self.reopen()
        for _ in range(deaths):
            with dying() as points:
                try:
                    self.writer.rewind(batch, position)
                except Died:
                    assert points
            assert self.subject.look() in (before, after)
            older = self.reopen()
        for _ in range(2):
            self.writer.rewind(batch, position)
            assert self.subject.look() == after
        self.next, self.held = batch + 1, after
        assert self.subject.write(self.writer, batch, self.epoch, [("again", 0)]) is False
        if not isinstance(self.subject.sink, Memory):
            with pytest.raises(PenstockError) as raised:
                self.subject.write(older, 1000, self.epoch - 1, [("zombie", 0)])
            assert raised.value.code == "SINK_FENCED"

    def check(self) -> None:
        assert self.subject.look() == sorted(self.held)


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_sink_goes_back_to_any_savepoint(
    name: str, spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    course = Course(SUBJECTS[name](spark, tmp_path, request))
    course.write(3)
    early = course.savepoint()
    course.write(4)
    late = course.savepoint()
    course.write(3)
    course.go_back(late, deaths=1)
    course.write(1)
    course.check()
    course.go_back(early)
    course.write(2)
    course.check()
    if course.subject.forward:
        # What was pinned is there, though the sink has gone back to a time before it.
        course.go_back(late)
        course.write(1)
        course.check()
    course.writer.release(early)
    course.writer.release(late)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", [*SUBJECTS, "delta-s3"])
def test_random_ways_back_and_forth(
    name: str, seed: int, spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    rng = random.Random(f"{name} {seed}")
    course = Course({**SUBJECTS, "delta-s3": delta_in_bucket}[name](spark, tmp_path, request))
    for _ in range(25):
        action = rng.choice(["write", "write", "write", "savepoint", "reopen", "back"])
        if action == "write":
            course.write(rng.randrange(1, 4))
        elif action == "savepoint":
            course.savepoint()
        elif action == "reopen":
            course.reopen()
        elif course.savepoints:
            target = rng.choice(list(course.savepoints))
            course.go_back(target, deaths=rng.randrange(3))
            if not course.subject.forward:
                past = course.savepoints[target][0]
                course.savepoints = {name: kept for name, kept in course.savepoints.items() if kept[0] <= past}
        course.check()


def test_what_is_printed_is_not_taken_back(spark: SparkSession, tmp_path: Path) -> None:
    writer = Console().open(SinkContext(spark, "out", tmp_path, "demo", "l", 1, COLUMNS))
    assert writer.position() == {}
    writer.rewind(3, {})
    writer.forget(3)


def test_a_sink_that_says_nothing_about_it_cannot_go_back() -> None:
    class Plain(SinkWriter):
        def write(self, batch: Batch, rows: object) -> bool:
            return True

    actions: tuple[Callable[[], None], ...] = (
        lambda: Plain().rewind(3, Plain().position()),
        lambda: Plain().forget(3),
    )
    for action in actions:
        with pytest.raises(PenstockError) as raised:
            action()
        assert raised.value.code == "SINK_CANNOT_REWIND"
        assert "batch 3" in str(raised.value)


def refused(action: Callable[[], object]) -> str:
    """Why a sink does not go back."""
    with pytest.raises(PenstockError) as raised:
        action()
    assert raised.value.code == "SINK_CANNOT_REWIND"
    return str(raised.value)


# --- tables of databases -------------------------------------------------------------------------------------


def test_rows_without_a_batch_stay_unless_one_takes_them_twice(store: Store, spark: SparkSession) -> None:
    subject = Subject(spark, store.folder, store.sink(), lambda: sorted(store.query("SELECT id, n FROM t")))
    course = Course(subject)
    course.write(2)
    name = course.savepoint()
    batch, position, _ = course.savepoints[name]
    course.writer.rewind(batch, position)
    course.write(1)
    course.reopen()
    assert "batchColumn" in refused(lambda: course.writer.rewind(batch, position))
    assert "does not say" in refused(lambda: course.writer.rewind(batch, {}))
    course.check()
    course.writer.forget(batch)
    course.writer.forget(batch)
    course.next = batch + 1
    course.write(1)
    course.check()


def test_a_savepoint_whose_rows_were_taken_back_since_is_of_no_use(store: Store, spark: SparkSession) -> None:
    sink = store.sink(batch_column="of_batch")
    course = Course(Subject(spark, store.folder, sink, lambda: sorted(store.query("SELECT id, n FROM t"))))
    course.write(1)
    early = course.savepoint()
    course.write(1)
    late = course.savepoint()
    course.go_back(early)
    assert "taken back" in refused(lambda: course.writer.rewind(*course.savepoints[late][:2]))
    course.write(3)
    assert "taken back" in refused(lambda: course.writer.rewind(*course.savepoints[late][:2]))
    newer = course.savepoint()
    course.write(1)
    course.go_back(newer)
    course.go_back(early)
    assert store.query("SELECT DISTINCT of_batch FROM t") == [(0,)]


def test_every_way_into_a_table_fills_the_column(store: Store, spark: SparkSession) -> None:
    kind = "INTEGER" if store.name == "sqlite" else "BIGINT"
    store.execute(f"CREATE TABLE t (id VARCHAR(20), n INT, Of_Batch {kind} NOT NULL, CHECK (n < 100))")
    position: dict[str, Any] = {}
    ways: list[dict[str, Any]] = [{}] if store.name == "sqlite" else [{}, {"bulk_rows": 1}]
    for number, way in enumerate(ways):
        sink = store.sink(batch_column="of_batch", on_violation="dead", **way)
        writer = sink.open(SinkContext(spark, "out", store.folder, "demo", "l", number + 1, COLUMNS))
        for place, rows in enumerate(([("a", 1), ("b", 2)], [("c", 3), ("bad", 100), ("d", 4)])):
            frame = spark.createDataFrame(rows, "id string, n int").coalesce(1)
            batch = Batch("demo", "l", number + 1, 2 * number + place)
            assert writer.write(batch, frame)
            assert len(writer.refused(batch)) == place
            position = position or writer.position()
    expected = [row for number in range(len(ways)) for row in (
        ("a", 2 * number), ("b", 2 * number), ("c", 2 * number + 1), ("d", 2 * number + 1))]  # fmt: skip
    assert sorted(store.query("SELECT id, Of_Batch FROM t")) == sorted(expected)
    context = SinkContext(spark, "out", store.folder, "demo", "l", 9, COLUMNS)
    assert sink.content(context, ["id", "n"]).rows == len(expected)
    sink.open(context).rewind(0, position)
    assert sorted(store.query("SELECT id, Of_Batch FROM t")) == [("a", 0), ("b", 0)]
    assert store.query("SELECT COUNT(*) FROM _penstock_refused") == [(0,)]
    assert [tuple(map(int, row)) for row in store.query("SELECT batch, epoch FROM _penstock_batches")] == [(0, 9)]


def test_two_sinks_on_one_table_take_back_only_their_own_rows(store: Store, spark: SparkSession) -> None:
    kind = "INTEGER" if store.name == "sqlite" else "BIGINT"

    def opened(pipeline: str, column: str, epoch: int = 1) -> SinkWriter:
        context = SinkContext(spark, "out", store.folder, pipeline, f"l-{pipeline}", epoch, COLUMNS)
        return store.sink(batch_column=column).open(context)

    one = opened("one", "batch_one")
    position = one.position()
    with pytest.raises(PenstockError, match="batch_two"):
        opened("two", "batch_two")
    store.execute(f"ALTER TABLE t ADD COLUMN batch_two {kind}", "ALTER TABLE t ADD COLUMN other VARCHAR(9)")
    for column, reason in (("batch_one", "pipeline 'one'"), ("other", "is")):
        with pytest.raises(PenstockError, match=reason) as raised:
            opened("two", column)
        assert raised.value.code == "SINK_TABLE_DIFFERS"
    two = opened("two", "batch_two")
    for pipeline, writer in (("one", one), ("two", two)):
        frame = spark.createDataFrame([(pipeline, 1)], "id string, n int").coalesce(1)
        assert writer.write(Batch(pipeline, f"l-{pipeline}", 1, 0), frame)
    opened("one", "batch_one", 2).rewind(-1, position)
    assert store.query("SELECT id FROM t") == [("two",)]


def test_a_table_that_lost_batches_is_not_taken_for_one_that_went_back(store: Store, spark: SparkSession) -> None:
    sink = store.sink(key=("id",))
    course = Course(Subject(spark, store.folder, sink, lambda: sorted(store.query("SELECT id, n FROM t")), key=True))
    course.write(3)
    batch, position, _ = course.savepoints[course.savepoint()]
    course.reopen()
    store.execute("UPDATE _penstock_batches SET batch = 0")
    assert "no more than batch 0" in refused(lambda: course.writer.rewind(batch, position))


# --- Delta tables --------------------------------------------------------------------------------------------


@pytest.fixture
def course(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Course:
    """A pipeline on a Delta table, with one savepoint."""
    course = Course(delta()(spark, tmp_path, request))
    course.write(2)
    course.savepoint()
    course.write(2)
    return course


def test_a_table_that_was_tidied_up_goes_back_as_long_as_its_files_are_there(course: Course, tmp_path: Path) -> None:
    (name,) = course.savepoints
    table = Table(course.subject.spark, str(tmp_path / "table")).delta
    table.optimize.compact()
    course.go_back(name)
    course.write(1)
    course.check()
    table.update_incremental()
    table.optimize.compact()
    removed = table.vacuum(0, enforce_retention_duration=False, dry_run=False)
    course.reopen()
    reason = refused(lambda: course.writer.rewind(*course.savepoints[name][:2]))
    assert any(file in reason for file in removed)
    course.check()


def test_rows_of_others_are_not_taken_back(course: Course, tmp_path: Path) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    (name,) = course.savepoints
    other = pa.table({"id": ["other"], "n": pa.array([1], pa.int32())})
    write_deltalake(str(tmp_path / "table"), other, mode="append")
    course.held = [*course.held, ("other", 1)]
    course.reopen()
    assert "another program" in refused(lambda: course.writer.rewind(*course.savepoints[name][:2]))
    course.check()


def test_a_table_that_is_a_batch_ahead_goes_back_to_the_one_before(course: Course) -> None:
    position = course.writer.position()
    course.reopen()
    course.writer.rewind(2, position)
    course.held, course.next = course.held[:-2], 3
    course.check()
    course.write(1)
    course.check()


def test_only_the_number_goes_back_if_rows_may_be_there_twice(course: Course) -> None:
    course.reopen()
    course.writer.forget(1)
    course.writer.forget(1)
    course.next = 2
    course.write(1)
    course.check()


def test_another_table_in_the_same_place_is_not_taken_for_the_one(course: Course, tmp_path: Path) -> None:
    (name,) = course.savepoints
    (tmp_path / "table").rename(tmp_path / "moved")
    course.reopen()
    assert "another table" in refused(lambda: course.writer.rewind(*course.savepoints[name][:2]))
    assert "another table" in refused(lambda: course.writer.rewind(1, {}))
