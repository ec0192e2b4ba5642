"""Late rows that were kept are fed again, each once, and what was given out without them is corrected."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.engine.running import json_lines, run, table

from penstock.errors import PenstockError
from penstock.runner.replay import Replayed, replay_late

if TYPE_CHECKING:
    from tests.conftest import Project

pytestmark = pytest.mark.spark

START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)


def row(id: str, second: float, n: int) -> dict[str, Any]:
    return {"id": id, "ts": (START + dt.timedelta(seconds=second)).isoformat(), "n": n}


RECENT = "recent: {from: views, rolling: {over: 1 minute, values: {total: sum(n)}}}"
SEEN = "seen: {from: recent, sqlite: {path: out.db, table: recent}}"


def pipeline(sink: str = "key: [id, window_start]", more: str = "", *, recent: bool = False) -> str:
    return f"""
        sources:
          views:
            files: {{path: ./in, maxFilesPerBatch: 1}}
            format: {{json: {{schema: {{id: string, ts: timestamp, n: int}}}}}}
            eventTime: {{column: ts, maxDelay: 0 seconds}}
        late: {{policy: side, allowed: 10 minutes}}
        steps:
          minutes: {{from: views, window: {{size: 1 minute, by: [id], values: {{total: sum(n)}}}}}}
          {RECENT if recent else ""}
          {more}
        sinks:
          out: {{from: minutes, sqlite: {{path: out.db, table: minutes, {sink}}}}}
          {SEEN if recent else ""}
    """


def feed(project: Project, early: list[dict[str, Any]], late: list[dict[str, Any]]) -> None:
    """Three batches. Rows are late by the watermark of the batch before theirs, so one lies between."""
    last = max(early, key=lambda item: str(item["ts"]))
    for number, rows in enumerate([early, [{**last, "n": 0}], late]):
        project.put(f"in/{number}.json", json_lines(rows))


def totals(project: Project) -> dict[tuple[str, str], int]:
    found = table(project.folder / "out.db", "SELECT id, substr(window_start, 12, 5), total FROM minutes")
    return {(id, start): total for id, start, total in found}


def test_replayed_rows_correct_their_windows_once(project: Project) -> None:
    file = project.load(pipeline(recent=True))
    graph, state = project.build(pipeline(recent=True)), project.folder / "state"
    feed(project, [row("a", 5, 1), row("b", 130, 2)], [row("a", 6, 10), row("c", 7, 20), row("b", 190, 3)])
    run(graph, state)
    assert totals(project) == {("a", "00:00"): 1, ("b", "00:02"): 2}

    dry = replay_late(file, state, dry_run=True)
    assert dry.steps == (Replayed("minutes", 2, 0),)
    assert not dry.running
    assert replay_late(file, state).steps == (Replayed("minutes", 2, 0),)
    # They are on their way: a second time there is nothing to feed.
    assert replay_late(file, state, "minutes").steps == (Replayed("minutes", 0, 0),)

    outcome = run(graph, state)
    assert totals(project) == {("a", "00:00"): 11, ("c", "00:00"): 20, ("b", "00:02"): 2}
    assert sum(entry.corrections.get("minutes", 0) for entry in outcome.ledger) == 2
    # What is replayed is not counted as late or read a second time, and other steps do not see it.
    assert sum(entry.late.get("minutes", 0) for entry in outcome.ledger) == 2
    assert sum(entry.rows_in.get("views", 0) for entry in outcome.ledger) == 6
    assert len(table(project.folder / "out.db", "SELECT * FROM recent")) == 4
    run(graph, state)
    assert totals(project)[("a", "00:00")] == 11


def test_replayed_rows_survive_a_crash_of_the_batch_that_takes_them_in(project: Project) -> None:
    file = project.load(pipeline())
    graph, state = project.build(pipeline()), project.folder / "state"
    feed(project, [row("a", 5, 1), row("b", 130, 2)], [row("a", 6, 10), row("b", 131, 3)])
    first = run(graph, state)
    replay_late(file, state)
    later = max(entry.batch for entry in first.ledger) + 1
    run(graph, state, die_at=f"batch.after_ledger@{later}")
    run(graph, state)
    assert totals(project)[("a", "00:00")] == 11


def test_rows_of_windows_that_are_too_old_stay(project: Project) -> None:
    file = project.load(pipeline())
    graph, state = project.build(pipeline()), project.folder / "state"
    feed(project, [row("a", 5, 1), row("b", 130, 2)], [row("a", 6, 10), row("b", 900, 3)])
    run(graph, state)
    assert replay_late(file, state).steps == (Replayed("minutes", 0, 1),)
    assert len(list((state / "late" / "minutes").rglob("part-*.json"))) == 1


def test_what_cannot_be_replayed_is_refused(project: Project) -> None:
    state = project.folder / "state"
    keyed = pipeline()
    with pytest.raises(PenstockError, match="STATE_MISSING"):
        replay_late(project.load(keyed), state)
    project.put("in/0.json", json_lines([row("a", 5, 1)]))
    run(project.build(keyed), state)
    for text, step, reason in (
        (keyed, "minute", "there is no such step"),
        (pipeline(recent=True), "recent", "its late rows are not kept for it"),
        (pipeline("key: []"), None, "sink 'out' only appends"),
        (pipeline(more="hours: {from: minutes, window: {size: 1 hour, values: {all: sum(total)}}}"), None,
         "'hours' has counted the earlier rows"),
        (keyed.replace("{policy: side, allowed: 10 minutes}", "drop"), None, "no step keeps late rows"),
    ):  # fmt: skip
        with pytest.raises(PenstockError) as refused:
            replay_late(project.load(text), state, step)
        (problem,) = refused.value.problems
        assert problem.code == "REPLAY_IMPOSSIBLE"
        assert reason in str(problem.params["reason"])
    mine = state / "pipeline.json"
    mine.write_text(json.dumps({**json.loads(mine.read_text("utf-8")), "name": "another"}), "utf-8")
    with pytest.raises(PenstockError, match="STATE_OF_ANOTHER_PIPELINE"):
        replay_late(project.load(keyed), state)
