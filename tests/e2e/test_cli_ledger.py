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


def test_a_pipeline_that_never_ran_has_no_ledger(project: Project, penstock: Command) -> None:
    file = project.write(PIPELINE)
    (project.folder / "in").mkdir()
    answer = penstock("ledger", file)
    assert answer.code != 0
    assert "error[STATE_MISSING]" in answer.err
