"""What a pipeline would give, seen through the real engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.access.addresses import AddressLimits
from penstock.access.limits import Access
from penstock.access.paths import PathLimits
from penstock.access.secrets import SecretLimits
from penstock.errors import PenstockError
from penstock.frontends.examine import examined
from penstock.frontends.yaml import parse_yaml
from penstock.graph.nodes import Graph
from penstock.graph.validate import World
from penstock.reports.codec import plain
from penstock.spec.location import PipelineFile
from penstock.testing import bench
from penstock.testing.preview import Samples, preview

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {name: tried}
spec:
  sources:
    views:
      files: {path: ./in, pattern: "*.json"}
      format: {json: {schema: {id: string, ts: timestamp, ms: long, price: "decimal(6,2)"}}}
      eventTime: {column: ts, maxDelay: 1 second}
  steps:
    long: {from: views, filter: ms >= 500}
    counts: {from: long, window: {size: 1 minute, values: {views: count(*), spent: sum(price)}}}
    split: {from: long, route: {to: {cheap: price < 5, dear: otherwise}}}
    wrong: {from: long, sql: SELECT nothing FROM long}
  sinks:
    store: {from: counts, sqlite: {path: ./out/tried.db, table: counts, key: [window_start]}}
    dear: {from: split.dear, sqlite: {path: ./out/tried.db, table: dear}}
    lost: {from: wrong, sqlite: {path: ./out/tried.db, table: lost}}
"""
ROWS: list[dict[str, Any] | str] = [
    {"id": "a", "ts": "2024-01-01T00:00:01Z", "ms": 700, "price": 1.25},
    {"id": "b", "ts": "2024-01-01T00:00:02Z", "ms": 100, "price": 1.00},
    {"id": "c", "ts": "2024-01-01T00:00:59Z", "ms": 900, "price": 9.75},
    "no row at all",
    {"id": "d", "ts": "2024-01-01T00:01:00Z", "ms": 900, "price": 2.00},
]


@pytest.fixture
def folder(tmp_path: Path, spark: SparkSession) -> Path:
    (tmp_path / "in").mkdir()
    lines = [row if isinstance(row, str) else json.dumps(row) for row in ROWS]
    (tmp_path / "in" / "rows.json").write_text("\n".join(lines) + "\n", "utf-8")
    return tmp_path


def graph(folder: Path) -> Graph:
    read = parse_yaml(FILE, Path("tried.yaml"))
    found = examined(lambda: PipelineFile(read.pipeline, read.places, folder / "tried.yaml"), World.CLOSED)
    assert found.graph is not None
    return found.graph


def test_every_node_shows_its_rows_and_nothing_is_stored(folder: Path) -> None:
    samples = Samples()
    long = preview(graph(folder), "long", samples=samples)
    assert [row["id"] for row in long.rows] == ["a", "c", "d"]
    assert (long.columns["price"], long.rows[0]["price"]) == ("decimal(6,2)", "1.25")
    assert (long.sampled, long.total) == ({"views": 5}, 3)
    assert [letter["raw"] for letter in long.dead] == ["no row at all"]
    store = preview(graph(folder), "store", samples=samples)
    assert [(row["views"], row["spent"]) for row in store.rows] == [(2, "11.00"), (1, "2.00")]
    dear = preview(graph(folder), "dear", samples=samples)
    assert [row["id"] for row in dear.rows] == ["c"]
    assert not (folder / "out").exists()


def test_a_sample_is_as_large_as_wanted_and_taken_once(folder: Path) -> None:
    samples = Samples()
    assert preview(graph(folder), "views", rows=2, samples=samples).sampled == {"views": 2}
    (folder / "in" / "rows.json").unlink()
    assert preview(graph(folder), "views", rows=2, samples=samples).total == 2
    with pytest.raises(PenstockError, match="nothing can be seen of 'nowhere'"):
        preview(graph(folder), "nowhere")


def limited_to(folder: Path) -> dict[str, Any]:
    access = Access(PathLimits((str(folder),)), AddressLimits(()), SecretLimits())
    return {"folder": str(folder), "access": plain(access)}


def test_the_bench_explains_what_is_right_beside_what_is_wrong(folder: Path) -> None:
    asked = {"verb": "explain", "kind": "yaml", "path": "tried.yaml", "text": FILE, **limited_to(folder)}
    answered = bench.answer(json.dumps(asked))
    assert "answer" in answered, answered
    found = answered["answer"]
    nodes = {node["name"]: node for node in found["nodes"]}
    assert {column["name"]: column["type"] for column in nodes["counts"]["columns"]}["views"] == "bigint"
    assert nodes["wrong"]["columns"] is None
    assert nodes["counts"]["watermark"] is None or nodes["views"]["watermark"]["column"] == "ts"
    (problem,) = [problem for problem in found["problems"] if problem["severity"] == "error"]
    assert problem["location"]["line"] == 14


def test_the_bench_answers_whatever_is_asked(folder: Path) -> None:
    asked = {"verb": "preview", "kind": "yaml", "path": "t.yaml", **limited_to(folder), "rows": 5, "seconds": 2}
    rows = bench.answer(json.dumps({**asked, "text": FILE, "node": "dear", "fresh": True}))["answer"]
    assert (rows["node"], rows["total"]) == ("dear", 1)
    (problem,) = bench.answer(json.dumps({**asked, "text": FILE, "node": "lost", "fresh": False}))["problems"]
    assert problem["location"] is not None, problem
    assert problem["location"]["line"] == 14
    (problem,) = bench.answer(json.dumps({**asked, "text": "a: [", "node": "x", "fresh": False}))["problems"]
    assert problem["code"] == "YAML_SYNTAX"
