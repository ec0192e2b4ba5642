"""The files source reads every matching file once, in the order of time, and goes on where it stopped."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession
from tests.components.looking import problems_of
from tests.engine.running import Outcome, run, table

from penstock.components.base import Backlog, ReadContext
from penstock.components.sources.files import Files
from penstock.engine.checkpoint import source_log
from penstock.errors import PenstockError
from penstock.graph.nodes import Graph
from penstock.graph.validate import check

if TYPE_CHECKING:
    from tests.conftest import Project

pytestmark = pytest.mark.spark


def graph(project: Project, config: str, format: str = "text: {}", column: str = "value") -> Graph:
    return project.build(f"""
        sources:
          lines: {{files: {{{config}}}, format: {{{format}}}}}
        steps:
          words: {{from: lines, select: {{word: {column}}}}}
        sinks:
          out: {{from: words, sqlite: {{path: out.db, table: t}}}}
    """)


def words(project: Project) -> list[str]:
    return [row[0] for row in table(project.folder / "out.db", "SELECT word FROM t ORDER BY word")]


def batches(outcome: Outcome) -> list[int]:
    return [entry.rows_in["lines"] for entry in outcome.ledger]


@pytest.fixture
def tree(project: Project) -> Project:
    """Files of several names and depths; each holds its own name."""
    for name in ("in/a.txt", "in/b.log", "in/_hidden.txt", "in/.secret.txt", "in/deep/c.txt", "in/deep/d.log"):
        project.put(name, f"{name}\n")
    return project


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("path: ./in", ["in/a.txt", "in/b.log"]),
        ("path: ./in/a.txt", ["in/a.txt"]),
        ("path: './in/*.log'", ["in/b.log"]),
        ("path: './in/*/*.txt'", ["in/deep/c.txt"]),
        ("path: ./in, pattern: '*.txt'", ["in/a.txt"]),
        ("path: ./in, recursive: true", ["in/a.txt", "in/b.log", "in/deep/c.txt", "in/deep/d.log"]),
        ("path: ./in, recursive: true, pattern: '*.log'", ["in/b.log", "in/deep/d.log"]),
    ],
)
def test_paths_and_patterns_choose_files(config: str, expected: list[str], tree: Project) -> None:
    run(graph(tree, config), tree.folder / "state")
    assert words(tree) == expected


def test_a_batch_takes_so_many_files_in_the_order_of_their_times(project: Project) -> None:
    names = ["z", "m", "a", "q", "b"]
    for name in names:
        project.put(f"in/{name}.txt", f"{name}\n")
    outcome = run(graph(project, "path: ./in, maxFilesPerBatch: 2"), project.folder / "state")
    assert batches(outcome) == [2, 2, 1]
    stored = table(project.folder / "out.db", "SELECT word FROM t ORDER BY rowid")
    assert [sorted(row[0] for row in part) for part in (stored[:2], stored[2:4], stored[4:])] == [
        ["m", "z"],
        ["a", "q"],
        ["b"],
    ]


def test_files_that_come_later_are_read_once_after_a_restart(project: Project) -> None:
    pipeline = graph(project, "path: ./in")
    project.put("in/1.txt", "one\n")
    run(pipeline, project.folder / "state")
    project.put("in/2.txt", "two\n")
    outcome = run(pipeline, project.folder / "state")
    assert batches(outcome) == [1, 1]
    run(pipeline, project.folder / "state")
    assert words(project) == ["one", "two"]


def test_a_batch_that_died_reads_the_same_files_again(project: Project) -> None:
    pipeline = graph(project, "path: ./in, maxFilesPerBatch: 1")
    project.put("in/1.txt", "one\n")
    project.put("in/2.txt", "two\n")
    run(pipeline, project.folder / "state", die_at="sink.before_write@1")
    project.put("in/0.txt", "zero\n")
    outcome = run(pipeline, project.folder / "state")
    assert words(project) == ["one", "two", "zero"]
    assert batches(outcome) == [1, 1, 1]


def test_packed_files_are_read(project: Project) -> None:
    project.put("in/1.txt.gz", gzip.compress(b"packed\n"))
    run(graph(project, "path: ./in"), project.folder / "state")
    assert words(project) == ["packed"]


def test_a_name_with_spaces_and_signs_is_read(project: Project) -> None:
    project.put("in/a b%20c.txt", "odd\n")
    run(graph(project, "path: ./in"), project.folder / "state")
    assert words(project) == ["odd"]


@pytest.fixture
def cleaning_at_once(spark: SparkSession) -> Iterator[None]:
    """Spark moves files in the background otherwise."""
    key = "spark.sql.streaming.fileSource.cleaner.numThreads"
    spark.conf.set(key, "0")
    yield
    spark.conf.unset(key)


@pytest.mark.usefixtures("cleaning_at_once")
def test_files_are_archived_after_they_were_read(project: Project) -> None:
    pipeline = graph(project, "path: ./in, archiveTo: ./done, maxFilesPerBatch: 1")
    for name in ("1", "2", "3"):
        project.put(f"in/{name}.txt", f"{name}\n")
    run(pipeline, project.folder / "state")
    assert words(project) == ["1", "2", "3"]
    archived = sorted(file.name for file in (project.folder / "done").rglob("*.txt"))
    left = sorted(file.name for file in (project.folder / "in").glob("*.txt"))
    assert archived == [name for name in ("1.txt", "2.txt", "3.txt") if name not in left]
    assert "1.txt" in archived


def test_files_much_older_than_the_newest_are_ignored_if_asked(project: Project) -> None:
    old, new = project.put("in/old.txt", "old\n"), project.put("in/new.txt", "new\n")
    os.utime(old, (1_600_000_000, 1_600_000_000))
    os.utime(new, (1_700_000_000, 1_700_000_000))
    pipeline = graph(project, "path: ./in, maxFilesPerBatch: 1, ignoreOlderThan: 1 day")
    run(pipeline, project.folder / "state")
    assert "new" in words(project)
    project.put("in/ancient.txt", "ancient\n")
    os.utime(project.folder / "in/ancient.txt", (1_500_000_000, 1_500_000_000))
    run(pipeline, project.folder / "state")
    assert "ancient" not in words(project)


def test_parquet_columns_are_those_of_the_files(project: Project, spark: SparkSession) -> None:
    spark.createDataFrame([("a", 1)], "word string, n int").write.parquet(str(project.folder / "in"))
    run(graph(project, "path: ./in", "parquet: {}", "'concat(word, n)'"), project.folder / "state")
    assert words(project) == ["a1"]


def test_an_empty_folder_has_no_parquet_schema(project: Project) -> None:
    (project.folder / "in").mkdir()
    with pytest.raises(PenstockError) as raised:
        run(graph(project, "path: ./in", "parquet: {}"), project.folder / "state")
    assert raised.value.code == "SCHEMA_NOT_INFERRED"


def test_a_parquet_file_that_is_none_stops_the_run_and_is_named(project: Project) -> None:
    project.put("in/bad.parquet", "no parquet at all")
    with pytest.raises(PenstockError) as raised:
        run(graph(project, "path: ./in", "parquet: {schema: {word: string}}", "word"), project.folder / "state")
    assert raised.value.code == "SOURCE_FILE_CORRUPT"
    assert "bad.parquet" in raised.value.problems[0].message


def test_a_path_that_does_not_exist_is_said_before_anything_runs(project: Project) -> None:
    found = [problem for problem in check(graph(project, "path: ./nowhere")) if problem.code == "PATH_NOT_FOUND"]
    assert [problem.params["path"] for problem in found] == [str(project.folder / "nowhere")]
    (project.folder / "in").mkdir()
    assert problems_of(Files(path="./in"), "lines", project.folder) == []
    assert problems_of(Files(path="s3a://bucket/x"), "lines", project.folder) == []


@pytest.mark.usefixtures("cleaning_at_once")
@pytest.mark.parametrize("archive", ["", ", archiveTo: ./done"])
def test_the_backlog_is_what_was_not_read(archive: str, project: Project, spark: SparkSession) -> None:
    pipeline = graph(project, f"path: ./in, maxFilesPerBatch: 1{archive}")
    for name in ("1", "2", "3"):
        project.put(f"in/{name}.txt", f"{name}\n")
    run(pipeline, project.folder / "state")
    context = ReadContext(spark, "lines", project.folder, project.folder / "spool")
    log = source_log(project.folder / "state" / "checkpoint", "lines")
    source = pipeline.nodes["lines"].component
    assert isinstance(source, Files)
    assert isinstance(log, Path)
    assert source.backlog(context, {"log": log}) == Backlog(0, "files")
    for name in ("4", "5"):
        project.put(f"in/{name} x.txt", f"{name}\n")
    project.put("in/_hidden.txt", "6\n")
    assert source.backlog(context, {"log": log}) == Backlog(2, "files")
    assert source.backlog(context, {}) is None
