"""`penstock replay late` says what it does, as text and as JSON, and why it cannot."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.e2e.commands import Command
from tests.engine.running import run, table
from tests.runner.test_replay import feed, pipeline, row

if TYPE_CHECKING:
    from tests.conftest import Project

pytestmark = pytest.mark.spark


def test_late_rows_are_fed_again_by_command(project: Project, penstock: Command) -> None:
    graph = project.build(pipeline())
    state = project.folder / ".penstock" / "demo"
    file = project.folder / "p.yaml"
    feed(project, [row("a", 5, 1), row("b", 130, 2)], [row("a", 6, 10), row("a", 7, 20), row("b", 131, 3)])
    run(graph, state)

    dry = penstock("replay", "late", file, "--dry-run")
    assert (dry.code, dry.err) == (0, "")
    assert dry.out == "minutes: 2 late rows would be fed again\n"
    as_json = penstock("replay", "late", file, "--dry-run", "-o", "json", "--step", "minutes")
    assert json.loads(as_json.out) == {
        "running": False,
        "dryRun": True,
        "steps": [{"step": "minutes", "rows": 2, "tooOld": 0}],
    }

    done = penstock("replay", "late", file)
    assert done.out.splitlines() == [
        "minutes: 2 late rows fed again",
        "the next run takes them in",
    ]
    run(graph, state)
    assert table(project.folder / "out.db", "SELECT total FROM minutes WHERE id = 'a'") == [(31,)]

    wrong = penstock("replay", "late", file, "--step", "minuts")
    assert wrong.code == 4
    assert "error[REPLAY_IMPOSSIBLE]" in wrong.err
    assert "minutes" in wrong.err


def test_a_pipeline_that_never_ran_has_nothing_to_replay(project: Project, penstock: Command) -> None:
    project.write(pipeline())
    (project.folder / "in").mkdir()
    answer = penstock("replay", "late", project.folder / "p.yaml")
    assert answer.code != 0
    assert "error[STATE_MISSING]" in answer.err
