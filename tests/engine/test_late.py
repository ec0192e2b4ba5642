"""Rows that come too late are counted, kept or correct what was given out, as the pipeline or the step says."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pytest
from tests.engine.running import Outcome, json_lines, run, table

from penstock import read_files
from penstock.engine.ledger import BatchEntry
from penstock.testing import Harness, shared_session

if TYPE_CHECKING:
    from tests.conftest import Project

pytestmark = pytest.mark.spark

START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
Row = dict[str, Any]


def at(second: float) -> dt.datetime:
    return START + dt.timedelta(seconds=second)


def row(id: str, second: float, n: int = 1) -> Row:
    return {"id": id, "ts": at(second).isoformat(), "n": n}


def late(entries: Iterable[BatchEntry], step: str) -> int:
    return sum(entry.late.get(step, 0) for entry in entries)


SOURCE = """
    sources:
      views:
        memory: {schema: {id: string, ts: timestamp, n: int}}
        eventTime: {column: ts, maxDelay: 10 seconds}
"""
POLICIES = (
    SOURCE
    + """
    late: side
    steps:
      kept: {from: views, window: {size: 1 minute, values: {total: sum(n)}}}
      overlapping: {from: views, window: {size: 1 minute, slide: 20 seconds, values: {total: sum(n)}}}
      recent: {from: views, rolling: {over: 1 minute, values: {total: sum(n)}}}
      counted: {from: views, window: {size: 1 minute, values: {total: sum(n)}}, late: drop}
      corrected:
        from: views
        window: {size: 1 minute, by: [id], values: {total: sum(n)}}
        late: {policy: correct, allowed: 90 seconds}
    sinks:
      to_kept: {from: kept, memory: {}}
      to_overlapping: {from: overlapping, memory: {}}
      to_recent: {from: recent, memory: {}}
      to_counted: {from: counted, memory: {}}
      to_corrected: {from: corrected, memory: {key: [id, window_start]}}
"""
)


def test_each_step_does_with_late_rows_what_it_or_the_pipeline_says(project: Project) -> None:
    with Harness(project.write(POLICIES)) as harness:
        harness.feed("views", [row("a", 5, 1), row("b", 61, 2), row("a", 140, 3)])
        harness.step()
        # The watermark is at 130: the first minute closed 70 seconds ago, the second 10 seconds ago.
        harness.feed("views", [row("a", 6, 10), row("x", -30, 20), row("b", 115.5, 30), row("c", 131, 40)])
        harness.step()
        harness.finish()

        entries = harness.ledger()
        assert {step: late(entries, step) for step in ("kept", "overlapping", "recent", "counted", "corrected")} == {
            "kept": 3,
            "overlapping": 3 + 3 + 1,
            "recent": 3,
            "counted": 3,
            "corrected": 1,
        }
        _check_kept(harness)
        assert harness.late("counted") == harness.late("corrected") == []
        assert sorted(item["total"] for item in harness.rows("to_counted")) == [1, 2, 3 + 40]
        totals = {(item["id"], item["window_start"]): item["total"] for item in harness.rows("to_corrected")}
        assert totals == {
            ("a", at(0)): 11,
            ("b", at(60)): 32,
            ("a", at(120)): 3,
            ("c", at(120)): 40,
        }
        assert sum(entry.corrections.get("corrected", 0) for entry in entries) == 2


def _check_kept(harness: Harness) -> None:
    """What is kept has all columns, says how late it was and what it missed."""
    kept = {item["id"]: item for item in harness.late("kept")}
    late_batch = kept["a"].pop("late_batch")
    assert late_batch > 0
    assert kept["a"] == {
        "id": "a",
        "ts": at(6),
        "n": 10,
        "late_step": "kept",
        "late_by_ms": 70_000,
        "late_window_start": at(0),
        "late_window_end": at(60),
    }
    assert (kept["x"]["late_by_ms"], kept["x"]["late_window_start"]) == (130_000, at(-60))
    assert (kept["b"]["late_by_ms"], kept["b"]["late_window_end"]) == (10_000, at(120))
    assert len(harness.late("kept")) == 3

    windows = {(item["id"], item["late_window_end"], item["late_by_ms"]) for item in harness.late("overlapping")}
    assert windows == {
        *(("a", at(second), (130 - second) * 1000) for second in (20, 40, 60)),
        *(("x", at(second), (130 - second) * 1000) for second in (-20, 0, 20)),
        ("b", at(120), 10_000),
    }
    recent = {item["id"]: (item["late_by_ms"], item["late_window_end"]) for item in harness.late("recent")}
    assert recent == {"a": (124_000, None), "x": (160_000, None), "b": (14_500, None)}


PAIRS = """
    sources:
      views:
        memory: {schema: {id: string, ts: timestamp, n: int}}
        eventTime: {column: ts, maxDelay: 0 seconds}
      clicks:
        memory: {schema: {id: string, at: timestamp, button: string}}
        eventTime: {column: at, maxDelay: 0 seconds}
    steps:
      pairs:
        from: views
        join: {with: clicks, on: [id], within: [0 seconds, 10 seconds]}
        late: side
    sinks:
      out: {from: pairs, memory: {}}
"""


def test_a_join_keeps_the_late_rows_of_each_side(project: Project) -> None:
    def click(id: str, second: float) -> Row:
        return {"id": id, "at": at(second).isoformat(), "button": "left"}

    with Harness(project.write(PAIRS)) as harness:
        harness.feed("views", [row("a", 1), row("b", 100)])
        harness.feed("clicks", [click("a", 3), click("b", 90)])
        harness.step()
        # The watermark is that of the slower side, at 90.
        harness.feed("views", [row("b", 85), row("b", 90), row("c", 91)])
        harness.feed("clicks", [click("b", 40), click("c", 95)])
        harness.step()
        harness.finish()
        assert sorted(item["id"] for item in harness.rows("out")) == ["a", "c"]
        assert late(harness.ledger(), "pairs") == 3
        first, second = harness.late("pairs"), harness.late("pairs", side=1)
        assert [(item["ts"], item["n"], item["late_by_ms"]) for item in first] == [(at(85), 1, 5000), (at(90), 1, 0)]
        assert [(item["at"], item["button"], item["late_by_ms"]) for item in second] == [(at(40), "left", 50_000)]
        assert {item["late_step"] for item in (*first, *second)} == {"pairs"}


def with_files(late: str, more: str = "") -> str:
    """A pipeline over files, one a batch, with two steps that both keep late rows."""
    return f"""
        sources:
          views:
            files: {{path: ./in, maxFilesPerBatch: 1}}
            format: {{json: {{schema: {{id: string, ts: timestamp, n: int}}}}}}
            eventTime: {{column: ts, maxDelay: 10 seconds}}
        late: {late}
        steps:
          minutes: {{from: views, window: {{size: 1 minute, values: {{total: sum(n)}}}}}}
          recent: {{from: views, rolling: {{over: 1 minute, values: {{total: sum(n)}}}}}}
          {more}
        sinks:
          to_minutes: {{from: minutes, sqlite: {{path: out.db, table: minutes}}}}
          to_recent: {{from: recent, sqlite: {{path: out.db, table: recent}}}}
          {"to_once: {from: once, sqlite: {path: out.db, table: once}}" if more else ""}
    """


def put_rows(project: Project) -> None:
    """Batch 3 is judged by the watermark of batch 2, which is at 140."""
    for number, rows in enumerate(
        [[row("a", 5)], [row("b", 150)], [row("c", 151)], [row("d", 6), row("e", 141), row("f", 30)]]
    ):
        project.put(f"in/{number}.json", json_lines(rows))


def kept_files(outcome: Outcome, step: str) -> list[Row]:
    rows = read_files(shared_session(), str(outcome.state / "late" / step)).collect()
    return sorted((item.asDict() for item in rows), key=lambda item: str(item["id"]))


def test_late_rows_of_a_batch_that_is_run_again_are_kept_once(project: Project) -> None:
    put_rows(project)
    graph = project.build(with_files("side"))
    run(graph, project.folder / "state", die_at="batch.after_ledger@3")
    outcome = run(graph, project.folder / "state")
    for step in ("minutes", "recent"):
        kept = kept_files(outcome, step)
        assert [(item["id"], item["n"], item["late_step"]) for item in kept] == [("d", 1, step), ("f", 1, step)]
        assert [(entry.batch, entry.late.get(step)) for entry in outcome.ledger if entry.late] == [(3, 2)]
    minutes = table(project.folder / "out.db", "SELECT window_start, total FROM minutes ORDER BY 1")
    assert [total for _, total in minutes] == [1]
    assert len(table(project.folder / "out.db", "SELECT * FROM recent")) == 2


def test_declared_tables_take_the_late_rows_of_all_steps_or_of_one(project: Project) -> None:
    put_rows(project)
    own = "once: {from: views, dedupe: {by: [id]}, late: {policy: side, sink: {sqlite: {path: late.db, table: own}}}}"
    everything = "{policy: side, sink: {sqlite: {path: late.db, table: everything}}}"
    run(project.build(with_files(everything, own)), project.folder / "state")
    columns = (
        "late_step, id, n, late_batch, late_by_ms, substr(late_window_start, 1, 19), substr(late_window_end, 1, 19)"
    )
    minute = ("2024-01-01 00:00:00", "2024-01-01 00:01:00")
    assert table(project.folder / "late.db", f"SELECT {columns} FROM everything ORDER BY 1, 2") == [
        ("minutes", "d", 1, 3, 80_000, *minute),
        ("minutes", "f", 1, 3, 80_000, *minute),
        ("recent", "d", 1, 3, 134_000, None, None),
        ("recent", "f", 1, 3, 110_000, None, None),
    ]
    assert table(project.folder / "late.db", f"SELECT {columns} FROM own ORDER BY 1, 2") == [
        ("once", "d", 1, 3, 134_000, None, None),
        ("once", "f", 1, 3, 110_000, None, None),
    ]
