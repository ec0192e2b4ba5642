"""Which rows a range takes, which results belong to it, and what becomes of the pipeline. Nothing is run."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from penstock.engine.reprocessing.plan import (
    Reading,
    Wanted,
    bounded,
    condition,
    cut,
    gives_early,
    name_of,
    reach_of,
    reading,
)
from penstock.errors import PenstockError
from penstock.graph.build import build
from penstock.spec.dump import as_document
from penstock.spec.units import Duration

if TYPE_CHECKING:
    from tests.conftest import Project

    from penstock.spec.location import PipelineFile

START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)
WANTED = Wanted(START, START + HOUR)
MINUTE = 60_000_000
BODY = """
sources:
  events:
    files: {path: .}
    format: {json: {schema: {id: bigint, ts: timestamp}}}
    eventTime: {column: ts, maxDelay: 5 seconds}
steps:
  first: {from: events, window: {size: 1 minute, values: {n: count(*)}}}
  second: {from: first, window: {size: 1 hour, values: {n: sum(n)}}}
  other: {from: events, filter: id > 0}
late: {policy: side, sink: {files: {path: ./late, format: json}}}
deadLetters: {files: {path: ./dead, format: json}}
savepoints: {every: 1 hour}
sinks:
  hours: {from: second, sqlite: {path: out.db, table: hours, key: [window_start]}}
  all: {from: other, sqlite: {path: out.db, table: events}}
"""


@pytest.fixture
def file(project: Project) -> PipelineFile:
    return project.load(BODY)


def test_a_result_reaches_as_far_as_all_steps_on_its_longest_way_together(file: PipelineFile) -> None:
    graph = build(file)
    steps = {"first": (MINUTE, 0), "second": (60 * MINUTE, 3)}
    assert reach_of(graph, steps, ["hours"]) == (61 * MINUTE, 3)
    assert reach_of(graph, steps, ["all"]) == (0, 0)
    assert reach_of(graph, {**steps, "first": (None, 0)}, ["hours", "all"]) == (None, 3)


def test_results_wait_if_a_step_on_every_way_does(file: PipelineFile) -> None:
    graph = build(file)
    assert gives_early(graph, {"first"}, "all")
    assert gives_early(graph, {}, "hours")
    assert not gives_early(graph, {"first"}, "hours")


def test_rows_are_read_as_far_as_results_reach() -> None:
    millisecond = dt.timedelta(milliseconds=1)
    assert reading(WANTED, (MINUTE, 1)) == Reading(START - HOUR / 60, START + HOUR + millisecond)
    assert reading(WANTED, (None, 0)) == Reading(None, START + HOUR)
    warm = replace(WANTED, warm_up=Duration.parse("2 hours"))
    assert reading(warm, (None, 0)) == Reading(START - 2 * HOUR, START + HOUR)
    assert reading(WANTED, (10**18, 0)).since is None


def test_a_result_belongs_to_the_range_by_its_event_time() -> None:
    first, last = 1704067200000000, 1704070800000000
    assert condition("ts", is_window=False, shift=0, wanted=WANTED) == (
        f"unix_micros(`ts`) >= {first} AND unix_micros(`ts`) < {last}"
    )
    assert condition("a`b", is_window=False, shift=-1, wanted=WANTED) == (
        f"unix_micros(`a``b`) + (-1) >= {first} AND unix_micros(`a``b`) + (-1) < {last}"
    )
    assert "unix_micros(`window`.`end`) - 1 >=" in condition("window", is_window=True, shift=0, wanted=WANTED)


def test_the_copy_has_a_name_of_its_own_and_sets_nothing_aside_where_the_pipeline_does(file: PipelineFile) -> None:
    names = {
        name_of(file.pipeline, wanted)
        for wanted in (WANTED, replace(WANTED, until=START + 2 * HOUR), replace(WANTED, sinks=("all",)),
                       replace(WANTED, into={"all": {"table": "x"}}), replace(WANTED, savepoint="s"))
    }  # fmt: skip
    assert len(names) == 5
    assert all(name.startswith("demo-again-") for name in names)
    made = bounded(file.pipeline, WANTED)
    assert (made.name, made.dead_letters, made.late.sink) == (name_of(file.pipeline, WANTED), None, None)
    assert made.savepoints.every is None
    assert made.sources[0].bootstrap is not None
    assert made.sources[0].bootstrap.component == made.sources[0].component


def test_sinks_are_chosen_and_sent_elsewhere(file: PipelineFile) -> None:
    made = bounded(file.pipeline, replace(WANTED, sinks=("all",), into={"all": {"table": "mended"}}))
    assert as_document(made)["spec"]["sinks"] == {
        "all": {"from": "other", "sqlite": {"path": "out.db", "table": "mended"}}
    }


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (replace(WANTED, sinks=("al",)), "no sink called 'al'"),
        (replace(WANTED, into={"every": {"table": "x"}}), "no sink called 'every'"),
        (replace(WANTED, into={"all": {"tabel": "x"}}), "has no 'tabel'"),
        (replace(WANTED, into={"all": {"table": ""}}), "all.table"),
    ],
)
def test_what_no_sink_has_is_told(file: PipelineFile, wanted: Wanted, told: str) -> None:
    with pytest.raises(PenstockError, match=told) as error:
        bounded(file.pipeline, wanted)
    assert error.value.code == "USAGE"


def test_sources_without_time_or_history_are_refused(project: Project) -> None:
    untimed = project.load(BODY.replace("    eventTime: {column: ts, maxDelay: 5 seconds}\n", ""))
    with pytest.raises(PenstockError) as error:
        bounded(untimed.pipeline, WANTED)
    assert error.value.code == "REPROCESS_NO_TIME"
    made_up = project.load(
        "sources: {a: {generator: {dataset: page_views}, eventTime: {column: ts}}}\nsinks: {b: {from: a, console: {}}}"
    )
    with pytest.raises(PenstockError) as gone:
        bounded(made_up.pipeline, WANTED)
    assert gone.value.code == "REPROCESS_NO_HISTORY"


def test_each_sink_gets_only_what_belongs_to_the_range(file: PipelineFile) -> None:
    made = cut(bounded(file.pipeline, WANTED), {"hours": "a", "all": "b"})
    assert [(sink.name, sink.input) for sink in made.sinks] == [("hours", "hours_in_range"), ("all", "all_in_range")]
    document = as_document(made)["spec"]["steps"]
    assert document["hours_in_range"] == {"from": "second", "filter": "a"}
    assert build(replace(file, pipeline=made)).nodes["all_in_range"].inputs == ("other",)
