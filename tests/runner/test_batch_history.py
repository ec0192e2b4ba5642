"""The history of batches that `penstock run` keeps beside the state."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from tests.frontends.reading import read, with_source

from penstock.engine.ledger import BatchEntry
from penstock.engine.progress import BatchReport, Ended, Status
from penstock.frontends.batch_history import read_state_folder
from penstock.runner.report import BatchHistory, known_cores

AT = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)


def ended(batch: int) -> Ended:
    report = BatchReport(
        batch, AT + dt.timedelta(seconds=batch), 400, 100, 250.0, None, {"addBatch": 300, "commitOffsets": 20},
        state_rows=7, state_bytes=700, late_rows=0, sources={},
    )  # fmt: skip
    return Ended(report, BatchEntry(batch, 3, {"views": 100}, {}, {"out": 100}))


def test_each_batch_is_kept_with_its_cores_and_what_it_wrote(tmp_path: Path) -> None:
    (tmp_path / "pipeline.json").write_text('{"name": "demo"}', "utf-8")
    log = tmp_path / "checkpoint" / "state" / "0" / "0" / "2.changelog"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"x" * 50)
    history = BatchHistory(read(with_source("{memory: {schema: {id: string}}}")), tmp_path, "local[4]")
    history.note(Status("demo", "running", AT, ended=(ended(0), ended(1))))
    history.note(Status("demo", "running", AT))

    found = read_state_folder(tmp_path)

    assert found.name == "demo"
    assert [(each.run, each.rows, each.rows_out, each.seconds, each.cores) for each in found.batches] == [
        ("3", 100, 100, 0.4, 4)
    ] * 2
    # The first batch has no log of changes left.
    assert [each.checkpoint_bytes for each in found.batches] == [None, 50]
    assert [each.commit_seconds for each in found.batches] == [0.02, 0.02]


def test_a_state_folder_that_cannot_be_written_does_not_end_a_run(tmp_path: Path) -> None:
    missing = tmp_path / "gone"
    history = BatchHistory(read(with_source("{memory: {schema: {id: string}}}")), missing, "local[4]")

    history.note(Status("demo", "running", AT, ended=(ended(0),)))

    assert not missing.exists()


@pytest.mark.parametrize(("master", "cores"), [("local[3]", 3), ("local", 1), ("spark://a:7077", None), ("yarn", None)])
def test_cores_of_a_cluster_are_not_guessed(master: str, cores: int | None) -> None:
    assert known_cores(master) == cores
