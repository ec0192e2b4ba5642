"""What a pipeline says about its own capacity, and what has to be given."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.capacity.traffic import step_inputs
from penstock.errors import PenstockError
from penstock.frontends.pipeline_scenario import draft_of_pipeline
from penstock.frontends.scenario import OPTIONS, Option, ScenarioFile, checked

PIPELINE = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {name: demo}
spec:
  sources:
    views: {memory: {schema: {id: string, ts: timestamp}}, eventTime: {column: ts}}
  steps:
    clean: {from: views, filter: id is not null}
    hourly: {from: clean, window: {size: 1 hour, slide: 10 minutes, by: [id], values: {n: count(*)}}}
    top: {from: hourly, top_n: {size: 1 hour, by: [id], order: [n], n: 3}}
    all: {from: clean, window: {size: 1 minute, values: {n: count(*)}, emit: update}}
  sinks:
    store: {from: top, memory: {}}
    again: {from: top, memory: {}}
    raw: {from: clean, memory: {}}
    totals: {from: all, memory: {}}
  run: {trigger: 10 seconds}
"""
GIVEN = [
    ("--rate", "20000/s", None), ("--record-size", "1 KB", None), ("--stored-size", "500 B", None),
    ("--network", "10 GbE", None), ("--disks", "local", None),
    ("--keys", "1000000", "hourly"), ("--keys", "100", "top"),
    *(("--state-size", "60 B", step) for step in ("hourly", "top", "all")),
    *(("--emit-size", "50 B", step) for step in ("hourly", "top", "all")),
]  # fmt: skip


def write(folder: Path, text: str = PIPELINE) -> Path:
    path = folder / "p.yaml"
    path.write_text(text, "utf-8")
    return path


def options(given: list[tuple[str, str, str | None]]) -> list[Option]:
    paths = {flag: path for path, flag in OPTIONS.items()}
    return [Option(paths[flag], value, step) for flag, value, step in given]


def read(folder: Path) -> ScenarioFile:
    return checked(draft_of_pipeline(write(folder), {"hourly", "top"}), options(GIVEN))


def test_windows_inputs_sinks_and_checkpoints_come_from_the_pipeline(tmp_path: Path) -> None:
    found = read(tmp_path)
    steps = found.scenario.steps

    assert list(steps) == ["hourly", "top", "all"]
    assert [str(step.windows and step.windows.size) for step in steps.values()] == ["1 hour", "1 hour", "1 minute"]
    assert [step.overlap for step in steps.values()] == [6, 1, 1]
    assert [step.inputs for step in steps.values()] == [("source",), ("hourly",), ("source",)]
    assert [step.sinks for step in steps.values()] == [0, 2, 1]
    assert [step.emits for step in steps.values()] == ["close", "close", "update"]
    assert steps["all"].keys.value == 1
    assert found.scenario.checkpoints is not None
    assert (str(found.scenario.checkpoints.every), found.scenario.checkpoints.mode) == ("10 seconds", "changes")
    assert found.scenario.stored is not None
    assert found.scenario.stored.sinks == 1
    assert step_inputs(found.scenario, 20_000.0)["top"].rows == pytest.approx(1_000_000 / 600)


def test_what_was_taken_from_the_pipeline_is_said(tmp_path: Path) -> None:
    assert read(tmp_path).taken == (
        "windows of 'hourly': 1 hour, one every 10 minutes",
        "'hourly' reads the source; its rows are stored by no sink",
        "windows of 'top': 1 hour",
        "'top' reads 'hourly'; its rows are stored by 'store' and 'again'",
        "windows of 'all': 1 minute",
        "rows of 'all' leave whenever they change: `emit: update`",
        "'all' has 1 key, as it has no `by`",
        "'all' reads the source; its rows are stored by 'totals'",
        "a checkpoint of what has changed every 10 seconds: `run.trigger`",
        "shuffled rows pass the disks, as Spark does it",
        "rows are stored without state by 'raw'",
    )


def test_what_the_pipeline_does_not_say_must_be_given(tmp_path: Path) -> None:
    draft = draft_of_pipeline(write(tmp_path))
    with pytest.raises(PenstockError) as caught:
        checked(draft, options([("--rate", "5/s", None)]))

    found = [
        (problem.location.line if problem.location else 0, problem.params["key"], problem.hint.partition("Or give ")[2])
        for problem in caught.value.problems
    ]
    assert sorted(found) == [
        (1, "attached", "`--disks`."),
        (1, "network", "`--network`."),
        (1, "recordSize", "`--record-size`."),
        (9, "emit", "`--emit-size hourly=VALUE`."),
        (9, "keys", "`--keys hourly=VALUE`."),
        (9, "state", "`--state-size hourly=VALUE`."),
        (10, "emit", "`--emit-size top=VALUE`."),
        (10, "keys", "`--keys top=VALUE`."),
        (10, "state", "`--state-size top=VALUE`."),
        (11, "emit", "`--emit-size all=VALUE`."),
        (11, "state", "`--state-size all=VALUE`."),
        (15, "rowSize", "`--stored-size`."),
    ]


SQL = PIPELINE.replace("filter: id is not null", "sql: SELECT * FROM views")


def test_of_a_step_of_sql_it_must_be_said_whether_it_keeps_state(tmp_path: Path) -> None:
    with pytest.raises(PenstockError) as caught:
        draft_of_pipeline(write(tmp_path, SQL))
    (problem,) = caught.value.problems
    assert problem.location is not None
    assert (problem.code, problem.location.line) == ("USAGE", 8)
    assert problem.hint == "Give `--keys clean=NUMBER`, or `--stateless clean` if it keeps none."

    assert "clean" not in draft_of_pipeline(write(tmp_path, SQL), (), ["clean"]).content["steps"]
    steps = draft_of_pipeline(write(tmp_path, SQL), ["clean"]).content["steps"]
    assert steps["hourly"]["reads"] == ["clean"]


def test_steps_that_are_not_there_are_suggested(tmp_path: Path) -> None:
    for names in ({"stateful": ["houry"]}, {"stateless": ["houry"]}):
        with pytest.raises(PenstockError) as caught:
            draft_of_pipeline(write(tmp_path), **names)
        assert caught.value.problems[0].hint == "Did you mean 'hourly'?"


def test_the_default_trigger_is_said_to_be_a_default(tmp_path: Path) -> None:
    plain = PIPELINE.replace("  run: {trigger: 10 seconds}\n", "")
    taken = draft_of_pipeline(write(tmp_path, plain)).taken
    assert "a checkpoint of what has changed every 1 second: `run.trigger`, which is the default" in taken


def test_a_join_keeps_state_unless_its_other_side_is_a_table(tmp_path: Path) -> None:
    streams = """\
    other: {memory: {schema: {id: string, at: timestamp}}, eventTime: {column: at}}
  steps:
    paired: {from: views, join: {with: other, on: [id], within: [0 seconds, 1 hour]}}
    priced: {from: views, join: {table: {path: prices.csv, schema: {id: string}}, on: [id]}}
  sinks:
    store: {from: paired, memory: {}}
    more: {from: priced, memory: {}}
"""
    text = PIPELINE.partition("  steps:")[0] + streams
    draft = draft_of_pipeline(write(tmp_path, text))

    assert list(draft.content["steps"]) == ["paired"]
    assert draft.content["steps"]["paired"]["reads"] == ["source"]
    assert draft.content["stored"] == {"sinks": 1}
    assert draft.taken[0] == "rate and record size are those of all sources together: views, other"


def test_a_row_counts_for_each_cell_around_it(tmp_path: Path) -> None:
    geo = "geo_window: {lat: a, lon: b, ring: 2, size: 1 minute, values: {n: count(*)}}"
    text = (
        PIPELINE.partition("    hourly")[0]
        + f"    near: {{from: clean, {geo}}}\n  sinks:\n    s: {{from: near, memory: {{}}}}\n"
    )
    draft = draft_of_pipeline(write(tmp_path, text))

    assert draft.content["steps"]["near"]["fanOut"] == 19
