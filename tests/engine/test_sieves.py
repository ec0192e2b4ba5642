"""Rows that break rules, or on which an expression fails, are set aside; all others go on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.engine.running import course, json_lines, table
from tests.faults.victim import committed_rows

from penstock.engine.balance import imbalances
from penstock.engine.ledger import Ledger

if TYPE_CHECKING:
    from tests.conftest import Project

pytestmark = pytest.mark.spark

ROWS = [{"id": n, "a": a, "b": b} for n, (a, b) in enumerate([(8, 2), (1, 0), (9, 3), (None, 1), (5, 0), (7, 7)])]
SOURCE = """
    sources:
      rows:
        files: {path: ./in, maxFilesPerBatch: 1}
        format: {json: {schema: {id: bigint, a: bigint, b: bigint, ts: timestamp}}}
        eventTime: {column: ts, maxDelay: 0 seconds}
    state: {partitions: 2}
"""


def body(step: str, *more: str, name: str) -> str:
    sinks = [f"out: {{from: {name}, sqlite: {{path: out.db, table: t}}}}", *more]
    return f"{SOURCE}    steps:\n      {step}\n    sinks:\n" + "".join(f"      {sink}\n" for sink in sinks)


def feed(project: Project, *parts: list[dict[str, Any]]) -> None:
    for number, part in enumerate(parts):
        rows = [{**row, "ts": f"2024-01-01T00:{number:02d}:{row['id']:02d}Z"} for row in part]
        project.put(f"in/{number}.json", json_lines(rows))


def letters(project: Project, name: str) -> dict[int, dict[str, Any]]:
    found = committed_rows(project.folder / "state" / "dead" / f"{name}_sifted")
    return {json.loads(letter["raw"])["id"]: letter for letter in found}


def ledger(project: Project) -> Ledger:
    return Ledger(project.folder / "state" / "ledger.db")


def stored(project: Project, columns: str = "id, q") -> list[tuple[Any, ...]]:
    return sorted(table(project.folder / "out.db", f"SELECT {columns} FROM t"))


@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize(
    "step",
    [
        "quotient: {from: rows, select: {id: id, q: a div b}}",
        "quotient: {from: rows, sql: 'SELECT id, a div b AS q FROM rows WHERE id >= 0'}",
    ],
)
def test_rows_on_which_an_expression_fails_are_dead_letters(step: str, single: bool, project: Project) -> None:
    more = () if single else ("raw: {from: rows, sqlite: {path: out.db, table: raw}}",)
    feed(project, ROWS[:1], ROWS[1:4], ROWS[4:])
    graph = project.build(body(step, *more, name="quotient"))
    last = course(graph, project.folder / "state")[-1]
    assert stored(project) == [(0, 4), (2, 3), (3, None), (5, 1)]
    found = letters(project, "quotient")
    assert sorted(found) == [1, 4]
    assert {letter["stage"] for letter in found.values()} == {"step"}
    assert found[1]["error"].replace("rows.", "") == "cannot be computed: (a div b)"
    assert last.rows_dead["quotient"] == 2
    assert [imbalances(graph, entry) for entry in ledger(project).entries()] == [[], [], []]


def test_a_filter_that_fails_tells_dead_rows_from_dropped_ones(project: Project) -> None:
    feed(project, ROWS)
    graph = project.build(body("large: {from: rows, filter: a div b > 3}", name="large"))
    last = course(graph, project.folder / "state")[-1]
    assert stored(project, "id") == [(0,)]
    assert (last.rows_dead["large"], sorted(letters(project, "large"))) == (2, [1, 4])
    (entry,) = ledger(project).entries()
    assert (entry.filtered, imbalances(graph, entry)) == ({"large": 3}, [])


def test_what_a_window_is_given_is_guarded_too(project: Project) -> None:
    window = "sums: {from: rows, window: {size: 1 minute, values: {q: sum(a div b)}}}"
    feed(project, ROWS, [{"id": 9, "a": 1, "b": 1}], [{"id": 10, "a": 1, "b": 1}])
    course(project.build(body(window, name="sums")), project.folder / "state")
    assert (8,) in stored(project, "q")
    assert sorted(letters(project, "sums")) == [1, 4]


def test_a_python_function_that_fails_for_a_row_does_not_end_the_pipeline(project: Project) -> None:
    (project.folder / "divide.py").write_text(
        "import pyarrow as pa\n\n"
        "def run(batches):\n"
        "    for batch in batches:\n"
        "        rows = batch.to_pylist()\n"
        "        q = [row['a'] // row['b'] if row['a'] is not None else None for row in rows]\n"
        "        yield pa.record_batch({'id': [row['id'] for row in rows], 'q': pa.array(q, pa.int64())})\n",
        "utf-8",
    )
    step = "quotient: {from: rows, python: {function: 'divide:run', over: arrow, schema: {id: bigint, q: bigint}}}"
    feed(project, ROWS)
    course(project.build(body(step, name="quotient")), project.folder / "state")
    assert stored(project) == [(0, 4), (2, 3), (3, None), (5, 1)]
    found = letters(project, "quotient")
    assert sorted(found) == [1, 4]
    assert found[1]["error"].startswith("ZeroDivisionError")


@pytest.mark.parametrize("late", [False, True])
def test_rows_that_break_a_rule_are_dead_letters_that_name_it(late: bool, project: Project) -> None:
    """In the streaming query, and behind a step that keeps state."""
    first = (
        "numbers: {from: rows, rolling: {over: 1 minute, values: {n: count(*)}, emit: at once}}\n      " if late else ""
    )
    rules = "{some: b <> 0, known: a IS NOT NULL, small: a < 9}"
    step = f"{first}good: {{from: {'numbers' if late else 'rows'}, expect: {rules}}}"
    feed(project, ROWS[:3], ROWS[3:])
    graph = project.build(body(step, name="good"))
    last = course(graph, project.folder / "state")[-1]
    assert stored(project, "id") == [(0,), (5,)]
    found = {number: letter["error"] for number, letter in letters(project, "good").items()}
    known, some, small = "known: a IS NOT NULL", "some: b <> 0", "small: a < 9"
    assert found == {1: some, 2: small, 3: f"{known}; {small}", 4: some}
    assert last.rows_dead["good"] == 4
    if not late:
        assert all(not imbalances(graph, entry) for entry in ledger(project).entries())
