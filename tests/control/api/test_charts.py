"""Graphs and trends: what pictures of a pipeline are drawn from."""

from __future__ import annotations

import datetime as dt

import pytest
from tests.control.api.server import T0, Server
from tests.control.files import SQL, yaml

from penstock.control.auth.roles import Role
from penstock.control.store import history
from penstock.control.store.history import MINUTE, BatchNumbers
from penstock.control.store.trend import step_of

RUN = "r00000000000a"
JOINED = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {name: joined}
spec:
  sources:
    views:
      generator: {dataset: page_views, rows: 10}
      eventTime: {column: ts}
    clicks:
      generator: {dataset: page_views, rows: 10}
      eventTime: {column: ts}
  steps:
    long: {from: views, filter: ms > 1000}
    both: {from: long, join: {with: clicks, on: [id], within: [0 seconds, 10 seconds]}}
  sinks:
    out: {from: both, postgres: {url: "${secret:env/PLACE}", table: t}}
"""


def add(server: Server, *found: BatchNumbers) -> None:
    with server.store.writing() as connection:
        history.add_batches(connection, found)


def batch(number: int, seconds_ago: float, pipeline: str = "a", **more: object) -> BatchNumbers:
    at = T0 - dt.timedelta(seconds=seconds_ago)
    return BatchNumbers(pipeline, RUN, number, at, **{"duration_ms": 100, "rows_in": 10, "rows_out": 8, **more})  # type: ignore[arg-type]


def test_the_graph_names_all_inputs_and_shows_no_secret(server: Server) -> None:
    sent = {"files": [{"path": "j.yaml", "text": JOINED}]}
    applied = server.client(Role.AUTHOR).post("/api/v1/apply", sent)
    assert applied.status_code == 200, applied.text
    nodes = server.client(Role.VIEWER).get("/api/v1/pipelines/joined/graph").json()["nodes"]
    assert [(node["name"], node["kind"], node["component"], node["inputs"]) for node in nodes] == [
        ("views", "source", "generator", []),
        ("clicks", "source", "generator", []),
        ("long", "step", "filter", ["views"]),
        ("both", "step", "join", ["long", "clicks"]),
        ("out", "sink", "postgres", ["both"]),
    ]
    assert nodes[4]["config"]["postgres"]["url"] == "${secret:env/PLACE}"


def test_the_graph_of_a_pipeline_in_sql(server: Server) -> None:
    sent = {"files": [{"path": "s.sql", "text": SQL}]}
    assert server.client(Role.AUTHOR).post("/api/v1/apply", sent).status_code == 200
    nodes = server.client(Role.VIEWER).get("/api/v1/pipelines/in_sql/graph").json()["nodes"]
    assert [(node["name"], node["inputs"]) for node in nodes] == [
        ("views", []),
        ("clean", ["views"]),
        ("out", ["clean"]),
    ]


def test_a_trend_has_no_more_points_than_wanted_and_counts_every_row(server: Server) -> None:
    server.client(Role.AUTHOR).apply("a")
    add(server, *(batch(number, 3600 - number, watermark=number) for number in range(1, 3600)))
    add(server, batch(9000, 4000))
    found = server.client(Role.VIEWER).get("/api/v1/pipelines/a/trend?points=60").json()
    points = found["points"]
    assert 60 <= len(points) <= 61
    assert sum(point["rowsIn"] for point in points) == 3599 * 10
    assert sum(point["batches"] for point in points) == 3599
    assert {point["seconds"] for point in points[1:-1]} == {60}
    assert {point["rowsIn"] / point["seconds"] for point in points[1:-1]} == {10}
    assert [point["at"] for point in points] == sorted(point["at"] for point in points)
    assert points[-1]["watermark"] == 3599


def test_a_point_at_the_end_stands_for_the_time_that_has_passed(server: Server) -> None:
    server.client(Role.AUTHOR).apply("a")
    server.time = T0 + dt.timedelta(seconds=5)
    add(server, *(batch(number, -number) for number in range(5)))
    last = server.client(Role.VIEWER).get("/api/v1/pipelines/a/trend?points=60").json()["points"][-1]
    assert (last["rowsIn"], last["seconds"]) == (50, 5)


def test_a_point_holds_the_sums_and_the_last_batch(server: Server) -> None:
    server.client(Role.AUTHOR).apply("a")
    add(
        server,
        batch(1, 30, duration_ms=50, dead=2, state_rows=5, details={"phases_ms": {"addBatch": 40}}),
        batch(2, 20, duration_ms=70, late=1, balanced=False),
        batch(3, 10, duration_ms=60, filtered=3, state_rows=9, checkpoint_bytes=77, details={"sink_ms": {"out": 20}}),
    )
    since = (T0 - dt.timedelta(minutes=1)).isoformat().replace("+00:00", "Z")
    (point,) = server.client(Role.VIEWER).get(f"/api/v1/pipelines/a/trend?since={since}&points=2").json()["points"][-1:]
    assert (point["batches"], point["rowsIn"], point["rowsOut"]) == (3, 30, 24)
    assert (point["dead"], point["late"], point["filtered"], point["unbalanced"]) == (2, 1, 3, 1)
    assert (point["durationMs"], point["longestMs"]) == (180, 70)
    assert (point["stateRows"], point["checkpointBytes"]) == (9, 77)
    assert (point["phasesMs"], point["sinkMs"], point["span"]) == ({}, {"out": 20}, 1)
    assert dt.datetime.fromisoformat(point["at"]) == T0 - dt.timedelta(seconds=10)


def test_thinned_history_counts_as_what_it_stands_for(server: Server) -> None:
    server.client(Role.AUTHOR).apply("a")
    add(server, batch(60, 600, rows_in=600, span=60, grain=MINUTE, longest_ms=90))
    (point,) = server.client(Role.VIEWER).get("/api/v1/pipelines/a/trend").json()["points"]
    assert (point["batches"], point["rowsIn"], point["longestMs"], point["span"]) == (60, 600, 90, 60)


def test_a_trend_that_ends_before_it_begins_is_refused(server: Server) -> None:
    server.client(Role.AUTHOR).apply("a")
    answer = server.client(Role.VIEWER).get(
        "/api/v1/pipelines/a/trend?since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z"
    )
    assert (answer.status_code, answer.json()["code"]) == (422, "REQUEST_INVALID")


def test_brief_trends_leave_out_what_the_caller_cannot_see(server: Server) -> None:
    author = server.client(Role.AUTHOR)
    author.post("/api/v1/apply", {"files": [{"path": "a.yaml", "text": yaml("a", labels="{team: news}")}]})
    author.post("/api/v1/apply", {"files": [{"path": "b.yaml", "text": yaml("b", labels="{team: ads}")}]})
    add(server, batch(1, 10, watermark=5), batch(1, 10, "b"))
    path = "/api/v1/trends?pipeline=a&pipeline=b&pipeline=none"
    everything = server.client(Role.VIEWER).get(path).json()
    assert [item["pipeline"] for item in everything["items"]] == ["a", "b"]
    assert [(point["rowsIn"], point["watermark"]) for point in everything["items"][0]["points"]] == [(10, 5)]
    limited = server.client(Role.VIEWER, {"team": "ads"}).get(path).json()
    assert [item["pipeline"] for item in limited["items"]] == ["b"]


@pytest.mark.parametrize(
    ("minutes", "points", "step"), [(60, 60, 60), (60, 7, 515), (1, 500, 1), (60 * 24 * 7, 500, 1210)]
)
def test_the_step_between_points_never_makes_more_than_wanted(minutes: int, points: int, step: int) -> None:
    assert step_of(T0, T0 + dt.timedelta(minutes=minutes), points) == step
