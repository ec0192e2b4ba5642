"""The delta source: every row a table holds or gets is read once, wherever batches are cut and runs end."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from tests.components.looking import problems_of
from tests.components.test_delta_sink import Table
from tests.engine.running import run
from tests.servers.s3 import S3

from penstock import read_files
from penstock.components.base import ReadContext
from penstock.components.shared.delta_log import DataFile, Position, Stretch, Unreadable, advanced, between, cut, parse
from penstock.components.shared.s3 import S3 as Setting
from penstock.components.sources.delta import Delta
from penstock.errors import PenstockError
from penstock.graph.nodes import Graph

if TYPE_CHECKING:
    from tests.conftest import Project

# --- positions -----------------------------------------------------------------------------------------------

VERSIONS = st.lists(st.lists(st.integers(0, 6), max_size=4), min_size=1, max_size=5)


def files(rows: Sequence[int], version: int) -> list[DataFile]:
    return [DataFile(f"{version}/{index}", 1, count) for index, count in enumerate(rows)]


@given(VERSIONS, st.integers(0, 3), st.booleans(), st.lists(st.one_of(st.none(), st.integers(1, 7)), min_size=60))
def test_batches_of_any_size_add_up_to_all_rows(
    versions: list[list[int]], start: int, snapshot: bool, limits: list[int | None]
) -> None:
    start = min(start, len(versions) - 1)
    held = [file for version in range(start + 1) for file in files(versions[version], version)]

    def files_at(place: Position) -> Sequence[DataFile] | None:
        if place.snapshot:
            return held
        return files(versions[place.version], place.version) if place.version < len(versions) else None

    first = Position(start, snapshot=snapshot)
    here, read = first, list[tuple[str, int]]()
    for most in limits:
        end = advanced(here, files_at, most)
        found = list(between(here, end, files_at))
        assert most is None or sum(stretch.stop - stretch.first for stretch in found) <= most
        assert list(between(here, end, files_at)) == found
        read += [(stretch.file.path, row) for stretch in found for row in range(stretch.first, stretch.stop)]
        here = end
    assert advanced(here, files_at, None) == here
    wanted = held if snapshot else []
    wanted = wanted + [
        file for version in range(start + snapshot, len(versions)) for file in files(versions[version], version)
    ]
    assert read == [(file.path, row) for file in wanted for row in range(file.rows or 0)]


@given(st.integers(0, 50), st.integers(1, 50), st.integers(1, 20))
def test_pieces_of_a_stretch_are_the_stretch(first: int, length: int, rows: int) -> None:
    pieces = list(cut(Stretch(DataFile("f", 1, 100), first, first + length), rows))
    assert [row for piece in pieces for row in range(piece.first, piece.stop)] == list(range(first, first + length))
    assert all(piece.stop - piece.first <= rows for piece in pieces)


ADD = {"path": "c=a%252Fb/x%201.parquet", "size": 5, "partitionValues": {"c": "a/b"}, "dataChange": True}


def lines(*actions: dict[str, Any]) -> str:
    return "\n".join(json.dumps(action) for action in actions)


def test_a_version_adds_the_files_whose_rows_are_new() -> None:
    counted = {**ADD, "stats": '{"numRecords": 7}'}
    found = parse(lines({"commitInfo": {}}, {"add": counted}, {"add": {**ADD, "dataChange": False}}, {"txn": {}}))
    assert found.files == (DataFile("c=a%2Fb/x 1.parquet", 5, 7, {"c": "a/b"}),)
    assert not found.changes
    assert not parse(lines({"remove": {"path": "x", "dataChange": False}})).changes
    assert parse(lines({"add": ADD}, {"remove": {"path": "x", "dataChange": True}})).changes


@pytest.mark.parametrize("more", [{"deletionVector": {"storageType": "u"}}, {"path": "s3://elsewhere/x.parquet"}])
def test_files_that_would_be_read_wrongly_are_refused(more: dict[str, Any]) -> None:
    with pytest.raises(Unreadable):
        parse(lines({"add": {**ADD, **more}}))


# --- runs ----------------------------------------------------------------------------------------------------


def add(path: str, *ids: int, **config: Any) -> None:
    write_deltalake(path, pa.table({"id": pa.array(ids, pa.int64())}), mode="append", **config)


def pipeline(project: Project, **config: Any) -> Graph:
    return project.build(f"""
        sources:
          rows: {{delta: {json.dumps({"path": "./table", **config})}}}
        sinks:
          out: {{from: rows, files: {{path: ./out}}}}
    """)


def stored(project: Project, spark: SparkSession) -> list[int]:
    return sorted(row["id"] for row in read_files(spark, str(project.folder / "out")).collect())


@pytest.fixture
def table(project: Project) -> str:
    path = str(project.folder / "table")
    add(path, 1, 2)
    add(path, 3)
    return path


@pytest.mark.spark
@pytest.mark.parametrize(
    ("start", "first"), [("earliest", [1, 2, 3]), (1, [3]), pytest.param("latest", [], marks=pytest.mark.long)]
)
def test_a_first_run_starts_where_it_is_told_and_the_next_goes_on(
    start: str | int, first: list[int], project: Project, table: str, spark: SparkSession
) -> None:
    graph = pipeline(project, startingVersion=start)
    run(graph, project.folder / "state")
    assert (stored(project, spark) if first else []) == first
    add(table, 4)
    DeltaTable(table).optimize.compact()
    add(table, 5)
    run(graph, project.folder / "state")
    assert stored(project, spark) == [*first, 4, 5]


@pytest.mark.spark
def test_large_versions_are_read_in_batches_and_each_row_once_wherever_a_run_dies(
    project: Project, table: str, spark: SparkSession
) -> None:
    add(table, *range(10, 30))
    graph = pipeline(project, maxRowsPerBatch=9)
    run(graph, project.folder / "state", die_at="sink.in_transaction@0")
    add(table, *range(30, 35))
    run(graph, project.folder / "state", die_at="sink.after_commit@1")
    outcome = run(graph, project.folder / "state")
    assert stored(project, spark) == [1, 2, 3, *range(10, 35)]
    assert max(entry.rows_in["rows"] for entry in outcome.ledger) == 9
    assert sum(entry.rows_in["rows"] for entry in outcome.ledger) == 28


@pytest.mark.spark
def test_a_version_that_takes_rows_away_stops_or_is_left_out(project: Project, table: str, spark: SparkSession) -> None:
    graph = pipeline(project, startingVersion=0)
    add(table, 4)
    DeltaTable(table).delete("id = 1")
    add(table, 5)
    with pytest.raises(PenstockError) as raised:
        run(graph, project.folder / "state")
    assert raised.value.code == "SOURCE_CHANGED"
    assert raised.value.problems[0].params["version"] == "3"
    assert stored(project, spark) == [1, 2, 3, 4]
    run(pipeline(project, startingVersion=0, onChanges="skip"), project.folder / "state")
    assert stored(project, spark) == [1, 2, 3, 4, 5]


@pytest.mark.spark
def test_a_table_that_was_made_anew_or_lost_its_log_is_refused(project: Project, table: str) -> None:
    graph = pipeline(project)
    run(graph, project.folder / "state")
    add(table, 4)
    add(table, 5)
    (Path(table) / "_delta_log" / f"{2:020d}.json").rename(project.folder / "kept")
    with pytest.raises(PenstockError) as raised:
        run(graph, project.folder / "state")
    assert raised.value.code == "SOURCE_FAILED"
    shutil.rmtree(table)
    for number in range(5):
        add(table, number)
    with pytest.raises(PenstockError) as raised:
        run(graph, project.folder / "state")
    assert raised.value.code == "SOURCE_FAILED"
    assert "made anew" in str(raised.value)


@pytest.mark.spark
def test_values_come_as_they_are_stored(project: Project, spark: SparkSession) -> None:
    at = dt.datetime(2024, 1, 2, 3, 4, 5, 678901, tzinfo=dt.UTC)
    values: dict[str, tuple[Any, pa.DataType]] = {
        "i": (7, pa.int64()), "x": (0.5, pa.float64()), "d": (Decimal("1.500"), pa.decimal128(12, 3)),
        "at": (at, pa.timestamp("us", "UTC")), "local": (at.replace(tzinfo=None), pa.timestamp("us")),
        "day": (dt.date(2024, 1, 2), pa.date32()), "raw": (b"\\0", pa.binary()), "tags": (["x"], pa.list_(pa.string())),
        "p_at": (at, pa.timestamp("us", "UTC")), "p_day": (dt.date(2024, 1, 2), pa.date32()),
        "p_d": (Decimal("2.5"), pa.decimal128(4, 1)), "p_ok": (True, pa.bool_()), "p_s": ("a/b c=ü%", pa.string()),
        "p_i": (3, pa.int32()),
    }  # fmt: skip
    rows = pa.table({name: pa.array([value, None], kind) for name, (value, kind) in values.items()})
    partitions = [name for name in values if name.startswith("p_")]
    for _ in range(2):
        write_deltalake(str(project.folder / "table"), rows, mode="append", partition_by=partitions)
    expected = [*[tuple(value for value, _ in values.values())] * 2, *[(None,) * len(values)] * 2]
    for start in ("earliest", 0):
        context = ReadContext(spark, "rows", project.folder, project.folder / "spool")
        source = Delta(path="./table", starting_version=start)
        found = source.read(context).writeStream.format("memory").queryName("found").trigger(availableNow=True)
        found.option("checkpointLocation", str(project.folder / f"checkpoint-{start}")).start().awaitTermination()
        read = spark.table("found").toArrow().to_pylist()
        assert sorted((tuple(row.values()) for row in read), key=lambda row: row[0] is None) == expected
    whole = source.read_all(context).toArrow().to_pylist()
    assert sorted((tuple(row.values()) for row in whole), key=lambda row: row[0] is None) == expected


@pytest.mark.spark
def test_files_that_spark_wrote_and_columns_that_came_later_are_read(project: Project, spark: SparkSession) -> None:
    """Spark stores times as 96 bits, and its files do not say in the log how many rows they have here."""
    place = str(project.folder / "table")
    spark.sql("SELECT 1L AS id, TIMESTAMP'2024-01-02 03:04:05.678901' AS at").coalesce(1).write.option(
        "spark.sql.parquet.outputTimestampType", "INT96"
    ).parquet(place)
    (file,) = Path(place).glob("*.parquet")
    schema = {"type": "struct", "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "at", "type": "timestamp", "nullable": True, "metadata": {}},
        {"name": "later", "type": "string", "nullable": True, "metadata": {}},
    ]}  # fmt: skip
    actions: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": {"id": "t", "format": {"provider": "parquet", "options": {}}, "schemaString": json.dumps(schema),
                      "partitionColumns": [], "configuration": {}, "createdTime": 0}},
        {"add": {"path": file.name, "size": file.stat().st_size, "partitionValues": {}, "modificationTime": 0,
                 "dataChange": True}},
    ]  # fmt: skip
    (Path(place) / "_delta_log").mkdir()
    (Path(place) / "_delta_log" / f"{0:020d}.json").write_text(lines(*actions), "utf-8")
    run(pipeline(project), project.folder / "state")
    (row,) = read_files(spark, str(project.folder / "out")).collect()
    assert tuple(row) == (1, dt.datetime(2024, 1, 2, 3, 4, 5, 678901), None)  # noqa: DTZ001


@pytest.mark.spark
def test_a_table_in_an_object_store_is_read_and_written(
    spark: SparkSession, s3: S3, s3_bucket: str, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret_key)
    options = {"aws_endpoint": s3.endpoint, "aws_allow_http": "true"}
    path = f"s3a://{s3_bucket}/table"
    for number in range(3):
        add(path, number, storage_options=options)
    graph = project.build(f"""
        sources:
          rows: {{delta: {{path: "{path}", maxRowsPerBatch: 2}}}}
        sinks:
          out: {{from: rows, delta: {{path: "s3a://{s3_bucket}/copy"}}}}
    """)
    run(graph, project.folder / "state")
    add(path, 3, storage_options=options)
    run(graph, project.folder / "state")
    found = Table(spark, f"s3a://{s3_bucket}/copy", Setting(), options).rows()
    assert found == [(number,) for number in range(4)]
    with pytest.raises(PenstockError) as raised:
        Delta(path="s3a://no-such-bucket/t").read(ReadContext(spark, "rows", project.folder, project.folder))
    assert raised.value.code == "PATH_NOT_FOUND"
    with pytest.raises(PenstockError) as raised:
        Delta(path=f"s3a://{s3_bucket}/nothing").read(ReadContext(spark, "rows", project.folder, project.folder))
    assert raised.value.code == "PATH_NOT_FOUND"


@pytest.mark.parametrize(
    ("config", "codes"),
    [
        ({"path": "./nowhere"}, ["PATH_NOT_FOUND"]),
        ({"path": "hdfs://node/t"}, ["SPEC_BAD_VALUE"]),
        ({"path": "s3a://lake/t", "startingVersion": -1}, ["SPEC_BAD_VALUE"]),
        ({"path": "s3a://lake/t", "startingVersion": 4}, []),
    ],
)
def test_settings_are_checked_before_anything_runs(config: dict[str, Any], codes: list[str], tmp_path: Path) -> None:
    problems = problems_of(Delta.model_validate(config), "rows", tmp_path)
    assert [problem.code for problem in problems] == codes
