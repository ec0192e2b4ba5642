"""Desired state over the API."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.control.api.server import T0, Server
from tests.control.files import PYTHON, yaml
from tests.control.store.databases import url_of

from penstock.control.api import problems
from penstock.control.auth.roles import Role
from penstock.control.config import ServerConfig
from penstock.control.store import history, pipelines, runs
from penstock.control.store.database import Store
from penstock.control.store.history import BatchNumbers
from penstock.control.store.supervision import SupervisorStore
from penstock.control.supervisor.health import Health
from penstock.control.supervisor.ports import Failure, Run, StateChange
from penstock.control.supervisor.watched import Live
from penstock.errors import PenstockError, Problem
from penstock.reports.values import BacklogReport, RunStatus

RUN = Run("r0123456789ab", "a", 1, 1, "local", T0)


def test_a_pipeline_from_its_creation_to_its_end(server: Server) -> None:
    author = server.client(Role.AUTHOR)
    plan = author.post("/api/v1/plan", {"files": [{"path": "a.yaml", "text": yaml("a")}]}).json()
    assert [(step["action"], step["name"]) for step in plan["steps"]] == [("create", "a")]
    assert author.get("/api/v1/pipelines/a").status_code == 404
    assert author.apply("a", plan=plan["checksum"]).json()["steps"][0]["action"] == "create"
    found = author.get("/api/v1/pipelines/a")
    assert found.headers["ETag"] == '"1"'
    expected = {"name": "a", "state": "STOPPED", "desired": "running", "generation": 1, "rowsIn": 0, "rowsOut": 0}
    assert {key: found.json()[key] for key in expected} == expected
    assert found.json()["watermark"] is None
    assert author.apply("a").json()["changes"] is False
    upgraded = author.apply("a", table="u").json()["steps"][0]
    assert (upgraded["action"], upgraded["cost"]) == ("upgrade", "restart")
    (change,) = upgraded["changes"]
    assert (change["path"], change["before"], change["after"]) == ("sinks.out.sqlite.table", "t", "u")
    assert "stays in the old one" in change["reason"]
    versions = author.get("/api/v1/pipelines/a/versions").json()["items"]
    assert [item["number"] for item in versions] == [2, 1]
    assert author.get("/api/v1/pipelines/a/versions/1").json()["text"] == yaml("a")
    assert author.get("/api/v1/pipelines/a/versions/3").status_code == 404
    assert author.post("/api/v1/pipelines/a/stop").json()["desired"] == "stopped"
    assert author.post("/api/v1/pipelines/a/start", {"version": 1}).json()["version"] == 1
    assert author.delete("/api/v1/pipelines/a").json()["deleting"] is True
    assert server.woken == 5
    SupervisorStore(server.store, server.services.folder, "local").load(T0)
    assert author.get("/api/v1/pipelines/a").status_code == 404


def test_a_stale_etag_is_refused_and_nothing_changes(server: Server) -> None:
    author = server.client(Role.AUTHOR)
    author.apply("a")
    author.apply("a", table="u")
    for method, path in (("POST", "/a/stop"), ("POST", "/a/start"), ("DELETE", "/a")):
        answer = author.request(method, f"/api/v1/pipelines{path}", headers={"If-Match": '"1"'})
        assert (answer.status_code, answer.json()["code"]) == (412, "STALE_REVISION")
    assert author.get("/api/v1/pipelines/a").json()["generation"] == 2
    good = author.post("/api/v1/pipelines/a/stop", headers={"If-Match": '"2"'})
    assert (good.status_code, good.headers["ETag"]) == (200, '"3"')


def test_what_was_planned_is_what_is_done(server: Server) -> None:
    author = server.client(Role.AUTHOR)
    files = [{"path": "a.yaml", "text": yaml("a")}]
    plan = author.post("/api/v1/plan", {"files": files}).json()
    author.apply("a", table="other")
    answer = author.post("/api/v1/apply", {"files": files, "plan": plan["checksum"]})
    assert (answer.status_code, answer.json()["code"]) == (409, "REFUSED")


def test_two_applies_at_once_leave_one_whole_result(server: Server) -> None:
    author = server.client(Role.AUTHOR)
    author.apply("a", "b")
    statuses: list[int] = []
    together = threading.Barrier(4)

    def apply(number: int) -> None:
        together.wait()
        statuses.append(author.apply("a", "b", table=f"t{number}").status_code)

    threads = [threading.Thread(target=apply, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(statuses) <= {200, 412}
    texts = [author.get(f"/api/v1/pipelines/{name}/versions?limit=1").json()["items"][0] for name in "ab"]
    tables = [
        author.get(f"/api/v1/pipelines/{item['pipeline']}/versions/{item['number']}")
        .json()["text"]
        .partition("table:")[2]
        for item in texts
    ]
    assert tables[0] == tables[1]


def test_a_mistake_in_a_file_is_told_as_the_command_tells_it(server: Server) -> None:
    text = yaml("a").replace("sqlite:", "sqlit:")
    answer = server.client(Role.AUTHOR).post("/api/v1/apply", {"files": [{"path": "dir/a.yaml", "text": text}]})
    assert answer.status_code == 422
    assert answer.headers["Content-Type"] == "application/problem+json"
    (problem,) = answer.json()["problems"]
    assert problem["code"] == answer.json()["code"] == "COMPONENT_UNKNOWN"
    assert problem["location"] == {"file": "dir/a.yaml", "line": 8, "column": 24}
    assert "'sqlite'" in problem["hint"]


def test_code_is_for_coders(server: Server) -> None:
    files = {"files": [{"path": "p.py", "text": PYTHON}]}
    refused = server.client(Role.AUTHOR).post("/api/v1/apply", files)
    assert (refused.status_code, refused.json()["code"]) == (403, "CODE_NOT_ALLOWED")
    assert server.client(Role.CODER).post("/api/v1/validate", files).json()["names"] == ["coded"]


@pytest.mark.parametrize(
    "name", ["..", "%2e%2e", "..%2f..%2fetc", "a%2fb", "%00", "A", "x" * 64, "'; DROP TABLE pipelines; --", "%ff"]
)
def test_tricks_with_names_find_nothing(server: Server, name: str) -> None:
    for path in (f"/pipelines/{name}", f"/pipelines/{name}/logs", f"/pipelines/a/logs?run={name}", f"/runs/{name}"):
        answer = server.client(Role.ADMIN).get(f"/api/v1{path}")
        assert answer.status_code in (404, 422), (path, answer.text)


def test_pages_hold_everything_once(server: Server) -> None:
    author = server.client(Role.AUTHOR)
    author.apply(*(f"p{number}" for number in range(7)))
    found: list[str] = []
    after = ""
    while True:
        page = author.get(f"/api/v1/pipelines?limit=3{after}").json()
        found += [item["name"] for item in page["items"]]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert found == [f"p{number}" for number in range(7)]
    assert author.get("/api/v1/pipelines?limit=0").status_code == 422
    assert author.get("/api/v1/pipelines?limit=1001").status_code == 422
    assert author.get("/api/v1/events?after=x").status_code == 422


def test_what_a_run_reports_is_part_of_its_pipeline(server: Server) -> None:
    author = server.client(Role.AUTHOR)
    author.apply("a")
    status = RunStatus(
        RUN.id, 1, "x", "running", T0, watermark=123, rows_per_second=7.5, backlog={"views": BacklogReport(9, "rows")}
    )
    server.live["a"] = Live("a", Health("CATCHING_UP", "9 rows wait", 3.0), RUN, status)
    with server.store.writing() as connection:
        runs.put(connection, [RUN])
        history.add_batches(connection, [BatchNumbers("a", RUN.id, 1, T0, 10, 5, 4, dead=1)])
        history.add_exceptions(connection, [Failure("a", RUN.id, T0, Problem("JVM_DIED", {}).as_dict())])
        seen = StateChange("RUNNING", "", T0, 1, "local")
        pipelines.observe(connection, {"a": seen}, default_target="local")
    found = author.get("/api/v1/pipelines/a").json()
    assert (found["state"], found["reason"], found["secondsLeft"]) == ("CATCHING_UP", "9 rows wait", 3.0)
    assert (found["watermark"], found["rowsIn"], found["rowsOut"], found["rowsDead"]) == (123, 5, 4, 1)
    assert found["backlog"] == {"views": {"amount": 9, "unit": "rows"}}
    described = author.get("/api/v1/pipelines/a/description").json()
    assert described["status"]["phase"] == "running"
    assert [run["id"] for run in described["runs"]] == [RUN.id]
    assert described["exceptions"][0]["code"] == "JVM_DIED"
    assert described["document"]["metadata"]["name"] == "a"
    assert author.get(f"/api/v1/runs/{RUN.id}").json()["pipeline"] == "a"
    (batch,) = author.get("/api/v1/pipelines/a/batches").json()["items"]
    assert (batch["rowsIn"], batch["span"]) == (5, 1)
    assert author.get("/api/v1/pipelines/a/batches?since=2026-03-01T12:00:01Z").json()["items"] == []
    assert author.get("/api/v1/pipelines/a/batches?since=2026-03-01T12:00:01").status_code == 422
    assert len(author.get("/api/v1/exceptions").json()["items"]) == 1


def test_a_notice_is_passed_on(server: Server) -> None:
    operator = server.client(Role.OPERATOR)
    answer = operator.post("/api/v1/targets/local/reclaim", {"deadline": "2026-03-01T12:02:00Z"})
    assert answer.status_code == 202
    (notice,) = server.reclaimed
    assert (notice.target, notice.heard_from, notice.at) == ("local", "hook", T0)
    assert operator.delete("/api/v1/targets/local/reclaim").status_code == 204
    assert server.withdrawn == ["local"]
    assert operator.post("/api/v1/targets/none/reclaim").json()["code"] == "TARGET_UNKNOWN"
    (target,) = operator.get("/api/v1/targets").json()
    assert (target["name"], target["kind"], target["default"]) == ("local", "local", True)


def test_silences_over_the_api(server: Server) -> None:
    operator = server.client(Role.OPERATOR)
    operator_of = server.client(Role.AUTHOR)
    operator_of.apply("a")
    made = operator.post("/api/v1/silences", {"pipeline": "a", "rule": "lag", "lasts": "2 hours", "why": "x"}).json()
    assert made["until"] == "2026-03-01T14:00:00Z"
    for wrong in (
        {},
        {"lasts": "1 hour", "until": "2030-01-01T00:00:00Z"},
        {"lasts": "soon"},
        {"until": "2020-01-01T00:00:00Z"},
        {"lasts": "9999999 weeks"},
    ):
        assert operator.post("/api/v1/silences", wrong).status_code == 422, wrong
    assert operator.post("/api/v1/silences", {"pipeline": "none", "lasts": "1 hour"}).status_code == 404
    assert operator.delete(f"/api/v1/silences/{made['id']}").json()["until"] == "2026-03-01T12:00:00Z"
    assert operator.delete("/api/v1/silences/99").status_code == 404


def test_reference_routes_tell_what_pipelines_are_made_of(server: Server) -> None:
    viewer = server.client(Role.VIEWER)
    assert {"kafka", "window", "sqlite"} <= {item["name"] for item in viewer.get("/api/v1/components").json()}
    assert "$schema" in viewer.get("/api/v1/schema").json()
    assert viewer.get("/api/v1/openapi.json").json()["openapi"].startswith("3.1")


# --- bad input and bad days --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"{not json", 400, "REQUEST_INVALID"),
        (b"[]", 422, "REQUEST_INVALID"),
        (b'{"files": [], "abesnt": "delete"}', 422, "REQUEST_INVALID"),
        (b'{"files": [{"path": "a.yaml"}]}', 422, "REQUEST_INVALID"),
        (b'{"files": [{"path": "a.txt", "text": ""}]}', 422, "FILE_KIND_UNKNOWN"),
        (b'{"files": [{"path": "a.yaml", "text": "\\u0000"}]}', 422, "REQUEST_INVALID"),
        (b'{"files": [{"path": "a.yaml", "text": "\\ud800"}]}', 422, "REQUEST_INVALID"),
        (b"\xff\xfe", 400, "REQUEST_INVALID"),
    ],
)
def test_bad_requests_are_told(server: Server, content: bytes, status: int, code: str) -> None:
    headers = {"Content-Type": "application/json"}
    answer = server.client(Role.ADMIN).request("POST", "/api/v1/apply", content=content, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["Content-Type"] == "application/problem+json"


def test_a_body_that_is_too_large_is_refused_whether_it_says_so_or_not(server: Server) -> None:
    admin = server.client(Role.ADMIN)
    large = b'{"files": [' + b" " * 4_000_000 + b"]}"
    answer = admin.request("POST", "/api/v1/apply", content=large)
    assert (answer.status_code, answer.json()["code"]) == (413, "REQUEST_TOO_LARGE")

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(50):
            yield b" " * 100_000

    answer = admin.request("POST", "/api/v1/apply", content=pieces())
    assert (answer.status_code, answer.json()["code"]) == (413, "REQUEST_TOO_LARGE")


def test_a_store_that_is_down_is_said_and_nothing_more(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    viewer = server.client(Role.VIEWER)
    gone = Store("postgresql://someone:canary-password@127.0.0.1:1/db")
    server.app.state.services = replace(server.services, store=gone)
    answer = viewer.get("/api/v1/pipelines")
    assert (answer.status_code, answer.json()["code"]) == (503, "STORE_DOWN")
    assert "canary-password" not in answer.text
    ready = viewer.get("/readyz")
    assert (ready.status_code, ready.json()["troubles"]) == (503, ["the store does not answer"])
    assert viewer.get("/healthz").status_code == 200


def test_what_nobody_expected_shows_no_more_than_a_mark(server: Server) -> None:
    def broken() -> dict[str, Live]:
        raise ZeroDivisionError("canary in a trace")

    server.app.state.services = replace(server.services, live=broken)
    answer = server.client(Role.VIEWER).get("/api/v1/pipelines")
    assert (answer.status_code, answer.json()["code"]) == (500, "INTERNAL")
    assert "canary" not in answer.text
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]


def test_a_server_that_is_not_ready_says_why(server: Server) -> None:
    server.troubles.append("the supervisor has not looked for 30 seconds")
    assert server.client(None).get("/readyz").status_code == 503
    assert server.client(Role.VIEWER).get("/metrics").text == "penstock_up 1\n"


def test_browsers_are_told_to_trust_nothing(server: Server) -> None:
    answers = [server.client(None).get(path) for path in ("/healthz", "/api/v1/whoami", "/nowhere")]
    answers.append(server.client(Role.VIEWER).get("/api/v1/whoami"))
    for answer in answers:
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert "unsafe" not in answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["X-Frame-Options"] == "DENY"
    assert answers[1].headers["Cache-Control"] == "no-store"


def test_a_secret_shows_nowhere(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY", "canary-4711")
    url = "postgresql://u:${secret:env/CANARY}@db/x"
    text = yaml("a").replace(
        "{generator: {dataset: page_views, rows: 100}}", f"{{sql_poll: {{url: '{url}', table: t, order: id}}}}"
    )
    coder = server.client(Role.CODER)
    files = {"files": [{"path": "a.yaml", "text": text}]}
    answers = [coder.post("/api/v1/plan", files), coder.post("/api/v1/apply", files)]
    assert answers[-1].status_code == 200, answers[-1].text
    answers += [coder.post("/api/v1/apply", {"files": [{"path": "a.yaml", "text": text.replace("db/x", "db/y")}]})]
    viewer = server.client(Role.ADMIN)
    paths = ("pipelines", "pipelines/a", "pipelines/a/description", "pipelines/a/versions/1", "events", "audit")
    answers += [viewer.get(f"/api/v1/{path}") for path in paths]
    for answer in answers:
        assert answer.status_code == 200
        assert "canary-4711" not in answer.text
    assert "${secret:env/CANARY}" in viewer.get("/api/v1/pipelines/a/versions/1").text


def test_the_api_stands_on_postgresql_too(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    server = Server(tmp_path, ServerConfig(), Store(url_of(request.getfixturevalue("postgres_database"))))
    author = server.client(Role.AUTHOR, {"team": "news"})
    assert author.apply("a", labels="{team: news}").status_code == 200
    assert author.get("/api/v1/pipelines?label=team=news").json()["items"][0]["name"] == "a"
    assert author.get("/api/v1/pipelines/%00").status_code in (404, 422)
    assert author.get("/api/v1/events").json()["items"][0]["pipeline"] == "a"
    server.close()


def test_problems_of_several_files_come_together() -> None:
    error = PenstockError([Problem("FILE_EMPTY", {"path": "a"}), Problem("CODE_NOT_ALLOWED", {})])
    assert problems.answer(error, "/x").status_code == 403
