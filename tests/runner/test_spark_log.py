"""Spark's log in words: noise is left out, errors are one line with the original beneath."""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.reports.folder import RunFolder
from penstock.reports.log import read_log
from penstock.reports.values import LogLine
from penstock.runner.logs import RunLog, everything_into
from penstock.runner.spark_log import read_line

NOW = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)


def spark(level: str, logger: str, text: str, more: str = "") -> str:
    at = "2024-01-01T00:00:00.000+00:00"
    return json.dumps({"at": at, "level": level, "logger": logger, "text": text, "more": more}, separators=(",", ":"))


@pytest.mark.parametrize(
    ("logger", "text"),
    [
        ("NativeCodeLoader", "Unable to load native-hadoop library for your platform..."),
        ("ResolveWriteToStream", "spark.sql.adaptive.enabled is not supported in streaming DataFrames/Datasets"),
        ("SparkStringUtils", "Truncated the string representation of a plan since it was too large."),
        ("Utils", "Service 'SparkUI' could not bind on port 4040. Attempting port 4041."),
        ("TransformWithStateInPySparkStateServer", "Map state chunks doesn't contain key [-9223372036854775808]."),
        ("TransformWithStateInPySparkStateServer", "No more data to read from the socket"),
    ],
)
def test_what_every_healthy_run_says_is_noise(logger: str, text: str) -> None:
    assert read_line(spark("WARN", logger, text), NOW) is None
    assert read_line(spark("ERROR", logger, text), NOW) is not None


@pytest.mark.parametrize(
    ("text", "more", "code", "told"),
    [
        (
            "Current batch is falling behind. The trigger interval is 1000 milliseconds, but spent 2300 milliseconds",
            "", None, "a batch took 2300 ms, longer than `run.trigger` (1000 ms)",
        ),
        (
            "Lost executor 1 on 127.0.0.1: worker lost: Not receiving heartbeat for 60 seconds", "", None,
            "executor 1 on 127.0.0.1 is lost: worker lost: Not receiving heartbeat for 60 seconds",
        ),
        (
            "Initial job has not accepted any resources; check your cluster UI", "", None,
            "the cluster has no free cores or memory for this pipeline: tasks wait",
        ),
        (
            "Exception in task 0.0 in stage 3.0 (TID 5)",
            "java.io.IOException: No space left on device\n\tat java.base/java.io.FileOutputStream.write",
            "DISK_FULL", "no space left on the disk of the state folder",
        ),
        (
            "Exception in task 0.0 in stage 3.0 (TID 5)",
            "org.apache.spark.SparkException: Job aborted\n\tat x.Y\nCaused by: java.lang.IllegalStateException: odd\n"
            "\tat x.Y", None, "java.lang.IllegalStateException: odd",
        ),
        (
            "Ignoring error", "org.apache.spark.SparkException: Master removed our application: FAILED\n\tat x.Y", None,
            "org.apache.spark.SparkException: Master removed our application: FAILED",
        ),
        (
            "Query demo [id = 1, runId = 2] terminated with error",
            "py4j.Py4JException: An exception was raised by the Python Proxy. Return Message: Traceback (most recent "
            "call last):\n  File \"x\", line 1\npenstock.errors.PenstockError: error[SINK_FENCED]: sink 'store' has "
            "been taken over\n    Only one", "SINK_FENCED", "sink 'store' has been taken over",
        ),
    ],
)  # fmt: skip
def test_an_error_is_told_in_one_line_with_the_original_beneath(
    text: str, more: str, code: str | None, told: str
) -> None:
    found = read_line(spark("ERROR" if more else "WARN", "Executor", text, more), NOW)
    assert found is not None
    assert (found.text, found.code) == (told, code)
    assert found.more is not None
    assert text in found.more
    assert more in found.more


def test_what_workers_always_print_is_noise() -> None:
    assert read_line("Streaming TransformWithStateInPandas Python worker finish init stage", NOW) is None
    assert read_line("WARNING: Using incubator modules: jdk.incubator.vector", NOW) is None


def test_what_is_printed_comes_through_as_it_is() -> None:
    assert read_line("hello from a worker", NOW) == LogLine(NOW, "INFO", "output", "hello from a worker")
    assert read_line('{"at":broken', NOW) == LogLine(NOW, "INFO", "output", '{"at":broken')


@given(text=st.text(), level=st.text(max_size=5), logger=st.text(max_size=10), more=st.text())
def test_nothing_that_is_written_makes_reading_fail(text: str, level: str, logger: str, more: str) -> None:
    found = read_line(spark(level, logger, text, more), NOW)
    assert found is None or "\n" not in found.text.strip("\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029")
    printed = read_line(text, NOW)
    assert printed is None or len(printed.text) <= 500


def lines(file: Path) -> list[dict[str, str]]:
    return [json.loads(text) for text in file.read_text("utf-8").splitlines()]


def test_the_log_is_cut_into_parts_of_which_the_newest_are_kept(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.make()
    log = RunLog(folder.lines, part_bytes=1000, parts=3)
    for number in range(100):
        log.say("INFO", f"line {number}")
    assert sorted(item.name for item in folder.log.iterdir()) == ["run.jsonl", "run.jsonl.1", "run.jsonl.2"]
    assert all(item.stat().st_size <= 1000 for item in folder.log.iterdir())
    found = [int(line.text.split()[1]) for line in read_log(folder)[0]]
    assert found == list(range(found[0], 100))
    assert len(found) > 15


def test_what_is_printed_and_logged_in_the_process_is_in_the_log_without_secrets(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = RunLog(tmp_path / "run.jsonl")
    log.hidden = ["canary-17"]
    with everything_into(log):
        os.write(1, b"printed canary-17\n")
        os.write(2, b"to the other\nand more")
        logging.getLogger("library").warning("careful with %s", "canary-17")
        logging.getLogger("py4j.clientserver").error("Error while sending")
        place = "/lib/python3.11/site-packages/py4j/java_gateway.py"
        logging.getLogger().handle(logging.LogRecord("root", logging.ERROR, place, 1038, "Exception", None, None))
        try:
            raise ZeroDivisionError("by canary-17")
        except ZeroDivisionError:
            logging.getLogger("library").exception("it failed")
    os.write(1, b"after\n")
    found = {(line["logger"], line["text"]): line for line in lines(tmp_path / "run.jsonl")}
    assert set(found) == {
        ("output", "printed ***"), ("output", "to the other"), ("output", "and more"),
        ("library", "careful with ***"), ("library", "ZeroDivisionError: by ***"),
    }  # fmt: skip
    failed = found[("library", "ZeroDivisionError: by ***")]
    assert failed["level"] == "ERROR"
    assert failed["more"].startswith("it failed\nTraceback")
    assert "canary" not in (tmp_path / "run.jsonl").read_text("utf-8")
    assert capfd.readouterr().out == "after\n"


def test_a_full_disk_loses_lines_and_not_the_run(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "missing" / "run.jsonl")
    log.say("INFO", "nobody will read this")
    assert not (tmp_path / "missing").exists()
