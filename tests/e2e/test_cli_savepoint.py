"""`penstock savepoint …` on a state folder that was written by hand: no command here starts Spark."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.e2e.commands import Command
from tests.engine.savepoints.made import Made, made

from penstock.engine.savepoints.journal import pending


@pytest.fixture
def pipeline(tmp_path: Path) -> Made:
    return made(tmp_path)


def test_savepoints_are_taken_listed_shown_and_removed(pipeline: Made, penstock: Command) -> None:
    assert "there are no savepoints" in penstock("savepoint", "list", pipeline.path).out
    answer = json.loads(penstock("savepoint", "create", pipeline.path, "--name", "one", "-o", "json").out)
    assert (answer["name"], answer["batch"], answer["folder"]) == ("one", 2, str(pipeline.state / "savepoints" / "one"))
    text = penstock("savepoint", "create", pipeline.path, "--name", "two", "--note", "for the night").out
    assert "savepoint two after batch 2" in text

    listed = json.loads(penstock("savepoint", "list", pipeline.path, "-o", "json").out)
    assert [(one["name"], one["note"]) for one in listed] == [("one", ""), ("two", "for the night")]
    assert "for the night" in penstock("savepoint", "list", pipeline.path).out
    shown = penstock("savepoint", "show", "one", pipeline.path).out
    assert "state of counts" in shown
    assert "views 3" in shown
    assert json.loads(penstock("savepoint", "show", answer["folder"], "-o", "json").out)["totals"]["rows_in"] == {
        "views": 3
    }

    assert "deleted one" in penstock("savepoint", "delete", "one", pipeline.path).out
    unknown = penstock("savepoint", "show", "one", pipeline.path)
    assert unknown.code == 3
    assert "SAVEPOINT_UNKNOWN" in unknown.err


def test_a_damaged_savepoint_ends_with_1_and_is_named(pipeline: Made, penstock: Command, tmp_path: Path) -> None:
    penstock("savepoint", "create", pipeline.path, "--to", tmp_path / "away")
    good = penstock("savepoint", "verify", tmp_path / "away")
    assert (good.code, "all as they were" in good.out) == (0, True)
    (tmp_path / "away" / "ledger.db").unlink()

    bad = penstock("savepoint", "verify", tmp_path / "away")
    assert bad.code == 1
    assert "SAVEPOINT_DAMAGED" in bad.err
    assert "ledger.db is missing" in bad.err
    answer = json.loads(penstock("savepoint", "verify", tmp_path / "away", "-o", "json").out)
    assert answer["damages"] == [{"file": "ledger.db", "reason": "is missing"}]


def test_two_savepoints_are_compared(pipeline: Made, penstock: Command) -> None:
    penstock("savepoint", "create", pipeline.path, "--name", "one")
    pipeline.add_batch()
    penstock("savepoint", "create", pipeline.path, "--name", "two")

    answer = json.loads(penstock("savepoint", "diff", "one", "two", pipeline.path, "-o", "json").out)
    assert answer["batch"] == {"before": 2, "after": 3}
    assert answer["totals"]["rows_in"] == {"views": {"before": 3, "after": 4}}
    text = penstock("savepoint", "diff", "one", "two", pipeline.path).out
    assert "offset of views" in text


def test_a_savepoint_is_put_in_place(pipeline: Made, penstock: Command) -> None:
    penstock("savepoint", "create", pipeline.path, "--name", "one")
    pipeline.add_batch()

    answer = penstock("savepoint", "restore", "one", pipeline.path)

    assert (answer.code, "goes on after batch 2" in answer.out) == (0, True)
    assert not (pipeline.state / "checkpoint" / "commits" / "3").exists()
    assert pending(pipeline.state) is not None
    again = penstock("savepoint", "restore", "one", pipeline.path)
    assert (again.code, "RESTORE_UNFINISHED" in again.err) == (4, True)


def test_another_pipeline_needs_to_say_that_it_forks(pipeline: Made, penstock: Command, tmp_path: Path) -> None:
    penstock("savepoint", "create", pipeline.path, "--to", tmp_path / "away")
    other = made(tmp_path, "other", batches=0)
    shutil.rmtree(other.state)

    refused = penstock("savepoint", "restore", tmp_path / "away", other.path)
    assert (refused.code, "SAVEPOINT_OF_ANOTHER_PIPELINE" in refused.err) == (4, True)
    assert penstock("savepoint", "restore", tmp_path / "away", other.path, "--fork").code == 0
    assert (other.state / "checkpoint" / "commits" / "2").exists()


@pytest.mark.parametrize("option", ["--fork", "--keep-rows"])
def test_what_goes_with_a_restore_goes_with_nothing_else(pipeline: Made, penstock: Command, option: str) -> None:
    answer = penstock("run", pipeline.path, option)
    assert (answer.code, "USAGE" in answer.err) == (2, True)
