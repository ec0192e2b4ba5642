"""Server-sent events of states, events and logs, over a real socket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.control.api.server import T0, Server, listening

from penstock.control.api import streams
from penstock.control.api.routes import live
from penstock.control.auth.roles import Role
from penstock.control.auth.tokens import digest
from penstock.control.config import Limits, ServerConfig
from penstock.control.store import access, history, runs
from penstock.control.supervisor.health import Health
from penstock.control.supervisor.ports import Run
from penstock.control.supervisor.watched import Live
from penstock.reports.folder import RunFolder
from penstock.reports.values import Executor
from penstock.runner.logs import RunLog
from penstock.runner.spark_log import Record

RUN = Run("r0123456789ab", "a", 1, 1, "local", T0)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "EVERY", 0.02)


@contextmanager
def stream(address: str, token: str, **headers: str) -> Iterator[Iterator[tuple[str, Any]]]:
    asked = {"Authorization": f"Bearer {token}", **headers}
    with httpx.Client(timeout=10) as client, client.stream("GET", address, headers=asked) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        yield _events(answer)


def _events(answer: httpx.Response) -> Iterator[tuple[str, Any]]:
    kind = ""
    for line in answer.iter_lines():
        if line.startswith("event:"):
            kind = line.partition(":")[2].strip()
        elif line.startswith("data:"):
            yield kind, json.loads(line.partition(":")[2])


def event(server: Server, text: str, pipeline: str = "a") -> None:
    with server.store.writing() as connection:
        history.add_event(connection, "x", text, now=T0, pipeline=pipeline)


def test_events_come_as_they_happen_and_go_on_where_they_were_left(server: Server) -> None:
    server.client(Role.AUTHOR).apply("a", labels="{team: news}")
    server.client(Role.AUTHOR).apply("b")
    token = server.token(Role.VIEWER, {"team": "news"})
    with listening(server) as address:
        with stream(f"{address}/api/v1/events/stream", token) as events:
            event(server, "not for you", "b")
            event(server, "one")
            kind, first = next(events)
            assert (kind, first["text"]) == ("event", "one")
            event(server, "two")
            assert next(events)[1]["text"] == "two"
        with stream(f"{address}/api/v1/events/stream", token, **{"Last-Event-ID": str(first["id"])}) as events:
            assert next(events)[1]["text"] == "two"


def test_states_come_when_they_change(server: Server) -> None:
    server.client(Role.AUTHOR).apply("a")
    with (
        listening(server) as address,
        stream(f"{address}/api/v1/stream?pipeline=a", server.token(Role.VIEWER)) as events,
    ):
        assert next(events)[1]["state"] == "STOPPED"
        server.live["a"] = Live("a", Health("RUNNING", "it advances", 3.0), RUN, None)
        kind, found = next(events)
        assert (kind, found["run"], found["secondsLeft"]) == ("pipeline", RUN.id, 3.0)


def write(folder: RunFolder, *texts: str, level: str = "info") -> None:
    folder.make()
    with folder.lines.open("a") as file:
        for text in texts:
            line = {"at": T0.isoformat(), "level": level.upper(), "logger": "x", "text": text}
            file.write(json.dumps(line) + "\n")


@pytest.fixture
def logs(server: Server) -> RunFolder:
    server.client(Role.AUTHOR).apply("a")
    with server.store.writing() as connection:
        runs.put(connection, [RUN])
    return RunFolder(server.services.folder.run("a", RUN.id))


def test_logs_are_found_by_level_time_and_text(server: Server, logs: RunFolder) -> None:
    write(logs, "one", "Two words")
    write(logs, "bad", level="error")
    write(logs, "noise", level="debug")
    viewer = server.client(Role.VIEWER)

    def found(query: str) -> list[str]:
        return [line["text"] for line in viewer.get(f"/api/v1/pipelines/a/logs?{query}").json()]

    assert found("") == ["one", "Two words", "bad"]
    assert found("level=debug") == ["one", "Two words", "bad", "noise"]
    assert found("level=error") == ["bad"]
    assert found("grep=two%20W") == ["Two words"]
    assert found("grep=w.*s") == []
    assert found("limit=1") == ["bad"]
    assert found("since=2026-03-01T12:00:01Z") == []
    assert found(f"run={RUN.id}&limit=1") == ["bad"]
    assert viewer.get("/api/v1/pipelines/a/logs?run=r00000000000b").status_code == 404


def test_logs_of_another_pipeline_are_not_reached_by_its_run(server: Server, logs: RunFolder) -> None:
    write(logs, "secret of a")
    server.client(Role.AUTHOR).apply("b", labels="{team: news}")
    limited = server.client(Role.VIEWER, {"team": "news"})
    assert limited.get(f"/api/v1/pipelines/b/logs?run={RUN.id}").status_code == 404


def test_lines_come_as_they_are_written(server: Server, logs: RunFolder) -> None:
    write(logs, "before")
    token = server.token(Role.VIEWER)
    with listening(server) as address:
        since = "&since=2020-01-01T00:00:00Z"
        with stream(f"{address}/api/v1/logs/stream?pipeline=a{since}", token) as lines:
            assert next(lines)[1]["text"] == "before"
            write(logs, "after")
            kind, line = next(lines)
            assert (kind, line["pipeline"], line["run"], line["text"]) == ("log", "a", RUN.id, "after")
            newer = Run(**{**vars(RUN), "id": "r00000000000c"})
            write(RunFolder(server.services.folder.run("a", newer.id)), "of the next run")
            with server.store.writing() as connection:
                runs.put(connection, [newer])
            assert next(lines)[1]["text"] == "of the next run"
        unknown = httpx.get(
            f"{address}/api/v1/logs/stream?pipeline=nobody", headers={"Authorization": f"Bearer {token}"}
        )
        assert unknown.status_code == 404


def test_a_stream_goes_on_where_an_earlier_one_was_left_through_all_runs_since(server: Server, logs: RunFolder) -> None:
    write(logs, "one", "two", "three", "four")
    token = server.token(Role.VIEWER)
    listed = server.client(Role.VIEWER).get("/api/v1/pipelines/a/logs").json()
    after = f"{RUN.id}:{listed[1]['position']}"
    with listening(server) as address:
        url = f"{address}/api/v1/logs/stream?pipeline=a"
        with stream(f"{url}&after={after}", token) as lines:
            third = next(lines)[1]
            assert third["text"] == "three"
        write(logs, "five", "six")
        for number in ("c", "d"):
            newer = Run(**{**vars(RUN), "id": f"r00000000000{number}"})
            write(RunFolder(server.services.folder.run("a", newer.id)), f"of run {number}")
            with server.store.writing() as connection:
                runs.put(connection, [newer])
        after = f"{RUN.id}:{third['position']}"
        with stream(f"{url}&after={after}&after=r00000000ffff:1.5", token) as lines:
            assert [next(lines)[1]["text"] for _ in range(5)] == ["four", "five", "six", "of run c", "of run d"]
        with stream(f"{url}&whole=true", token) as lines:
            assert next(lines)[1]["text"] == "of run d"
        refused = httpx.get(f"{url}&after=../x:1", headers={"Authorization": f"Bearer {token}"})
        assert refused.status_code == 422


def test_the_last_lines_of_a_run_come_though_the_next_has_begun(
    server: Server, logs: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_MOST_LINES", 2)
    write(logs, "before")
    with (
        listening(server) as address,
        stream(f"{address}/api/v1/logs/stream?whole=true", server.token(Role.VIEWER)) as lines,
    ):
        assert next(lines)[1]["text"] == "before"
        newer = Run(**{**vars(RUN), "id": "r00000000000c"})
        write(RunFolder(server.services.folder.run("a", newer.id)), "of the next run")
        with server.store.writing() as connection:
            write(logs, "1", "2", "3", "4", "5")
            runs.put(connection, [newer])
        assert [next(lines)[1]["text"] for _ in range(6)] == ["1", "2", "3", "4", "5", "of the next run"]


def test_lines_of_executors_say_where_they_were_written(server: Server, logs: RunFolder) -> None:
    logs.make()
    RunLog(logs.lines).take_record(Record("WARN", "Executor", "slow"), Executor("3", "10.0.0.7"))
    (line,) = server.client(Role.VIEWER).get("/api/v1/pipelines/a/logs").json()
    assert (line["text"], line["executor"]) == ("slow", {"id": "3", "host": "10.0.0.7"})


def test_a_stream_ends_with_its_token(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_CHECKED_SECONDS", 0.0)
    server.client(Role.AUTHOR).apply("a")
    token = server.token(Role.VIEWER)
    with listening(server) as address, stream(f"{address}/api/v1/stream", token) as events:
        next(events)
        with server.store.writing() as connection:
            found = access.token_with_hash(connection, digest(token))
            assert found is not None
            access.revoke_token(connection, found.id, now=T0)
        assert list(events) == []


def test_only_so_many_streams_are_open(tmp_path: Path) -> None:
    server = Server(tmp_path, ServerConfig(limits=Limits(streams=1)))
    server.client(Role.AUTHOR).apply("a")
    token = server.token(Role.VIEWER)
    with listening(server) as address, stream(f"{address}/api/v1/stream", token) as events:
        next(events)
        second = httpx.get(f"{address}/api/v1/stream", headers={"Authorization": f"Bearer {token}"})
        assert (second.status_code, second.json()["code"]) == (409, "REFUSED")
    server.close()
