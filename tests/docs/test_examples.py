"""Examples and what the guides show, run on Spark."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from tests.docs.pages import EXAMPLES, ROOT, blocks_of, project_of

from penstock.engine.analyse import analyse
from penstock.engine.query import RunningPipeline
from penstock.engine.statedir import StateDir
from penstock.frontends.load import load
from penstock.graph.build import build
from penstock.testing import run_cases

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

GUIDES = ROOT / "docs" / "guides"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_tests_of_an_example_pass(path: Path) -> None:
    results = list(run_cases(load(path)))

    assert results
    assert {result.name: result.differences for result in results if not result.passed} == {}


@pytest.mark.parametrize(
    ("page", "name"), [(ROOT / "README.md", "shop.yaml"), (GUIDES / "testing-a-pipeline.md", "minutes.yaml")]
)
def test_the_tests_of_a_pipeline_in_the_docs_pass(page: Path, name: str, tmp_path: Path) -> None:
    with project_of(page, tmp_path) as folder:
        results = list(run_cases(load(folder / name)))

    assert results
    assert {result.name: result.differences for result in results if not result.passed} == {}


def test_the_test_file_of_the_guide_passes(tmp_path: Path) -> None:
    with project_of(GUIDES / "testing-a-pipeline.md", tmp_path) as folder:
        tests = functions_of(imported(folder / "test_minutes.py"))
        for test in tests.values():
            test()

    assert len(tests) == 4


def test_the_components_of_the_guide_work_together(tmp_path: Path, spark: SparkSession) -> None:
    with project_of(GUIDES / "adding-a-component.md", tmp_path) as folder:
        (folder / "in").mkdir()
        (folder / "in" / "a.tsv").write_text("1\tann@example.org\nx\tbob@example.org\n2\tann@example.org\n", "utf-8")
        state = folder / "state"
        first, again = (
            run_once(spark, folder / "customers.yaml", state),
            run_once(spark, folder / "customers.yaml", state),
        )
        files = sorted((folder / "outbox").glob("*.jsonl"))
        rows = [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]
        dead = [json.loads(line) for file in (state / "dead").glob("batch=*/*/*.json") for line in file.open()]

    assert first == again == ({"customers": 3}, {"customers": 1}, {"outbox": 2})
    assert [row["id"] for row in rows] == [1, 2]
    assert rows[0]["email"] == rows[1]["email"]
    assert len(rows[0]["email"]) == 64
    assert [letter["raw"] for letter in dead] == ["x\tbob@example.org"]


def run_once(spark: SparkSession, path: Path, state_dir: Path) -> tuple[Any, Any, Any]:
    """Runs over what is there and gives the ledger's totals: rows in, dead and out."""
    graph = build(load(path))
    with StateDir(state_dir, graph.file.pipeline.name) as state:
        analysed = analyse(spark, graph, state.spool)
        analysed.raise_errors()
        running = RunningPipeline(spark, graph, analysed, state)
        try:
            running.start(once=True)
            assert running.wait(120)
        finally:
            running.stop()
            running.close()
        totals = running.ledger.totals()
        return totals.rows_in, totals.rows_dead, totals.rows_out


def imported(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def functions_of(module: ModuleType) -> dict[str, Callable[[], None]]:
    return {name: value for name, value in vars(module).items() if name.startswith("test_")}


# --- as a person would run them: minutes, since every command starts a JVM ------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("name", ["orders.yaml", "telemetry.yaml"])
def test_running_an_example_twice_gives_what_running_it_once_gives(name: str, tmp_path: Path) -> None:
    for path in EXAMPLES:
        shutil.copy(path, tmp_path)
    shutil.copytree(ROOT / "examples" / "data", tmp_path / "data")
    outputs = []
    for _ in range(2):
        shell(f"penstock run {name} --once", tmp_path)
        outputs.append(stored(tmp_path / "out"))

    assert outputs[0] == outputs[1]
    assert len(outputs[0]) == {"orders.yaml": 7 + 2, "telemetry.yaml": 842}[name]


@pytest.mark.long
def test_the_commands_of_the_readme_give_what_it_says(tmp_path: Path) -> None:
    (script,) = [
        block for block in blocks_of(ROOT / "README.md") if block.language == "sh" and "penstock" in block.text
    ]
    with project_of(script.page, tmp_path) as folder:
        printed = shell(script.text, folder)

    assert printed.splitlines()[-1] == "DE|1|12.5"


def shell(script: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", script],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def stored(out: Path) -> list[str]:
    """All rows below a folder, whatever they are stored in, in a fixed order."""
    import pyarrow.dataset

    rows: list[Any] = []
    for file in out.rglob("*.parquet"):
        rows += pyarrow.dataset.dataset(file, format="parquet").to_table().to_pylist()
    for file in out.rglob("batch=*/*/*.json"):
        rows += [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    for file in out.rglob("*.db"):
        with closing(sqlite3.connect(file)) as database:
            rows += database.execute("SELECT * FROM machine_minutes").fetchall()
    return sorted(map(str, rows))
