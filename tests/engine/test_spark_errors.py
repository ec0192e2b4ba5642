"""What Spark says, in Penstock's words: never a stack trace, always a code and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.engine.running import json_lines, run

from penstock.engine.spark_errors import condition_of, runtime_problem, text_of, unsupported_problem
from penstock.errors import PenstockError, Problem

if TYPE_CHECKING:
    from tests.conftest import Project


def told(message: str) -> Problem:
    return runtime_problem(Exception(message), batch=4, log="spark.log", checkpoint="state")


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("java.io.IOException: No space left on device", "DISK_FULL"),
        ("java.io.IOException: Disk quota exceeded", "DISK_FULL"),
        ("java.io.FileNotFoundException: /x (Read-only file system)", "PATH_NOT_WRITABLE"),
        ("java.io.FileNotFoundException: /x (Permission denied)", "PATH_NOT_WRITABLE"),
        ("[STREAMING_QUERY_EVOLUTION_ERROR.X] Sources changed. SQLSTATE: 42KDE", "STATE_SOURCES_CHANGED"),
        ("[FAILED_READ_FILE.NO_HINT] Error while reading file:///in/a.parquet. SQLSTATE: KD001", "SOURCE_FILE_CORRUPT"),
        ("file:/in/a.parquet is not a Parquet file. Expected magic number", "SOURCE_FILE_CORRUPT"),
        ("OverflowError: step 'minutes': a sum of 'n' does not fit into 64 bits", "SUM_OVERFLOW"),
        ("[DIVIDE_BY_ZERO] Division by zero. Use `try_divide` ... SQLSTATE: 22012", "ROW_FAILED"),
        ("something nobody has seen", "BATCH_FAILED"),
    ],
)
def test_the_reason_of_a_failed_batch_has_a_code(message: str, code: str) -> None:
    assert told(message).code == code


def test_the_reason_is_one_line_without_spark_s_codes() -> None:
    text = "[CAST_INVALID_INPUT] The value 'x' cannot be cast. SQLSTATE: 22018\n== SQL ==\nSELECT ...\n\tat org.apache"
    assert text_of(Exception(text)) == "The value 'x' cannot be cast."
    assert told(text).params["reason"] == "The value 'x' cannot be cast."


def test_an_unknown_failure_tells_the_innermost_cause_and_the_batch() -> None:
    text = (
        "Job aborted: org.x.OuterException: outer\nCaused by: java.lang.IllegalStateException: the core of it\n\tat a.b"
    )
    problem = told(text)
    assert problem.params["reason"] == "java.lang.IllegalStateException: the core of it"
    assert (problem.params["batch"], problem.params["log"]) == (4, "spark.log")


def test_a_corrupt_file_is_named() -> None:
    problem = told("[FAILED_READ_FILE.NO_HINT] Error while reading file file:///in/a.parquet. SQLSTATE: KD001")
    assert problem.params["reason"] == "file:///in/a.parquet"


def test_an_error_without_a_condition_has_none() -> None:
    assert condition_of(ValueError("x")) == ""


@pytest.mark.parametrize(
    ("message", "advice"),
    [
        ("Distinct aggregations are not supported", "approx_count_distinct"),
        ("Window function is not supported in ROW_NUMBER()", "aggregate by a time window"),
        ("Sorting is not supported on streaming DataFrames", "Drop ORDER BY"),
        ("Something quite new", "Rewrite the step"),
    ],
)
def test_what_cannot_stream_comes_with_advice(message: str, advice: str, project: Project) -> None:
    graph = project.build("""
        sources:
          views: {memory: {schema: {id: string}}}
        steps:
          s: {from: views, filter: id > 'a'}
        sinks:
          out: {from: s, console: {}}
    """)
    problem = unsupported_problem(Exception(message), graph, "s")
    assert problem.code == "OPERATORS_UNSUPPORTED"
    assert advice in problem.hint
    assert problem.location is not None
    assert problem.location.line == 8


@pytest.mark.spark
@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("10 / n", "Division by zero."),
        ("CAST(id AS INT)", 'The value \'x\' of the type "STRING" cannot be cast to "INT"'),
    ],
)
def test_a_row_that_makes_a_step_fail_stops_the_run_and_nothing_of_the_batch_is_kept(
    expression: str, reason: str, project: Project
) -> None:
    project.put("in/1.json", json_lines([{"id": "1", "n": 2}, {"id": "x", "n": 0}]))
    graph = project.build(f"""
        sources:
          views: {{files: {{path: ./in}}, format: {{json: {{schema: {{id: string, n: int}}}}}}}}
        steps:
          s: {{from: views, select: {{r: "{expression}"}}}}
        sinks:
          out: {{from: s, sqlite: {{path: out.db, table: t}}}}
    """)
    with pytest.raises(PenstockError) as raised:
        run(graph, project.folder / "state")
    assert raised.value.code == "ROW_FAILED"
    assert str(raised.value.problems[0].params["reason"]).startswith(reason)
    assert "\n" not in str(raised.value.problems[0].params["reason"])


@pytest.mark.parametrize(
    "step", ["window: {size: 1 minute, values: {n: sum(n)}}", "rolling: {over: 1 minute, values: {s: sum(n)}}"]
)
def test_a_sum_that_does_not_fit_stops_the_run_with_the_step_named(step: str, project: Project) -> None:
    rows = [{"ts": "2024-01-01T00:00:00Z", "n": (1 << 63) - 1}, {"ts": "2024-01-01T00:00:01Z", "n": 1}]
    project.put("in/1.json", json_lines(rows))
    project.put("in/2.json", json_lines([{"ts": "2024-01-01T02:00:00Z", "n": 1}]))
    graph = project.build(f"""
        sources:
          views:
            files: {{path: ./in, maxFilesPerBatch: 1}}
            format: {{json: {{schema: {{ts: timestamp, n: bigint}}}}}}
            eventTime: {{column: ts, maxDelay: 0 seconds}}
        steps:
          summed: {{from: views, {step}}}
        sinks:
          out: {{from: summed, sqlite: {{path: out.db, table: t}}}}
    """)
    with pytest.raises(PenstockError) as raised:
        run(graph, project.folder / "state")
    assert raised.value.code == "SUM_OVERFLOW"
    assert raised.value.problems[0].params["step"] == "summed"
    assert "does not fit into 64 bits" in str(raised.value.problems[0].params["reason"])
