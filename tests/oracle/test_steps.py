"""What a pipeline computes equals a plain computation over all its rows, wherever batches are cut and runs die.

Hypothesis makes rows (out of order within the tolerated delay, with ties, nulls and repeated keys), cuts them into
batches, empty ones included, and may let one batch die at a named point. The oracles are plain Python.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from penstock.components.shared.crashpoints import POINTS
from penstock.testing import Harness

pytestmark = pytest.mark.spark

Row = dict[str, Any]
START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
MAX_DELAY = 10
_NO_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)
SHORT, LONG = settings(max_examples=2, phases=_NO_SHRINKING), settings(max_examples=100)
HEAD = "apiVersion: penstock/v1\nkind: Pipeline\nmetadata: {name: oracle}\nspec:\n  sources:\n"
VIEWS = """\
    {name}:
      memory: {{schema: {{id: string, kind: string, ts: timestamp, n: int}}}}
      eventTime: {{column: ts, maxDelay: 10 seconds}}
"""
STEPS = """\
import pyarrow as pa


def positive(views):
    return views.where("n > 0").selectExpr("id", "n - 1 AS less")


def reversed_text(batches):
    for batch in batches:
        rows = [row for row in batch.to_pylist() if row["id"] is not None]
        ids, numbers = [row["id"][::-1] for row in rows], [row["n"] for row in rows]
        yield pa.RecordBatch.from_arrays([pa.array(ids, pa.string()), pa.array(numbers, pa.int32())], ["id", "n"])
"""


def at(second: int) -> str:
    return (START + dt.timedelta(seconds=second)).isoformat()


@dataclass(frozen=True)
class Case:
    """Rows in the order they come, where they are cut, and where one batch dies."""

    rows: list[Row]
    cuts: list[int]
    crash: tuple[int, str] | None

    def batches(self) -> list[list[Row]]:
        edges = [0, *sorted(min(cut, len(self.rows)) for cut in self.cuts), len(self.rows)]
        return [self.rows[start:end] for start, end in itertools.pairwise(edges)]


@st.composite
def cases(draw: st.DrawFn, last: int = 240) -> Case:
    """Each row lags behind a clock that only goes forward, by less than the tolerated delay."""
    clock = sorted(draw(st.lists(st.integers(MAX_DELAY, last), min_size=1, max_size=24)))
    small = st.sampled_from(["a", "b", "c", None])
    rows = [
        {
            "number": number,
            "id": draw(small),
            "kind": draw(st.sampled_from(["x", "y", None])),
            "ts": at(now - draw(st.integers(0, MAX_DELAY - 1))),
            "n": draw(st.one_of(st.none(), st.integers(-3, 9))),
        }
        for number, now in enumerate(clock)
    ]
    if draw(st.booleans()):
        rows.insert(draw(st.integers(0, len(rows))), {"number": -1, "id": "dead", "kind": "x", "ts": None, "n": 5})
    cuts = draw(st.lists(st.integers(0, len(rows)), max_size=3))
    crash = draw(st.one_of(st.none(), st.tuples(st.integers(0, len(cuts)), st.sampled_from(POINTS))))
    return Case(rows, cuts, crash)


def timed(rows: Iterable[Row]) -> list[Row]:
    """Rows that say when they happened; the others are dead letters."""
    return [row for row in rows if row["ts"] is not None]


def feed(harness: Harness, case: Case, source_of: Callable[[Row], str]) -> None:
    """Feeds a case batch by batch, dying and coming back where it says."""
    for number, batch in enumerate(case.batches()):
        shares: dict[str, list[Row]] = {source.name: [] for source in harness.graph.file.pipeline.sources}
        for row in batch:
            shares[source_of(row)].append({key: value for key, value in row.items() if key != "number"})
        for source, rows in shares.items():
            harness.feed(source, rows)
        if case.crash is not None and case.crash[0] == number:
            harness.crash_at(case.crash[1])
            harness.step()
            harness.resume()
    harness.step()


def bag(rows: Iterable[Row], *columns: str) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row[column] for column in columns) for row in rows)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("oracle")
    (folder / "oracle_steps.py").write_text(STEPS)
    return folder


def written(folder: Path, name: str, sources: list[str], steps: dict[str, str]) -> Path:
    path = folder / f"{name}.yaml"
    sinks = "".join(f"    to_{step}: {{from: {step}, memory: {{}}}}\n" for step in steps)
    listed = "".join(f"    {step}: {{{text}}}\n" for step, text in steps.items())
    declared = "".join(VIEWS.format(name=source) for source in sources)
    path.write_text(f"{HEAD}{declared}  steps:\n{listed}  sinks:\n{sinks}")
    return path


STATELESS = {
    "chosen": "from: views, sql: \"SELECT upper(id) AS id, n * 2 AS n FROM views WHERE n >= 2 OR kind = 'x'\"",
    "few": "from: views, filter: n > 1 AND kind IS NOT NULL",
    "narrow": "from: views, select: {id: id, kinds: \"concat(kind, '-', id)\"}",
    "both": "from: [views, clicks], union: {}",
    "framed": "from: views, python: {function: 'oracle_steps:positive'}",
    "arrows": "from: views, python: {function: 'oracle_steps:reversed_text', over: arrow, schema: 'id string, n int'}",
}


def check_stateless(folder: Path, case: Case) -> None:
    def source_of(row: Row) -> str:
        return "clicks" if row["number"] % 3 == 0 else "views"

    path = written(folder, "stateless", ["views", "clicks"], STATELESS)
    every = timed(case.rows)
    views = [row for row in every if source_of(row) == "views"]
    chosen = [row for row in views if (row["n"] is not None and row["n"] >= 2) or row["kind"] == "x"]
    with Harness(path) as harness:
        feed(harness, case, source_of)
        found = {step: harness.rows(f"to_{step}") for step in STATELESS}
        entries = harness.ledger()
    assert bag(found["chosen"], "id", "n") == Counter(
        (None if row["id"] is None else row["id"].upper(), None if row["n"] is None else row["n"] * 2) for row in chosen
    )
    few = [row for row in views if row["n"] is not None and row["n"] > 1 and row["kind"] is not None]
    assert bag(found["few"], "id", "kind", "n") == bag(few, "id", "kind", "n")
    assert bag(found["narrow"], "id", "kinds") == Counter(
        (row["id"], None if None in (row["id"], row["kind"]) else f"{row['kind']}-{row['id']}") for row in views
    )
    assert bag(found["both"], "id", "kind", "n") == bag(every, "id", "kind", "n")
    positive = [row for row in views if row["n"] is not None and row["n"] > 0]
    assert bag(found["framed"], "id", "less") == Counter((row["id"], row["n"] - 1) for row in positive)
    named = [row for row in views if row["id"] is not None]
    assert bag(found["arrows"], "id", "n") == Counter((row["id"][::-1], row["n"]) for row in named)
    assert sum(sum(entry.rows_in.values()) for entry in entries) == len(case.rows)
    assert sum(sum(entry.rows_dead.values()) for entry in entries) == len(case.rows) - len(every)
    assert sum(entry.rows_out["to_both"] for entry in entries) == len(every)


@SHORT
@given(case=cases())
def test_stateless_steps_give_what_a_loop_over_all_rows_gives(folder: Path, case: Case) -> None:
    check_stateless(folder, case)


@pytest.mark.long
@LONG
@given(case=cases())
def test_stateless_steps_in_many_cases(folder: Path, case: Case) -> None:
    check_stateless(folder, case)


VALUES = "id, count(*) AS rows, count(n) AS known, sum(n) AS total"
WINDOWS = {
    "tumbling": (
        f"from: views, sql: \"SELECT window.start AS at, {VALUES} FROM views GROUP BY window(ts, '1 minute'), id\""
    ),
    "sliding": (
        f'from: views, sql: "SELECT window.start AS at, {VALUES} FROM views WHERE n IS NOT NULL '
        "GROUP BY window(ts, '1 minute', '20 seconds'), id\""
    ),
}


def windows(rows: list[Row], size: int, slide: int) -> Counter[tuple[Any, ...]]:
    """The aggregates of every window that holds a row, by (start, id)."""
    groups: dict[tuple[int, str | None], list[int | None]] = defaultdict(list)
    for row in rows:
        second = int((dt.datetime.fromisoformat(row["ts"]) - START).total_seconds())
        newest = second // slide * slide
        for start in range(newest, newest - size, -slide):
            if start <= second < start + size:
                groups[(start, row["id"])].append(row["n"])
    found: Counter[tuple[Any, ...]] = Counter()
    for (start, id), numbers in groups.items():
        known = [number for number in numbers if number is not None]
        found[(start, id, len(numbers), len(known), sum(known) if known else None)] += 1
    return found


def check_windows(folder: Path, case: Case) -> None:
    path = written(folder, "windows", ["views"], WINDOWS)
    with Harness(path) as harness:
        feed(harness, case, lambda row: "views")
        harness.finish()
        found = {step: harness.rows(f"to_{step}") for step in WINDOWS}
    for rows in found.values():
        for row in rows:
            row["start"] = int((row["at"] - START).total_seconds())
    rows = timed(case.rows)
    columns = ("start", "id", "rows", "known", "total")
    assert bag(found["tumbling"], *columns) == windows(rows, 60, 60)
    assert bag(found["sliding"], *columns) == windows([row for row in rows if row["n"] is not None], 60, 20)


@SHORT
@given(case=cases())
def test_windows_give_what_a_batch_over_all_rows_gives(folder: Path, case: Case) -> None:
    check_windows(folder, case)


@pytest.mark.long
@LONG
@given(case=cases())
def test_windows_in_many_cases(folder: Path, case: Case) -> None:
    check_windows(folder, case)


DEDUPE = {"once": "from: views, dedupe: {by: [id, kind], within: 1 minute}"}
FORGOTTEN = 200
"""Seconds after which every key of the first rows has been forgotten: their last time, `within`, and some more."""


def later(case: Case) -> Case:
    """The same rows after everything before was forgotten."""
    shift = dt.timedelta(seconds=FORGOTTEN)
    rows = [
        {**row, "ts": row["ts"] and (dt.datetime.fromisoformat(row["ts"]) + shift).isoformat()} for row in case.rows
    ]
    return Case(rows, case.cuts, case.crash)


def check_dedupe(folder: Path, first: Case, second: Case) -> None:
    path = written(folder, "dedupe", ["views"], DEDUPE)
    second = later(second)
    with Harness(path) as harness:
        feed(harness, first, lambda row: "views")
        harness.advance_watermark(at(FORGOTTEN))
        early = harness.rows("to_once")
        feed(harness, second, lambda row: "views")
        harness.finish()
        both = harness.rows("to_once")
    for passed, case in ((early, first), (both[len(early) :], second)):
        keys = {(row["id"], row["kind"]) for row in timed(case.rows)}
        assert bag(passed, "id", "kind") == Counter(keys)
        given_rows = {(row["id"], row["kind"], row["n"]) for row in timed(case.rows)}
        assert {(row["id"], row["kind"], row["n"]) for row in passed} <= given_rows


@SHORT
@given(first=cases(last=59), second=cases(last=59))
def test_dedupe_passes_each_key_once_and_again_when_it_was_forgotten(folder: Path, first: Case, second: Case) -> None:
    check_dedupe(folder, first, second)


@pytest.mark.long
@LONG
@given(first=cases(last=59), second=cases(last=59))
def test_dedupe_in_many_cases(folder: Path, first: Case, second: Case) -> None:
    check_dedupe(folder, first, second)
