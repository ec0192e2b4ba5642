"""What one side writes the other reads; what is torn, foreign or missing reads as nothing."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.reports import folder as folders
from penstock.reports.codec import plain, read
from penstock.reports.folder import START, Cursor, RunFolder
from penstock.reports.log import read_log
from penstock.reports.processes import birth, is_alive
from penstock.reports.values import BacklogReport, BatchLine, LastBatch, LogLine, RunEnd, RunOrder, RunStatus

NOW = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)
COUNTS = st.dictionaries(st.text(max_size=5), st.integers(0, 10**12), max_size=3)
TIMES = st.datetimes(timezones=st.just(dt.UTC))
LINES = st.builds(
    BatchLine, batch=st.integers(0), at=TIMES, duration_ms=st.integers(0), phases_ms=COUNTS, rows_in=COUNTS,
    rows_out=COUNTS, late=COUNTS, dead=COUNTS, filtered=COUNTS, watermark=st.none() | st.integers(),
    state_rows=st.integers(0), state_bytes=st.integers(0), sink_ms=COUNTS, sink_retries=COUNTS, balanced=st.booleans(),
)  # fmt: skip
STATUSES = st.builds(
    RunStatus, run=st.text(), pid=st.integers(1), process_started=st.text(), phase=st.text(), at=TIMES,
    turned_at=st.none() | TIMES, started_at=st.none() | TIMES, epoch=st.integers(0), batches=st.integers(0),
    rows_in=COUNTS, rows_out=COUNTS, rows_late=COUNTS, rows_dead=COUNTS, rows_filtered=COUNTS,
    rows_per_second=st.floats(0, 1e12), watermarks=COUNTS, watermark=st.none() | st.integers(),
    backlog=st.dictionaries(st.text(max_size=3), st.builds(BacklogReport, st.integers(0), st.text()), max_size=2),
    caught_up_in=st.dictionaries(st.text(max_size=3), st.none() | st.floats(0, 1e9), max_size=2),
    last_batch=st.none() | st.builds(LastBatch, st.integers(0), TIMES, st.integers(0)),
    disk_free=st.none() | st.integers(0), careful=st.booleans(),
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    found = RunFolder(tmp_path / "r0123456789ab")
    found.make()
    return found


def line(number: int) -> BatchLine:
    return BatchLine(number, NOW, 10, rows_in={"views": number})


@given(status=STATUSES)
def test_a_status_comes_back_as_it_was(status: RunStatus) -> None:
    assert read(RunStatus, json.dumps(plain(status))) == status


@given(line=LINES)
def test_a_batch_comes_back_as_it_was(line: BatchLine) -> None:
    assert read(BatchLine, json.dumps(plain(line))) == line


def test_infinite_numbers_become_null_so_that_any_reader_takes_the_file() -> None:
    assert plain({"a": float("inf"), "b": float("nan"), "c": 1.5}) == {"a": None, "b": None, "c": 1.5}


def test_keys_of_a_newer_version_are_ignored_and_missing_ones_have_their_defaults() -> None:
    found = {"run": "r1", "pid": 7, "process_started": "x", "phase": "running", "at": NOW.isoformat(), "mood": "good"}
    assert read(RunStatus, json.dumps(found)) == RunStatus("r1", 7, "x", "running", NOW)


@pytest.mark.parametrize(
    ("key", "value"),
    [("pid", "7"), ("pid", True), ("pid", None), ("at", "yesterday"), ("at", "2024-01-01T00:00:00"), ("rows_in", [1]),
     ("rows_in", {"a": "b"}), ("backlog", {"a": {"amount": 1}}), ("careful", 1)],
)  # fmt: skip
def test_what_has_the_wrong_type_is_refused(key: str, value: Any) -> None:
    found = plain(RunStatus("r1", 7, "x", "running", NOW)) | {key: value}
    with pytest.raises(ValueError):
        read(RunStatus, json.dumps(found))


def test_each_file_is_whole_or_not_there(folder: RunFolder) -> None:
    order = RunOrder("r1", "demo", 3, "/d/3.yaml", "/d", "/d/state", conf={"spark.x": "1"}, jars={"a:b:1": "0" * 64})
    status = RunStatus("r1", 7, "x", "running", NOW)
    end = RunEnd("r1", NOW, 1, "failed", ({"code": "DISK_FULL", "params": {"path": "/d"}},))
    assert (folder.order, folder.status, folder.end) == (None, None, None)

    folder.write_order(order)
    folder.write_status(status)
    folder.write_end(end)

    assert (folder.order, folder.status, folder.end) == (order, status, end)
    assert [item.name for item in folder.path.iterdir() if item.name.endswith(".tmp")] == []


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"run": 1}'])
def test_a_file_that_cannot_be_understood_reads_as_nothing(folder: RunFolder, content: bytes) -> None:
    (folder.path / "status.json").write_bytes(content)
    assert folder.status is None


def test_batches_are_read_once_each_and_a_torn_line_later(folder: RunFolder) -> None:
    for number in range(3):
        folder.add_batch(line(number))
    found, cursor = folder.read_batches()
    assert found == [line(0), line(1), line(2)]
    assert folder.read_batches(cursor) == ([], cursor)

    part = folder.path / "batches-000000.jsonl"
    whole = json.dumps(plain(line(3))).encode() + b"\n"
    with part.open("ab") as file:
        file.write(whole[:20])
    assert folder.read_batches(cursor) == ([], cursor)
    with part.open("ab") as file:
        file.write(whole[20:])
    found, cursor = folder.read_batches(cursor)
    assert found == [line(3)]


def test_a_line_that_is_broken_costs_only_itself(folder: RunFolder) -> None:
    folder.add_batch(line(0))
    with (folder.path / "batches-000000.jsonl").open("ab") as file:
        file.write(b"not json\n")
    folder.add_batch(line(1))
    assert folder.read_batches()[0] == [line(0), line(1)]


def test_batches_of_many_parts_are_read_in_order_and_room_is_bounded(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "PART_BYTES", 500)
    monkeypatch.setattr(folders, "PARTS_KEPT", 4)
    for number in range(60):
        folder.add_batch(line(number))
    found, cursor = folder.read_batches()
    assert len(list(folder.path.glob("batches-*"))) == 4
    assert [item.batch for item in found] == list(range(found[0].batch, 60))
    assert found[0].batch > 0

    folder.note_cursor(cursor)
    assert len(list(folder.path.glob("batches-*"))) == 1
    assert folder.cursor == cursor
    folder.add_batch(line(60))
    assert folder.read_batches(folder.cursor)[0] == [line(60)]


@given(cuts=st.lists(st.integers(1, 5), max_size=8))
def test_reading_in_pieces_gives_the_same_as_reading_at_once(tmp_path_factory: Any, cuts: list[int]) -> None:
    folder = RunFolder(tmp_path_factory.mktemp("run"))
    for number in range(12):
        folder.add_batch(line(number))
    found: list[BatchLine] = []
    cursor = START
    for most in [*cuts, 100]:
        some, cursor = folder.read_batches(cursor, most)
        found += some
    assert found == folder.read_batches()[0]


def test_a_cursor_beyond_what_is_there_reads_nothing(folder: RunFolder) -> None:
    folder.add_batch(line(0))
    assert folder.read_batches(Cursor(3, 99)) == ([], Cursor(3, 99))


def test_the_log_is_read_from_its_oldest_part_on(folder: RunFolder) -> None:
    for name, number in (("run.jsonl.2", 1), ("run.jsonl.1", 2), ("run.jsonl", 3)):
        text = json.dumps(plain(LogLine(NOW, "INFO", "penstock", str(number))))
        (folder.log / name).write_text(f"{text}\nbroken\n", "utf-8")
    assert [item.text for item in read_log(folder)[0]] == ["1", "2", "3"]


def test_a_process_is_told_from_a_later_one_of_the_same_number() -> None:
    started = birth(os.getpid())
    assert started is not None
    assert is_alive(os.getpid(), started)
    assert not is_alive(os.getpid(), f"{started}0")
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    born = birth(child.pid)
    assert born not in (None, started)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert birth(child.pid) is None, "a process that has ended and was not collected is no process"
    child.communicate()
    assert birth(child.pid) is None


def test_all_values_have_a_default_but_those_that_say_who_and_when() -> None:
    needed = {item.name for item in fields(RunStatus) if item.default is item.default_factory}
    assert needed == {"run", "pid", "process_started", "phase", "at"}
