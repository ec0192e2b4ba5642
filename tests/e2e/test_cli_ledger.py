"""`penstock ledger` shows what became of the rows, and ends with 1 if the counts do not add up."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.e2e.commands import Command
from tests.engine.running import json_lines, run

if TYPE_CHECKING:
    from tests.conftest import Project

PIPELINE = """
    sources:
      rows: {files: {path: ./in, maxFilesPerBatch: 1}, format: {json: {schema: {id: int, kind: string}}}}
    steps:
      good: {from: rows, filter: id > 0}
    sinks:
      out: {from: good, sqlite: {path: out.db, table: t}}
"""


@pytest.mark.spark
def test_batches_are_shown_with_their_verdict(project: Project, penstock: Command) -> None:
    file = project.write(PIPELINE)
    state = project.folder / ".penstock" / "demo"
    project.put("in/0.json", json_lines([{"id": 1}, {"id": 0}, {"id": 2}]) + "broken\n")
    project.put("in/1.json", json_lines([{"id": 3}]))
    run(project.build(PIPELINE), state)

    text = penstock("ledger", file)
    assert text.code == 0
    assert "rows 4" in text.out
    assert "good 1" in text.out
    assert text.out.count("sealed") == 3
    answer = json.loads(penstock("ledger", file, "-o", "json").out)
    assert answer["verdict"] == "sealed"
    assert answer["totals"] == {
        "in": {"rows": 5},
        "dead": {"rows": 1},
        "filtered": {"good": 1},
        "late": {},
        "corrections": {},
        "replayed": {},
        "out": {"out": 3},
    }
    assert [(batch["batch"], batch["verdict"], batch["problems"]) for batch in answer["batches"]] == [
        (0, "sealed", []),
        (1, "sealed", []),
    ]

    (state / "checkpoint" / "commits" / "1").unlink()
    assert json.loads(penstock("ledger", file, "-o", "json", "--last", 1).out)["batches"][0]["verdict"] == "open"
    with closing(sqlite3.connect(state / "ledger.db")) as db, db:
        db.execute("UPDATE batches SET rows_out = ? WHERE batch = 0", (json.dumps({"out": 7}),))
    wrong = penstock("ledger", file)
    assert wrong.code == 1
    assert "batch 0: 'out' has 7 rows, 2 were expected" in wrong.out


TIMED = """
    sources:
      rows:
        files: {path: ./in}
        format: {json: {schema: {id: int, ts: timestamp}}}
        eventTime: {column: ts, maxDelay: 0 seconds}
    ledger: {window: 1 hour, checksum: [id]}
    steps:
      good: {from: rows, expect: {positive: id > 0}}
    sinks:
      out: {from: good, sqlite: {path: out.db, table: t}}
"""


@pytest.mark.spark
def test_windows_audits_and_dead_letters_by_command(project: Project, penstock: Command) -> None:
    file = project.write(TIMED)
    times = ["2024-01-01T00:10:00Z", "2024-01-01T00:20:00Z", "2024-01-01T05:00:00Z"]
    project.put("in/0.json", json_lines({"id": number, "ts": time} for number, time in enumerate(times)))
    run(project.build(TIMED), project.folder / ".penstock" / "demo")

    text = penstock("ledger", file, "--windows")
    assert (text.code, "2024-01-01 00:00:00Z  rows 2" in text.out) == (0, True)
    windows = json.loads(penstock("ledger", file, "--windows", "-o", "json").out)
    assert [(window["start"], window["in"], window["dead"]) for window in windows] == [
        ("2024-01-01T00:00:00Z", {"rows": 2}, {"good": 1}),
        ("2024-01-01T05:00:00Z", {"rows": 1}, {}),
    ]
    audit = penstock("ledger", file, "--audit")
    assert (audit.code, "equal" in audit.out) == (0, True)
    with closing(sqlite3.connect(project.folder / "out.db")) as db, db:
        db.execute("UPDATE t SET id = 7 WHERE id = 1")
    assert penstock("ledger", file, "--audit").code == 1
    (found,) = json.loads(penstock("ledger", file, "--audit", "-o", "json").out)
    assert (found["verdict"], found["held"]["rows"]) == ("differs", 2)

    assert "good: 1 dead letter would be fed back" in penstock("replay", "dead", file, "--dry-run").out
    assert json.loads(penstock("replay", "dead", file, "-o", "json").out)["nodes"] == [{"node": "good", "rows": 1}]
    assert "there are no dead letters" in penstock("replay", "dead", file).out
    assert penstock("replay", "dead", file, "--node", "god").code == 4


def test_a_pipeline_that_never_ran_has_no_ledger(project: Project, penstock: Command) -> None:
    file = project.write(PIPELINE)
    (project.folder / "in").mkdir()
    answer = penstock("ledger", file)
    assert answer.code != 0
    assert "error[STATE_MISSING]" in answer.err
