"""What a hostile process leaves in a folder does not lead its reader elsewhere."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from penstock.reports.folder import Cursor, OperationFolder, RunFolder
from penstock.reports.inside import append_inside, names_inside, read_inside, write_inside
from penstock.reports.log import read_log
from penstock.reports.savepoint_requests import Asked, Requests
from penstock.reports.state_folder import state_facts
from penstock.reports.values import OperationOrder

LINE = {"at": "2024-01-01T00:00:00Z", "level": "ERROR", "logger": "x", "text": "canary"}
BATCH = {"batch": 7, "at": "2024-01-01T00:00:00Z", "duration_ms": 1}


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A folder beside, with what only the server may read."""
    folder = tmp_path / "server"
    folder.mkdir()
    (folder / "log.jsonl").write_text(json.dumps(LINE) + "\n", "utf-8")
    (folder / "batches.jsonl").write_text(json.dumps(BATCH) + "\n", "utf-8")
    (folder / "token").write_text("token", "utf-8")
    return folder


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "run")
    folder.make()
    return folder


def test_a_link_in_place_of_a_file_or_a_folder_is_not_followed(run: RunFolder, secret: Path) -> None:
    (run.path / "batches-000000.jsonl").symlink_to(secret / "batches.jsonl")
    (run.path / "status.json").symlink_to(secret / "token")
    run.lines.symlink_to(secret / "log.jsonl")
    assert run.read_batches()[0] == []
    assert read_log(run)[0] == []
    assert run.status is None
    run.lines.unlink()
    run.log.rmdir()
    run.log.symlink_to(secret)
    (secret / "run.jsonl").write_text(json.dumps(LINE) + "\n", "utf-8")
    assert read_log(run)[0] == []
    with pytest.raises(OSError, match=r"directory|links"):
        run.open_printed()
    assert sorted(path.name for path in secret.iterdir()) == ["batches.jsonl", "log.jsonl", "run.jsonl", "token"]


def test_the_same_files_are_read_where_no_link_leads_to_them(run: RunFolder) -> None:
    (run.path / "batches-000000.jsonl").write_text(json.dumps(BATCH) + "\n", "utf-8")
    run.lines.write_text(json.dumps(LINE) + "\n", "utf-8")
    assert [line.batch for line in run.read_batches()[0]] == [7]
    assert [line.text for line in read_log(run)[0]] == ["canary"]


@pytest.mark.parametrize("name", ["cursor.json", ".cursor.json.tmp"])
def test_what_is_written_replaces_a_link_and_does_not_go_through_it(run: RunFolder, secret: Path, name: str) -> None:
    (run.path / name).symlink_to(secret / "token")
    run.note_cursor(Cursor(1, 2))
    assert (secret / "token").read_text("utf-8") == "token"
    assert run.cursor == Cursor(1, 2)
    assert not (run.path / "cursor.json").is_symlink()


def test_output_is_not_appended_to_a_file_that_has_another_name(run: RunFolder, secret: Path) -> None:
    os.link(secret / "token", run.printed)
    with pytest.raises(OSError, match="links"):
        run.open_printed()
    run.printed.unlink()
    run.printed.symlink_to(secret / "token")
    with pytest.raises(OSError, match="symbolic"):
        run.open_printed()
    assert (secret / "token").read_text("utf-8") == "token"


def test_a_pipe_or_a_device_in_place_of_a_file_stops_nobody(run: RunFolder) -> None:
    for name in ("status.json", "batches-000000.jsonl", "log/run.jsonl"):
        os.mkfifo(run.path / name)
    assert run.status is None
    assert run.read_batches()[0] == []
    assert read_log(run)[0] == []
    assert read_log(run)[0] == []


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 11)
    with pytest.raises(OSError, match="large"):
        read_inside(tmp_path, "file", most=10)
    assert read_inside(tmp_path, "file", most=11) == b"x" * 11


@pytest.mark.parametrize("planted", ["savepoints", "savepoints/requests"])
def test_requests_are_left_in_the_state_or_nowhere(tmp_path: Path, secret: Path, planted: str) -> None:
    state = tmp_path / "state"
    (state / planted).parent.mkdir(parents=True)
    (state / planted).symlink_to(secret)
    before = sorted(secret.rglob("*"))
    with pytest.raises(OSError, match=r"directory|links"):
        Requests(state).ask(Asked("x"), "0" * 32)
    (secret / "1.done.json").write_text('{"folder": "/etc"}', "utf-8")
    assert Requests(state).answered("1") is None
    assert Requests(state).waiting() == []
    with pytest.raises(OSError, match=r"directory|links"):
        Requests(state).forget("1")
    assert (secret / "1.done.json").exists()
    (secret / "1.done.json").unlink()
    assert sorted(secret.rglob("*")) == before


def test_facts_of_a_state_are_not_those_of_another(tmp_path: Path, secret: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / "pipeline.json").symlink_to(secret / "token")
    (state / "checkpoint").symlink_to(secret)
    assert state_facts(state) is None
    assert names_inside(state, "checkpoint") == []


def test_orders_are_for_their_owner_alone(tmp_path: Path) -> None:
    folder = OperationFolder(tmp_path / "o")
    folder.make()
    folder.write_order(OperationOrder("o1", "verify", "p", "f", "b", "s", conf={"spark.secret": "x"}))
    assert (folder.path / OperationFolder.ORDER).stat().st_mode & 0o777 == 0o600
    assert folder.order is not None


def test_appending_and_writing_make_what_is_missing(tmp_path: Path) -> None:
    with append_inside(tmp_path, "log", "out.txt") as file:
        file.write(b"a")
    with append_inside(tmp_path, "log", "out.txt") as file:
        file.write(b"b")
    assert read_inside(tmp_path, "log", "out.txt") == b"ab"
    write_inside(tmp_path, "log", "out.txt", content=b"c", lasting=True)
    assert read_inside(tmp_path, "log", "out.txt") == b"c"
