"""The delta sink: each batch is one commit, stored once, for one run at a time, beside other writers."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Field, Schema, write_deltalake
from deltalake.schema import PrimitiveType
from pyspark.sql import SparkSession
from tests.components.test_files_sink import batch, frame
from tests.engine.running import json_lines, run
from tests.servers.s3 import S3

from penstock.components.base import CheckContext, SinkContext, SinkWriter
from penstock.components.shared import crashpoints
from penstock.components.shared.checksum import Content, python_sum
from penstock.components.shared.s3 import S3 as Setting
from penstock.components.sinks import delta
from penstock.components.sinks.delta import Delta
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from tests.conftest import Project

pytestmark = pytest.mark.spark

COLUMNS = {"id": "string", "n": "int"}
AtPoint = Callable[[str, Callable[[], object]], None]


@dataclass(frozen=True)
class Table:
    """A place for a table, and sinks that write to it."""

    spark: SparkSession
    path: str
    setting: Setting = field(default_factory=Setting)
    options: dict[str, str] | None = None

    def open(
        self, epoch: int = 1, lineage: str = "l1", columns: dict[str, str] | None = None, **config: Any
    ) -> SinkWriter:
        sink = Delta(**{"path": self.path, "s3": self.setting, **config})
        return sink.open(SinkContext(self.spark, "out", Path(), "demo", lineage, epoch, columns or COLUMNS))

    @property
    def delta(self) -> DeltaTable:
        return DeltaTable(self.path, storage_options=self.options)

    def rows(self) -> list[tuple[Any, ...]]:
        found = self.delta.to_pyarrow_table().to_pylist()
        return sorted((tuple(row.values()) for row in found), key=str)


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Table:
    return Table(spark, str(tmp_path / "table"))


@pytest.fixture
def in_bucket(spark: SparkSession, s3: S3, s3_bucket: str) -> Table:
    setting = Setting(endpoint=s3.endpoint, access_key=s3.access_key, secret_key=s3.secret_key)
    options = {"aws_endpoint": s3.endpoint, "aws_access_key_id": s3.access_key, "aws_region": s3.region,
               "aws_secret_access_key": s3.secret_key, "aws_allow_http": "true"}  # fmt: skip
    return Table(spark, f"s3a://{s3_bucket}/table", setting, options)


# --- appending -----------------------------------------------------------------------------------------------


def test_a_batch_that_comes_again_changes_nothing(table: Table) -> None:
    writer = table.open()
    assert writer.write(batch(0), frame(table.spark, ("a", 1), ("b", 2))) is True
    assert writer.write(batch(0), frame(table.spark, ("other", 9))) is False
    assert table.open(epoch=2).write(batch(0, epoch=2), frame(table.spark, ("other", 9))) is False
    assert table.rows() == [("a", 1), ("b", 2)]


def test_the_same_in_an_object_store_without_copies(in_bucket: Table, s3: S3, s3_bucket: str) -> None:
    writer = in_bucket.open(partition_by=("id",))
    for number in range(2):
        assert writer.write(batch(number), frame(in_bucket.spark, ("a/b", number), ("c", number))) is True
    assert in_bucket.open(epoch=2, partition_by=("id",)).write(batch(1, epoch=2), frame(in_bucket.spark)) is False
    found = sorted((row["id"], row["n"]) for row in in_bucket.delta.to_pyarrow_table().to_pylist())
    assert found == [("a/b", 0), ("a/b", 1), ("c", 0), ("c", 1)]
    assert not [operation for operation, _, _ in s3.requests(s3_bucket) if "Copy" in operation]


def test_an_empty_batch_makes_no_commit(table: Table) -> None:
    writer = table.open()
    before = table.delta.version()
    assert writer.write(batch(0), frame(table.spark)) is True
    assert table.delta.version() == before


@pytest.mark.parametrize("key", [(), ("i",)])
def test_values_come_back(key: tuple[str, ...], table: Table) -> None:
    at = dt.datetime(2024, 1, 2, 3, 4, 5, 678901, tzinfo=dt.UTC)
    columns = {
        "i": "bigint", "s": "smallint", "b": "tinyint", "x": "double", "f": "float", "d": "decimal(12,3)",
        "t": "string", "at": "timestamp", "local": "timestamp_ntz", "day": "date", "ok": "boolean", "raw": "binary",
        "tags": "array<string>", "m": "map<string,int>", "r": "struct<a:int,time:string>",
        "p": "timestamp", "q": "decimal(4,1)",
    }  # fmt: skip
    schema = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    values = [7, 3, 1, 0.5, 0.25, Decimal("1.500"), "ü", at, at.replace(tzinfo=None), dt.date(2024, 1, 2), True, b"\0",
              ["x", None], {"k": 1}, {"a": 1, "time": "z"}, at, Decimal("2.5")]  # fmt: skip
    rows = table.spark.createDataFrame([values, [None] * len(values)], schema)
    writer = table.open(columns=columns, partition_by=("p", "q"), key=key)
    writer.write(batch(0), rows)
    if key:
        writer.write(batch(1), rows)
    found = sorted(table.delta.to_pyarrow_table().to_pylist(), key=lambda row: row["i"] is None)
    expected = dict(zip(columns, values, strict=True)) | {"m": [("k", 1)]}
    assert found == [expected, dict.fromkeys(columns)]


def test_files_can_be_left_out_by_what_is_known_of_them(table: Table) -> None:
    writer = table.open()
    for number in range(3):
        writer.write(batch(number), frame(table.spark, (f"k{number}", number), ("z", number)).coalesce(1))
    known = pa.table(table.delta.get_add_actions(flatten=True)).to_pylist()
    assert sorted((row["min.n"], row["max.n"], row["num_records"], row["null_count.id"]) for row in known) == [
        (number, number, 2, 0) for number in range(3)
    ]
    assert len(table.delta.file_uris(file_pruning_predicate="n = 1")) == 1


def test_files_of_tasks_that_no_commit_names_are_not_read(table: Table, at_point: AtPoint) -> None:
    def die() -> None:
        raise ValueError("dies before the commit")

    writer = table.open()
    at_point("sink.in_transaction", die)
    with pytest.raises(ValueError, match="dies"):
        writer.write(batch(0), frame(table.spark, ("lost", 1)))
    assert list(Path(table.path).glob("*.parquet"))
    assert table.rows() == []
    assert table.open(epoch=2).write(batch(0, epoch=2), frame(table.spark, ("a", 1))) is True
    assert table.rows() == [("a", 1)]


def test_what_it_holds_can_be_audited_without_spark(table: Table) -> None:
    writer = table.open(partition_by=("id",))
    for number in range(2):
        writer.write(batch(number), frame(table.spark, ("a", number), ("b", number)))
    nobody: Any = None
    context = SinkContext(nobody, "out", Path(), "demo", "l1", 1, {})
    expected = sum(python_sum(name, number) for name in "ab" for number in range(2))
    assert Delta(path=table.path).content(context, ["id", "n"]) == Content(4, expected)


# --- who writes ----------------------------------------------------------------------------------------------


def test_an_older_run_is_fenced_even_if_it_stood_still_before_its_commit(table: Table, at_point: AtPoint) -> None:
    older = table.open(epoch=1)
    at_point("sink.in_transaction", lambda: table.open(epoch=2))
    with pytest.raises(PenstockError) as raised:
        older.write(batch(0), frame(table.spark, ("old", 1)))
    assert raised.value.code == "SINK_FENCED"
    with pytest.raises(PenstockError) as raised:
        older.write(batch(1), frame(table.spark, ("old", 1)))
    assert raised.value.code == "SINK_FENCED"
    with pytest.raises(PenstockError) as raised:
        table.open(epoch=1)
    assert raised.value.code == "SINK_FENCED"
    assert table.rows() == []


def test_rows_of_other_state_are_refused_once_there_are_any(table: Table) -> None:
    table.open(lineage="l1", epoch=3)
    table.open(lineage="l2").write(batch(0, "l2"), frame(table.spark, ("a", 1)))
    with pytest.raises(PenstockError) as raised:
        table.open(lineage="l1", epoch=4)
    assert raised.value.code == "SINK_OF_ANOTHER_RUN"
    assert table.open(lineage="l2", epoch=2).write(batch(0, "l2", 2), frame(table.spark, ("b", 1))) is False


@pytest.mark.parametrize("key", [(), ("id",)])
def test_a_run_whose_table_went_to_other_state_is_fenced(key: tuple[str, ...], table: Table) -> None:
    older = table.open(lineage="l1", epoch=3, key=key)
    if key:
        older.write(batch(0, epoch=3), frame(table.spark, ("a", 0)))
    table.open(lineage="l2", key=key).write(batch(0, "l2"), frame(table.spark, ("a", 1)))
    with pytest.raises(PenstockError) as raised:
        older.write(batch(1, epoch=3), frame(table.spark, ("a", 2)))
    assert raised.value.code == "SINK_FENCED"
    assert table.rows() == [("a", 1)]


def test_other_programs_may_write_too(table: Table, at_point: AtPoint) -> None:
    def other() -> None:
        write_deltalake(table.path, pa.table({"id": ["theirs"], "n": pa.array([5], pa.int32())}), mode="append")

    writer = table.open()
    at_point("sink.in_transaction", other)
    assert writer.write(batch(0), frame(table.spark, ("a", 1))) is True
    upserting = table.open(epoch=2, key=("id",))
    at_point("sink.in_transaction", other)
    assert upserting.write(batch(1, epoch=2), frame(table.spark, ("a", 2))) is True
    assert table.rows() == [("a", 2), ("theirs", 5), ("theirs", 5)]


def test_a_commit_whose_answer_was_lost_is_found(table: Table) -> None:
    writer = table.open()
    append = writer._append  # type: ignore[attr-defined]

    def lossy(actions: list[Any], properties: CommitProperties) -> None:
        append(actions, properties)
        append(actions, properties)

    writer._append = lossy  # type: ignore[attr-defined]
    assert writer.write(batch(0), frame(table.spark, ("a", 1))) is True
    assert table.rows() == [("a", 1)]


# --- with a key ----------------------------------------------------------------------------------------------


def test_a_row_that_is_deleted_is_gone_and_its_column_is_not_stored(table: Table) -> None:
    columns = {"id": "string", "n": "int", "gone": "boolean"}
    writer = table.open(columns=columns, key=("id",), delete="gone")

    def rows(*values: tuple[str | None, int, bool | None]) -> Any:
        return table.spark.createDataFrame(list(values), "id string, n int, gone boolean")

    writer.write(batch(0), rows(("a", 1, False), ("b", 1, None), ("c", 1, True), (None, 1, False)))
    assert table.rows() == [("a", 1), ("b", 1), (None, 1)]
    writer.write(batch(1), rows(("a", 2, True), ("b", 2, False), (None, 2, False)))
    assert table.rows() == [("b", 2), (None, 2)]
    assert writer.write(batch(1), rows(("a", 9, False))) is False
    assert [item.name for item in table.delta.schema().fields] == ["id", "n"]


Change = tuple[str | None, int | None, bool]


def replay(batches: list[list[Change]]) -> dict[str | None, int]:
    """What the table must hold, worked out with a dictionary: by key, the number of the change that counts."""
    held: dict[str | None, tuple[int, int]] = {}
    number = 0
    for changes in batches:
        newest: dict[str | None, tuple[int, int, bool]] = {}
        for key, version, deleted in changes:
            rank = -1 if version is None else version
            if key not in newest or rank >= newest[key][0]:
                newest[key] = (rank, number, deleted)
            number += 1
        for key, (rank, place, deleted) in newest.items():
            if key in held and rank < held[key][0]:
                continue
            if deleted:
                held.pop(key, None)
            else:
                held[key] = (rank, place)
    return {key: place for key, (_, place) in held.items()}


def newest_stay(table: Table, seed: int, count: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    versions = [None, *range(5)]
    batches: list[list[Change]] = [
        [(chance.choice(["a", "b", "C", None]), chance.choice(versions), chance.random() < 0.3) for _ in range(9)]
        for _ in range(count)
    ]
    columns = {"TheKey": "string", "v": "int", "place": "int", "del": "boolean"}
    writer = table.open(columns=columns, key=("TheKey",), version="v", delete="del")
    numbers = itertools.count()
    for id, changes in enumerate(batches):
        rows = [(key, version, next(numbers), deleted) for key, version, deleted in changes]
        schema = "TheKey string, v int, place int, del boolean"
        writer.write(batch(id), table.spark.createDataFrame(rows, schema))
        found = {row["TheKey"]: row["place"] for row in table.delta.to_pyarrow_table().to_pylist()}
        assert found == replay(batches[: id + 1])


@pytest.mark.parametrize("seed", [1, 2])
def test_the_newest_version_of_each_key_stays(table: Table, seed: int) -> None:
    newest_stay(table, seed, 5)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 120))
def test_the_newest_version_of_each_key_stays_over_many_batches(table: Table, seed: int) -> None:
    newest_stay(table, seed, 30)


# --- tables that are there -----------------------------------------------------------------------------------


def refusal(table: Table, **config: Any) -> str:
    with pytest.raises(PenstockError) as raised:
        table.open(**config)
    assert raised.value.code == "SINK_TABLE_DIFFERS"
    return str(raised.value)


def made(table: Table, *fields: tuple[str, str, bool], **config: Any) -> None:
    DeltaTable.create(
        table.path, Schema([Field(name, PrimitiveType(kind), nullable=null) for name, kind, null in fields]), **config
    )


def test_a_table_that_does_not_fit_is_refused(table: Table, tmp_path: Path) -> None:
    made(table, ("id", "string", True), ("n", "long", True))
    assert 'column n is "long", not "integer"' in refusal(table)
    assert "it has no column x" in refusal(table, columns={"id": "string", "x": "int"})
    assert "partitioned by nothing" in refusal(table, columns={"id": "string", "n": "bigint"}, partition_by=("id",))
    other = Table(table.spark, str(tmp_path / "other"))
    made(other, ("id", "string", True), ("n", "integer", True), ("must", "string", False))
    assert "a value for column must" in refusal(other)
    ruled = Table(table.spark, str(tmp_path / "ruled"))
    made(ruled, ("id", "string", True), ("n", "integer", True))
    ruled.delta.alter.add_constraint({"positive": "n > 0"})
    assert "constraints" in refusal(ruled)
    kept = Table(table.spark, str(tmp_path / "kept"))
    made(kept, ("id", "string", True), ("n", "integer", True), configuration={"delta.appendOnly": "true"})
    assert "only be appended" in refusal(kept, key=("id",))


def test_more_columns_than_the_rows_have_stay_null(table: Table) -> None:
    made(table, ("id", "string", False), ("more", "string", True), ("n", "integer", True))
    writer = table.open()
    writer.write(batch(0), frame(table.spark, ("a", 1)))
    assert table.rows() == [("a", None, 1)]
    with pytest.raises(PenstockError) as raised:
        writer.write(batch(1), table.spark.createDataFrame([(None, 1)], "id string, n int"))
    assert raised.value.code == "SINK_FAILED"
    assert "column id is null in 1 rows" in str(raised.value)
    assert table.rows() == [("a", None, 1)]


# --- checks and troubles -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "columns", "code"),
    [
        ({"partition_by": ("zz",)}, {"id": "string"}, "SINK_COLUMN_UNKNOWN"),
        ({"key": ("zz",)}, {"id": "string"}, "SINK_COLUMN_UNKNOWN"),
        ({"key": ("id",), "delete": "d"}, {"id": "string", "d": "int"}, "COLUMN_TYPE"),
        ({}, {"v": "struct<a:variant>"}, "SINK_TYPE_UNSUPPORTED"),
        ({}, {"v": "interval day to second"}, "SINK_TYPE_UNSUPPORTED"),
        ({}, {"two words": "int"}, "SINK_TYPE_UNSUPPORTED"),
        ({"partition_by": ("b",)}, {"b": "binary"}, "SINK_TYPE_UNSUPPORTED"),
    ],
)
def test_columns_that_do_not_fit_are_refused(config: dict[str, Any], columns: dict[str, str], code: str) -> None:
    problems = list(Delta(path="out", **config).check_columns("out", columns))
    assert [problem.code for problem in problems] == [code]
    assert list(Delta(path="out").check_columns("out", {"s": "struct<time:int,interval:int>"})) == []


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"path": "hdfs://node/t"}, "SPEC_BAD_VALUE"),
        ({"path": "t", "delete": "d"}, "SPEC_MISSING_KEY"),
        ({"path": "t", "key": ["d"], "delete": "d"}, "SPEC_BAD_VALUE"),
    ],
)
def test_settings_that_make_no_sense_are_refused(config: dict[str, Any], code: str, tmp_path: Path) -> None:
    problems = list(Delta.model_validate(config).check(CheckContext("out")))
    assert [problem.code for problem in problems] == [code]


def test_troubles_of_a_store_are_told_in_words(in_bucket: Table) -> None:
    for change, code in (
        ({"secret_key": "wrong"}, "SINK_DENIED"),
        ({"endpoint": "http://127.0.0.1:1"}, "SINK_UNREACHABLE"),
    ):
        with pytest.raises(PenstockError) as raised:
            in_bucket.open(s3=in_bucket.setting.model_copy(update=change))
        assert raised.value.code == code
    with pytest.raises(PenstockError) as raised:
        in_bucket.open(path="s3a://no-such-bucket/table")
    assert raised.value.code == "PATH_NOT_FOUND"


def test_a_folder_that_cannot_be_written_is_named(spark: SparkSession) -> None:
    with pytest.raises(PenstockError) as raised:
        Table(spark, "/proc/table").open()
    assert "/proc/table" in str(raised.value)
    assert raised.value.code in ("PATH_NOT_WRITABLE", "SINK_FAILED")


# --- whole runs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("point", "key"),
    [("sink.in_transaction", ", key: [id]"), ("sink.after_commit", ""), ("sink.after_commit", ", key: [id]")],
)
def test_each_row_is_stored_once_wherever_the_run_dies(point: str, key: str, project: Project) -> None:
    for number in range(3):
        project.put(f"in/{number}.json", json_lines([{"id": f"{number}-{n}"} for n in range(2)]))
    graph = project.build(f"""
        sources:
          views: {{files: {{path: ./in, maxFilesPerBatch: 1}}, format: {{json: {{schema: {{id: string}}}}}}}}
        sinks:
          out: {{from: views, delta: {{path: ./out{key}}}}}
    """)
    run(graph, project.folder / "state", die_at=f"{point}@1")
    outcome = run(graph, project.folder / "state")
    found = sorted(row["id"] for row in DeltaTable(str(project.folder / "out")).to_pyarrow_table().to_pylist())
    assert found == [f"{number}-{n}" for number in range(3) for n in range(2)]
    assert [entry.rows_out["out"] for entry in outcome.ledger] == [2, 2, 2]
    log = [json.loads(line) for file in sorted((project.folder / "out" / "_delta_log").glob("*.json"))
           for line in file.read_text("utf-8").splitlines()]  # fmt: skip
    batches = [item["txn"]["version"] for item in log if item.get("txn", {}).get("appId", "").endswith("/batch")]
    assert batches == [0, 1, 2]


@pytest.fixture
def pieces(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Merges ten rows at once."""
    monkeypatch.setattr(delta, "_AT_HAND", 1)
    size = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(size) or "10000"
    spark.conf.set(size, 10)
    yield
    spark.conf.set(size, before)


def test_a_large_batch_with_a_key_is_merged_in_pieces_and_counts_with_the_last(
    tmp_path: Path, spark: SparkSession, pieces: None
) -> None:
    table = Table(spark, str(tmp_path / "table"))
    first, second = ([(str(key), value) for key in range(35)] for value in (1, 2))
    sink = table.open(key=["id"])
    assert sink.write(batch(0), frame(spark, *first))
    held, versions = sink.position(), table.delta.version()
    assert table.rows() == sorted(first)

    def die(point: str, number: int) -> None:
        if point == "sink.piece_stored":
            raise ZeroDivisionError

    crashpoints.install(die)
    try:
        with pytest.raises(ZeroDivisionError):
            sink.write(batch(1), frame(spark, *second))
    finally:
        crashpoints.install(None)
    assert table.delta.version() == versions + 1
    assert sorted(row[1] for row in table.rows()) == [1] * 25 + [2] * 10
    # What a savepoint would find now is not taken for what was there after the first batch.
    again = table.open(epoch=2, key=["id"])
    again.rewind(0, {**held, "version": table.delta.version()})
    assert table.rows() == sorted(first)
    assert again.write(batch(1, epoch=2), frame(spark, *second))
    assert table.rows() == sorted(second)
    assert again.write(batch(1, epoch=2), frame(spark, *first)) is False


def test_a_batch_with_a_key_larger_than_what_the_driver_may_collect_is_stored(
    tmp_path: Path, spark: SparkSession
) -> None:
    table = Table(spark, str(tmp_path / "table"))
    conf = spark.sparkContext._jsc.sc().conf()
    before = conf.get("spark.driver.maxResultSize", "1g")
    rows = spark.range(20_000).selectExpr("repeat(cast(id as string), 100) AS id", "cast(id AS int) AS n")
    conf.set("spark.driver.maxResultSize", "1m")
    try:
        with pytest.raises(Exception, match="maxResultSize"):
            rows.toArrow()
        assert table.open(key=["id"]).write(batch(0), rows)
    finally:
        conf.set("spark.driver.maxResultSize", before)
    assert [row[1] for row in sorted(table.rows(), key=lambda row: row[1])] == list(range(20_000))
