"""The files sink stores a batch once and whole, for one lineage at a time, in a folder that can be moved."""

from __future__ import annotations

import datetime as dt
import errno
import json
import os
import shutil
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import SparkSession
from tests.engine.running import Died, json_lines, run

from penstock import read_files
from penstock.components.base import Batch, CheckContext, SinkContext, SinkWriter
from penstock.components.shared import crashpoints
from penstock.components.shared.manifests import FOLDER as MANIFESTS
from penstock.components.shared.storage import LocalStorage
from penstock.components.sinks.files import Files
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from tests.conftest import Project

pytestmark = pytest.mark.spark

COLUMNS = {"id": "string", "n": "int"}


def opened(
    spark: SparkSession, folder: Path, lineage: str = "l1", epoch: int = 1, columns: dict[str, str] | None = None,
    **config: Any,
) -> SinkWriter:  # fmt: skip
    sink = Files(**{"path": "out", **config})
    return sink.open(SinkContext(spark, "out", folder, "demo", lineage, epoch, columns or COLUMNS))


def batch(number: int, lineage: str = "l1", epoch: int = 1) -> Batch:
    return Batch("demo", lineage, epoch, number)


def frame(spark: SparkSession, *rows: tuple[str, int]) -> Any:
    return spark.createDataFrame(list(rows), "id string, n int")


def stored(spark: SparkSession, folder: Path) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in read_files(spark, str(folder)).collect())


def data_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file() and "_penstock" not in file.parts)


def test_a_batch_that_comes_again_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    writer = opened(spark, tmp_path)
    assert writer.write(batch(0), frame(spark, ("a", 1), ("b", 2))) is True
    before = data_files(tmp_path / "out")
    assert writer.write(batch(0), frame(spark, ("other", 9))) is False
    assert opened(spark, tmp_path, epoch=2).write(batch(0, epoch=2), frame(spark, ("other", 9))) is False
    assert data_files(tmp_path / "out") == before
    assert stored(spark, tmp_path / "out") == [("a", 1), ("b", 2)]


def test_output_of_another_lineage_is_refused_and_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    opened(spark, tmp_path).write(batch(0), frame(spark, ("a", 1)))
    with pytest.raises(PenstockError) as raised:
        opened(spark, tmp_path, lineage="l2")
    assert raised.value.code == "SINK_OF_ANOTHER_RUN"
    assert stored(spark, tmp_path / "out") == [("a", 1)]


def test_a_folder_in_which_nothing_was_stored_may_change_hands(spark: SparkSession, tmp_path: Path) -> None:
    opened(spark, tmp_path, epoch=5)
    opened(spark, tmp_path, lineage="l2", epoch=1).write(batch(0, "l2"), frame(spark, ("a", 1)))
    assert stored(spark, tmp_path / "out") == [("a", 1)]


def test_an_older_run_is_fenced_and_destroys_nothing(spark: SparkSession, tmp_path: Path) -> None:
    older = opened(spark, tmp_path, epoch=1)
    newer = opened(spark, tmp_path, epoch=2)
    newer.write(batch(0, epoch=2), frame(spark, ("new", 1)))
    with pytest.raises(PenstockError) as raised:
        older.write(batch(0), frame(spark, ("old", 1)))
    assert raised.value.code == "SINK_FENCED"
    assert stored(spark, tmp_path / "out") == [("new", 1)]
    with pytest.raises(PenstockError) as raised:
        opened(spark, tmp_path, epoch=1)
    assert raised.value.code == "SINK_FENCED"


def test_a_run_whose_folder_went_to_another_lineage_is_fenced(spark: SparkSession, tmp_path: Path) -> None:
    older = opened(spark, tmp_path, lineage="l1", epoch=3)
    opened(spark, tmp_path, lineage="l2", epoch=1).write(batch(0, "l2"), frame(spark, ("new", 1)))
    with pytest.raises(PenstockError) as raised:
        older.write(batch(0, epoch=3), frame(spark, ("old", 1)))
    assert raised.value.code == "SINK_FENCED"
    assert stored(spark, tmp_path / "out") == [("new", 1)]


def test_a_half_written_batch_is_not_seen_and_is_replaced(spark: SparkSession, tmp_path: Path) -> None:
    writer = opened(spark, tmp_path)
    writer.write(batch(0), frame(spark, ("a", 1)))

    def die(point: str, number: int) -> None:
        raise Died(point)

    crashpoints.install(die)
    try:
        with pytest.raises(Died):
            writer.write(batch(1), frame(spark, ("lost", 1)))
    finally:
        crashpoints.install(None)
    assert len(data_files(tmp_path / "out")) >= 2
    assert stored(spark, tmp_path / "out") == [("a", 1)]
    opened(spark, tmp_path, epoch=2).write(batch(1, epoch=2), frame(spark, ("b", 2)))
    assert stored(spark, tmp_path / "out") == [("a", 1), ("b", 2)]


def test_what_earlier_runs_left_unfinished_is_removed_when_the_sink_opens(spark: SparkSession, tmp_path: Path) -> None:
    opened(spark, tmp_path).write(batch(3), frame(spark, ("a", 1)))
    (committed,) = (tmp_path / "out" / "batch=000000000003" / "epoch=1").glob("part-*.parquet")
    for left in ("batch=000000000003/epoch=0", "batch=000000000007/epoch=1"):
        folder = tmp_path / "out" / left
        folder.mkdir(parents=True)
        shutil.copy(committed, folder)
    opened(spark, tmp_path, epoch=2, keep="0 seconds")
    assert [file for file in data_files(tmp_path / "out") if file.suffix == ".parquet"] == [committed]
    assert spark.read.parquet(str(tmp_path / "out")).count() == 1


@pytest.mark.parametrize("format", ["parquet", "json", "csv"])
def test_an_empty_batch_leaves_no_files(format: str, spark: SparkSession, tmp_path: Path) -> None:
    writer = opened(spark, tmp_path, format=format)
    assert writer.write(batch(0), frame(spark)) is True
    assert data_files(tmp_path / "out") == []
    assert not (tmp_path / "out" / MANIFESTS).exists()
    writer.write(batch(1), frame(spark, ("a", 1)))
    assert [row[0] for row in stored(spark, tmp_path / "out")] == ["a"]


def test_a_folder_can_be_named_by_a_uri(spark: SparkSession, tmp_path: Path) -> None:
    writer = opened(spark, tmp_path, path=f"file://{tmp_path}/out")
    writer.write(batch(0), frame(spark, ("a", 1)))
    writer.write(batch(1), frame(spark))
    writer.write(batch(2), frame(spark, ("b", 2)))
    assert writer.write(batch(2), frame(spark, ("b", 2))) is False
    assert sorted(tuple(row) for row in read_files(spark, f"file://{tmp_path}/out").collect()) == [("a", 1), ("b", 2)]
    assert stored(spark, tmp_path / "out") == [("a", 1), ("b", 2)]
    with pytest.raises(PenstockError) as raised:
        opened(spark, tmp_path, path=f"file://{tmp_path}/out", lineage="l2")
    assert raised.value.code == "SINK_OF_ANOTHER_RUN"


def test_values_come_back_from_every_format(spark: SparkSession, tmp_path: Path) -> None:
    at = dt.datetime(2024, 1, 2, 3, 4, 5, 678000)  # noqa: DTZ001 - as Spark gives it back, in the session's UTC
    schema = "id string, n bigint, x double, ok boolean, at timestamp"
    rows = [
        ("a", 1, 1.5, True, at),
        ('with, comma "quoted"\nand line', -2, None, False, None),
        ("", 3, 0.5, True, at),
        (None, None, 0.0, None, at),
    ]
    columns = {"id": "string", "n": "bigint", "x": "double", "ok": "boolean", "at": "timestamp"}
    for format in ("parquet", "json", "csv"):
        writer = opened(spark, tmp_path, columns=columns, path=f"out-{format}", format=format)
        writer.write(batch(0), spark.createDataFrame(rows, schema))
        found = read_files(spark, str(tmp_path / f"out-{format}"))
        assert found.columns == list(columns), format
        cast = found.select(*(found[name].cast(kind).alias(name) for name, kind in columns.items())).collect()
        assert {tuple(row) for row in cast} == set(rows), format


def test_nested_values_and_decimals_come_back_from_parquet(spark: SparkSession, tmp_path: Path) -> None:
    columns = {"d": "decimal(10,2)", "tags": "array<string>", "m": "map<string,int>", "day": "date"}
    schema = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    row = (Decimal("12.30"), ["x", "y"], {"k": 1}, dt.date(2024, 1, 2))
    opened(spark, tmp_path, columns=columns).write(batch(0), spark.createDataFrame([row], schema))
    found = read_files(spark, str(tmp_path / "out"))
    assert [tuple(item) for item in found.collect()] == [row]
    assert {item.name: item.dataType.simpleString() for item in found.schema.fields} == columns


def test_partitions_become_folders_and_columns_again(spark: SparkSession, tmp_path: Path) -> None:
    writer = opened(spark, tmp_path, partition_by=("id",))
    writer.write(batch(0), frame(spark, ("a/b", 1), ("c", 2)))
    writer.write(batch(1), frame(spark, ("c", 3)))
    folders = sorted(path.name for path in (tmp_path / "out").rglob("id=*"))
    assert folders == ["id=a%2Fb", "id=c", "id=c"]
    found = read_files(spark, str(tmp_path / "out"))
    assert sorted((row["id"], row["n"]) for row in found.collect()) == [("a/b", 1), ("c", 2), ("c", 3)]


PLAIN = """
    SELECT explode(files.path) AS path FROM manifests AS m
    WHERE NOT EXISTS (
        SELECT 1 FROM manifests AS n WHERE n.level > m.level AND n.first <= m.first AND n.batch >= m.batch
    )
"""


def plainly(spark: SparkSession, path: Path) -> list[tuple[Any, ...]]:
    """What is stored, read with nothing but Spark."""
    spark.read.json(f"{path}/{MANIFESTS}").createOrReplaceTempView("manifests")
    files = [f"{path}/{row.path}" for row in spark.sql(PLAIN).collect()]
    found = spark.read.option("basePath", str(path)).parquet(*files)
    return sorted((row["id"], row["n"]) for row in found.collect())


@pytest.mark.parametrize("entropy", [False, True])
def test_merged_batches_are_read_as_before(entropy: bool, spark: SparkSession, tmp_path: Path) -> None:
    writer = opened(spark, tmp_path, compact=2, entropy=entropy)
    for number in range(5):
        writer.write(batch(number), frame(spark, ("a", number), ("b", number)))
    assert sorted(name for name in os.listdir(tmp_path / "out" / MANIFESTS) if "-" in name) == [
        "000000000000-000000000001.1.json", "000000000000-000000000003.2.json", "000000000002-000000000003.1.json",
    ]  # fmt: skip
    expected = [(name, number) for name in "ab" for number in range(5)]
    assert stored(spark, tmp_path / "out") == expected
    assert plainly(spark, tmp_path / "out") == expected
    again = opened(spark, tmp_path, compact=2, entropy=entropy, epoch=2, keep="0 seconds")
    for number in range(5):
        assert again.write(batch(number, epoch=2), frame(spark, ("other", 9))) is False
    assert stored(spark, tmp_path / "out") == expected
    shards = {path.name for path in (tmp_path / "out").glob("shard=*")}
    assert len(shards) == (2 if entropy else 0)
    # What was merged is gone, so the folder as a whole reads the same.
    assert spark.read.parquet(str(tmp_path / "out")).count() == 10


@pytest.mark.parametrize("format", ["parquet", "json", "csv"])
def test_merging_changes_no_value(format: str, spark: SparkSession, tmp_path: Path) -> None:
    columns = {"id": "string", "x": "double", "d": "decimal(10,2)", "day": "date", "at": "timestamp", "c": "string"}
    schema = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    at = dt.datetime(2024, 1, 2, 3, 4, 5, 678000)  # noqa: DTZ001
    writer = opened(spark, tmp_path, columns=columns, format=format, partition_by=("c",), compact=2)
    for number, text in enumerate(['with, comma "quoted"\nand line', "", "ü", None]):
        rows = [
            (text, 0.1 + number, Decimal("12.30"), dt.date(2024, 1, 2), at, "x/y"),
            (None, None, None, None, None, None),
        ]
        writer.write(batch(number), spark.createDataFrame(rows, schema))
        found = read_files(spark, str(tmp_path / "out"))
        if number == 0:
            expected = {tuple(row) for row in found.collect()}
    merged = read_files(spark, str(tmp_path / "out"))
    assert merged.count() == 8
    assert {tuple(row) for row in merged.where("x < 0.2 OR x IS NULL").collect()} == expected
    assert sorted(str(row.id) for row in merged.where("x IS NOT NULL").collect()) == sorted(
        ['with, comma "quoted"\nand line', "", "ü", "None"]
    )
    assert len(list((tmp_path / "out").glob("batch=000000000003/epoch=1/c=*/part-*"))) >= 2


def test_a_column_that_comes_later_is_null_in_batches_before_it(spark: SparkSession, tmp_path: Path) -> None:
    writer = opened(spark, tmp_path, compact=2)
    writer.write(batch(0), frame(spark, ("a", 1)))
    writer.write(batch(1), spark.createDataFrame([("b", 2, True)], "id string, n int, ok boolean"))
    assert stored(spark, tmp_path / "out") == [("a", 1, None), ("b", 2, True)]


def test_output_whose_format_has_changed_is_read_as_a_whole(spark: SparkSession, tmp_path: Path) -> None:
    opened(spark, tmp_path).write(batch(0), frame(spark, ("a", 1)))
    writer = opened(spark, tmp_path, epoch=2, format="json", compact=2)
    writer.write(batch(1, epoch=2), frame(spark, ("b", 2)))
    writer.write(batch(2, epoch=2), frame(spark, ("c", 3)))
    assert stored(spark, tmp_path / "out") == [("a", 1), ("b", 2), ("c", 3)]


def test_a_batch_that_fails_leaves_no_files(spark: SparkSession, tmp_path: Path) -> None:
    writer = opened(spark, tmp_path)
    bad = spark.range(4, numPartitions=4).selectExpr("IF(id = 3, raise_error('no'), 'a') AS id", "1 AS n")
    with pytest.raises(Exception, match="USER_RAISED_EXCEPTION"):
        writer.write(batch(0), bad)
    assert data_files(tmp_path / "out") == []


def test_a_moved_folder_is_still_readable_and_writable(spark: SparkSession, tmp_path: Path) -> None:
    opened(spark, tmp_path).write(batch(0), frame(spark, ("a", 1)))
    shutil.move(tmp_path / "out", tmp_path / "moved")
    assert stored(spark, tmp_path / "moved") == [("a", 1)]
    opened(spark, tmp_path, path="moved", epoch=2).write(batch(1, epoch=2), frame(spark, ("b", 2)))
    assert stored(spark, tmp_path / "moved") == [("a", 1), ("b", 2)]
    written = "".join(file.read_text() for file in (tmp_path / "moved" / "_penstock").rglob("*.json"))
    assert str(tmp_path) not in written


def test_a_manifest_names_its_batch_and_files(spark: SparkSession, tmp_path: Path) -> None:
    opened(spark, tmp_path).write(batch(42), frame(spark, ("a", 1)))
    manifest = json.loads((tmp_path / "out" / MANIFESTS / f"{42:012d}.json").read_text())
    assert (manifest["batch"], manifest["lineage"], manifest["epoch"], manifest["format"]) == (42, "l1", 1, "parquet")
    for file in manifest["files"]:
        assert (tmp_path / "out" / file["path"]).stat().st_size == file["bytes"]


@pytest.mark.parametrize("links", [True, False])
def test_of_two_who_put_the_same_file_one_is_told(links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise OSError(errno.EPERM, "no links here")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    store = LocalStorage(tmp_path)
    assert store.create("x/1.json", "first") is True
    assert store.create("x/1.json", "second") is False
    assert store.read("x/1.json") == "first"
    assert os.listdir(tmp_path / "x") == ["1.json"]


def test_a_folder_without_a_finished_batch_is_said(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PenstockError) as raised:
        read_files(spark, str(tmp_path / "nothing"))
    assert raised.value.code == "PATH_NOT_FOUND"


@pytest.mark.parametrize(
    ("config", "columns", "code"),
    [
        ({"partition_by": ("zz",)}, {"id": "string"}, "SINK_COLUMN_UNKNOWN"),
        ({"format": "csv"}, {"tags": "array<string>"}, "SINK_TYPE_UNSUPPORTED"),
        ({}, {"batch": "int"}, "SINK_TYPE_UNSUPPORTED"),
        ({"entropy": True}, {"shard": "int"}, "SINK_TYPE_UNSUPPORTED"),
    ],
)
def test_columns_that_do_not_fit_are_refused(config: dict[str, Any], columns: dict[str, str], code: str) -> None:
    problems = list(Files(path="out", **config).check_columns("out", columns))
    assert [problem.code for problem in problems] == [code]


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"path": "s3://lake/views"}, "SPEC_BAD_VALUE"),
        ({"path": "s3a://Lake_1/views"}, "SPEC_BAD_VALUE"),
        ({"path": "out", "s3": {"region": "eu-west-1"}}, "SPEC_BAD_VALUE"),
        ({"path": "s3a://lake/views", "s3": {"endpoint": "http://user:pass@host"}}, "SPEC_BAD_VALUE"),
        ({"path": "s3a://lake/views", "s3": {"endpoint": "file:///etc/passwd"}}, "SPEC_BAD_VALUE"),
        ({"path": "s3a://lake/views", "s3": {"endpoint": "https://host/path"}}, "SPEC_BAD_VALUE"),
        ({"path": "s3a://lake/views", "s3": {"accessKey": "${secret:env/K}"}}, "SPEC_MISSING_KEY"),
    ],
)
def test_places_that_cannot_be_written_to_are_refused(config: dict[str, Any], code: str, tmp_path: Path) -> None:
    problems = list(Files.model_validate(config).check(CheckContext("out")))
    assert [problem.code for problem in problems] == [code]


@pytest.mark.parametrize(
    "point",
    [
        "sink.before_write",
        "sink.in_transaction",
        "sink.after_commit",
        "batch.after_ledger",
        "sink.compacting",
        "sink.compacted",
    ],
)
def test_each_row_is_stored_once_wherever_the_run_dies(point: str, project: Project, spark: SparkSession) -> None:
    for number in range(3):
        project.put(f"in/{number}.json", json_lines([{"id": f"{number}-{n}"} for n in range(2)]))
    graph = project.build("""
        sources:
          views: {files: {path: ./in, maxFilesPerBatch: 1}, format: {json: {schema: {id: string}}}}
        sinks:
          out: {from: views, files: {path: ./out, compact: 2}}
    """)
    run(graph, project.folder / "state", die_at=f"{point}@1")
    outcome = run(graph, project.folder / "state")
    expected = [(f"{number}-{n}",) for number in range(3) for n in range(2)]
    assert stored(spark, project.folder / "out") == expected
    assert [entry.rows_out["out"] for entry in outcome.ledger] == [2, 2, 2]
    assert outcome.epoch == 2


def test_another_state_for_the_same_output_is_refused(project: Project, spark: SparkSession) -> None:
    project.put("in/1.json", json_lines([{"id": "a"}]))
    graph = project.build("""
        sources:
          views: {files: {path: ./in}, format: {json: {schema: {id: string}}}}
        sinks:
          out: {from: views, files: {path: ./out}}
    """)
    run(graph, project.folder / "state")
    with pytest.raises(PenstockError) as raised:
        run(graph, project.folder / "other")
    assert raised.value.code == "SINK_OF_ANOTHER_RUN"
    assert stored(spark, project.folder / "out") == [("a",)]
