"""A log is read as it grows, whatever its parts are called by then."""

from __future__ import annotations

import datetime as dt
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.reports.codec import plain
from penstock.reports.folder import RunFolder
from penstock.reports.log import BEGINNING, LogCursor, LogFilter, last_placed, read_log
from penstock.reports.values import LogLine
from penstock.runner.logs import RunLog

NOW = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    found = RunFolder(tmp_path)
    found.make()
    return found


def texts(lines: list[LogLine]) -> list[str]:
    return [line.text for line in lines]


def test_nothing_is_read_from_a_log_that_is_not_there(tmp_path: Path) -> None:
    assert read_log(RunFolder(tmp_path)) == ([], BEGINNING)


@given(pieces=st.lists(st.integers(0, 20), max_size=10))
def test_what_is_read_piece_by_piece_is_what_was_written_once_each(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[int]
) -> None:
    """Parts are closed and renamed meanwhile; as long as none is removed unread, nothing is lost or read twice."""
    folder = RunFolder(tmp_path_factory.mktemp("run"))
    folder.make()
    log = RunLog(folder.lines, part_bytes=600, parts=60)
    cursor, found, written = BEGINNING, [], 0
    for count in [*pieces, 1]:
        for _ in range(count):
            log.say("INFO", f"line {written}")
            written += 1
        lines, cursor = read_log(folder, cursor)
        found += texts(lines)
    assert found == [f"line {number}" for number in range(written)]


def test_a_line_belongs_to_the_batch_that_was_at_work(folder: RunFolder) -> None:
    log = RunLog(folder.lines)
    log.say("INFO", "before")
    log.begin(7)
    log.take_printed("within")
    log.say("ERROR", "of another", batch=6)
    log.begin(None)
    log.say("INFO", "after")
    assert [line.batch for line in read_log(folder)[0]] == [None, 7, 6, None]


def test_a_reader_that_was_away_too_long_goes_on_with_the_oldest_that_is_left(folder: RunFolder) -> None:
    log = RunLog(folder.lines, part_bytes=600, parts=3)
    log.say("INFO", "line 0")
    _, cursor = read_log(folder)
    for number in range(1, 50):
        log.say("INFO", f"line {number}")
    found = [int(text.split()[1]) for text in texts(read_log(folder, cursor)[0])]
    assert found == list(range(found[0], 50))
    assert found[0] > 1


def test_a_torn_line_is_read_once_it_is_whole(folder: RunFolder) -> None:
    whole = json.dumps(plain(LogLine(NOW, "INFO", "a", "text"))).encode() + b"\n"
    folder.lines.write_bytes(whole[:10])
    lines, cursor = read_log(folder)
    assert lines == []
    folder.lines.write_bytes(whole)
    assert texts(read_log(folder, cursor)[0]) == ["text"]


def test_lines_are_chosen_by_level_time_and_pattern(folder: RunFolder) -> None:
    lines = [
        LogLine(NOW, "INFO", "a", "begins"),
        LogLine(NOW + dt.timedelta(minutes=1), "WARNING", "a", "slow", None, "the trace of Slow"),
        LogLine(NOW + dt.timedelta(minutes=2), "ERROR", "a", "failed", "DISK_FULL"),
    ]
    folder.lines.write_text("".join(json.dumps(plain(line)) + "\nnoise\n" for line in lines), "utf-8")
    assert read_log(folder)[0] == lines
    assert texts(read_log(folder, wanted=LogFilter(level="WARNING"))[0]) == ["slow", "failed"]
    assert texts(read_log(folder, wanted=LogFilter(since=NOW + dt.timedelta(seconds=90)))[0]) == ["failed"]
    assert texts(read_log(folder, wanted=LogFilter(grep=re.compile("trace|begins")))[0]) == ["begins", "slow"]
    newest, cursor = last_placed(folder, 2)
    assert texts([line for line, _ in newest]) == ["slow", "failed"]
    assert last_placed(folder, 0)[0] == []
    assert read_log(folder, cursor)[0] == []
    assert texts(read_log(folder, LogCursor.parse(str(newest[0][1])))[0]) == ["failed"]
    assert newest[1][1] != cursor == LogCursor.parse(str(cursor))
