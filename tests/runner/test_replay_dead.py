"""Dead letters are fed back once what was wrong is mended: each once, to the place that set it aside."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from tests.engine.running import course, json_lines, run, table

from penstock.engine.balance import imbalances
from penstock.engine.ledger import Ledger
from penstock.errors import PenstockError
from penstock.runner.replay import Replayed, replay_dead

if TYPE_CHECKING:
    from tests.conftest import Project

pytestmark = pytest.mark.spark


def pipeline(kind: str = "bigint", rule: str = "id > 10", more: str = "") -> str:
    return f"""
        sources:
          rows:
            files: {{path: ./in, maxFilesPerBatch: 1}}
            format: {{json: {{schema: {{id: bigint, n: {kind}, ts: timestamp}}}}}}
            eventTime: {{column: ts, maxDelay: 0 seconds}}
        steps:
          good: {{from: rows, expect: {{large: "{rule}"}}}}
          texts: {{from: good, select: {{id: id, n: CAST(n AS string), ts: ts}}}}
        sinks:
          out: {{from: texts, sqlite: {{path: out.db, table: t, onViolation: dead}}}}
          {more}
    """


def stored(project: Project, columns: str = "id, n", name: str = "t") -> list[tuple[Any, ...]]:
    return sorted(table(project.folder / "out.db", f"SELECT {columns} FROM {name}"))


def balanced(project: Project, body: str) -> bool:
    graph = project.build(body)
    entries = Ledger(project.folder / "state" / "ledger.db").entries()
    return bool(entries) and not any(imbalances(graph, entry) for entry in entries)


def feed(project: Project, name: str, *rows: dict[str, Any]) -> None:
    times = ({"ts": f"2024-01-01T00:00:{row['id'] % 60:02d}.123456Z", **row} for row in rows)
    project.put(f"in/{name}.json", json_lines(times))


def test_letters_of_a_source_and_a_step_are_read_anew_after_the_fix(project: Project) -> None:
    state = project.folder / "state"
    feed(project, "a", {"id": 11, "n": 1}, {"id": 12, "n": "many"}, {"id": 3, "n": 3}, {"id": 4, "n": 4})
    course(project.build(pipeline()), state)
    assert stored(project) == [(11, "1")]
    waiting = replay_dead(project.load(pipeline()), state, dry_run=True)
    assert waiting.steps == (Replayed("rows", 1, 0), Replayed("good", 2, 0))
    assert replay_dead(project.load(pipeline()), state).steps == waiting.steps

    mended = pipeline("string", "id > 3")
    # Row 3 still breaks the rule and becomes a dead letter once more.
    course(project.build(mended), state)
    assert stored(project, "id, n, substr(ts, 18)") == [
        (4, "4", "04.123456"),
        (11, "1", "11.123456"),
        (12, "many", "12.123456"),
    ]
    assert balanced(project, mended)
    again = replay_dead(project.load(mended), state)
    assert again.steps == (Replayed("good", 1, 0),)
    course(project.build(mended), state)
    assert len(stored(project)) == 3
    assert [entry.replayed for entry in Ledger(state / "ledger.db").entries()] == [
        {},
        {"rows": 1, "good": 2},
        {"good": 1},
    ]


@pytest.mark.parametrize("several", [False, True])
def test_rows_that_a_sink_refused_are_given_to_it_alone(several: bool, project: Project) -> None:
    more = "raw: {from: texts, sqlite: {path: out.db, table: raw}}" if several else ""
    body = pipeline(rule="id > 0", more=more)
    state = project.folder / "state"
    with closing(sqlite3.connect(project.folder / "out.db")) as db:
        db.execute("CREATE TABLE t (id BIGINT CHECK (id < 5), n TEXT, ts TIMESTAMP)")
    feed(project, "a", {"id": 1, "n": 1}, {"id": 7, "n": 7}, {"id": 8, "n": 8})
    course(project.build(body), state)
    assert stored(project) == [(1, "1")]
    with closing(sqlite3.connect(project.folder / "out.db")) as db:
        db.execute("ALTER TABLE t RENAME TO old")
        db.execute("CREATE TABLE t (id BIGINT, n TEXT, ts TIMESTAMP)")
        db.execute("INSERT INTO t SELECT * FROM old")
        db.commit()
    assert replay_dead(project.load(body), state, "out").steps == (Replayed("out", 2, 0),)
    course(project.build(body), state)
    assert stored(project, "id, n, substr(ts, 18)") == [
        (1, "1", "01.123456"),
        (7, "7", "07.123456"),
        (8, "8", "08.123456"),
    ]
    if several:
        assert stored(project, name="raw") == [(1, "1"), (7, "7"), (8, "8")]
    assert balanced(project, body)


def test_a_run_that_dies_while_letters_are_fed_back_feeds_them_back_once(project: Project) -> None:
    state = project.folder / "state"
    feed(project, "a", {"id": 1, "n": "x"}, {"id": 2, "n": 2})
    body = pipeline(rule="id > 0")
    course(project.build(body), state)
    replay_dead(project.load(body), state)
    mended = pipeline("string", "id > 0")
    for death in ("batch.after_sinks", "sink.after_commit"):
        course(project.build(mended), state, die_at=death)
    run(project.build(mended), state)
    assert stored(project) == [(1, "x"), (2, "2")]


def test_a_node_that_is_not_there_is_refused(project: Project) -> None:
    feed(project, "a", {"id": 1, "n": 1})
    run(project.build(pipeline()), project.folder / "state")
    with pytest.raises(PenstockError) as raised:
        replay_dead(project.load(pipeline()), project.folder / "state", "god")
    assert (raised.value.code, "good" in str(raised.value)) == ("REPLAY_IMPOSSIBLE", True)
