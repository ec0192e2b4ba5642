"""Two projects on one server: what each sees, and what it may send."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute
from tests.control.api.server import T0, Client, Server, with_state

from penstock.control.api.app import create_app
from penstock.control.auth.roles import Role
from penstock.control.bench import Bench
from penstock.control.config import ServerConfig
from penstock.control.projects import scope_id
from penstock.control.store import access, alerts, failover, history, pipelines, runs
from penstock.control.supervisor.ports import Failover, Failure, Run
from penstock.errors import PenstockError

CANARY = "canaryads"
"""Is in everything of the other project."""
CONFIG: dict[str, Any] = {
    "targets": {"local": {}, f"target-{CANARY}": {}, "spare": {"failover": [f"target-{CANARY}"]}},
    "projects": {
        "news": {
            "labels": {"team": "news"},
            "targets": ["local", "spare"],
            "secrets": {"env": ["NEWS_*"]},
            "addresses": {"hosts": ["news.example.org"]},
            "quotas": {"pipelines": 2},
        },
        CANARY: {
            "labels": {"team": CANARY},
            "targets": [f"target-{CANARY}"],
            "secrets": {"env": ["ADS_*"]},
            "addresses": {"hosts": [f"{CANARY}.example.org"]},
        },
    },
}


def pipeline(name: str, team: str = "news", **more: str) -> str:
    url = more.get("url", "")
    sink = f"postgres: {{url: '{url}', table: t, key: [id]}}" if url else "sqlite: {path: ./out.db, table: t}"
    source = (
        f"files: {{path: {more['path']}}}, format: {{text: {{}}}}"
        if "path" in more
        else (f"memory: {{schema: {{{more.get('column', 'id')}: long}}, rows: []}}")
    )
    labels = more.get("labels", f"{{team: {team}}}")
    return f"""\
apiVersion: penstock/v1
kind: Pipeline
metadata: {{name: {name}, labels: {labels}}}
spec:
  sources:
    rows: {{{source}}}
  sinks:
    out: {{from: rows, {sink}}}
"""


def apply(client: Client, *texts: str, **more: Any) -> Any:
    files = [{"path": f"{number}.yaml", "text": text} for number, text in enumerate(texts)]
    return client.post("/api/v1/apply", {"files": files, **more})


def code(answer: Any) -> str:
    return str(answer.json().get("code", answer.status_code))


class Noted(Bench):
    """Answers with a column that is named for the folder in which the question was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.folders: list[str] = []

    def ask(self, question: Any, access: Any, *, alone: bool = False) -> Any:
        self.folders.append(question["folder"])
        node: dict[str, Any] = {
            "name": "rows",
            "kind": "source",
            "component": "memory",
            "from": [],
            "watermark": None,
            "state": None,
        }
        found = [{**node, "columns": [{"name": f"c{len(self.folders)}", "type": "long"}], "lineage": None}]
        return {"answer": {"nodes": found, "problems": []}}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path, ServerConfig.model_validate(CONFIG))
    server.services = replace(server.services, bench=Noted())
    server.app = create_app(server.services)
    yield server
    server.close()


@pytest.fixture
def news(server: Server) -> Client:
    return server.client(Role.AUTHOR, {"team": "news"})


@pytest.fixture
def ads(server: Server) -> Client:
    return server.client(Role.AUTHOR, {"team": CANARY})


# --- what is seen ------------------------------------------------------------------------------------------


def test_nothing_of_another_project_is_in_the_answer_of_any_route(server: Server, news: Client, ads: Client) -> None:
    name, run = f"p{CANARY}", "r0123456789ab"
    text = pipeline(name, CANARY, column=f"col{CANARY}", url=f"postgresql://u@{CANARY}.example.org/{CANARY}")
    assert apply(ads, text).status_code == 200
    assert apply(news, pipeline("mine")).status_code == 200
    with_state(server, name, f"s{CANARY}")
    target = f"target-{CANARY}"
    with server.store.writing() as connection:
        runs.put(connection, [Run(run, name, 1, 1, target, T0)])
        problem = PenstockError.of("FORBIDDEN", reason=CANARY, advice="").problems[0].as_dict()
        history.add_exceptions(connection, [Failure(name, run, T0, problem)])
        history.add_event(connection, "state", CANARY, now=T0, pipeline=name)
        history.add_event(connection, "notice", f"target '{target}' will be taken away", now=T0)
        alerts.add_silence(
            connection, pipeline=name, rule=None, until=T0 + dt.timedelta(hours=1), by="x", why=CANARY, now=T0
        )
        failover.put_failovers(connection, [Failover(name, target, "spare", T0)])
        access.add_audit(connection, now=T0, who=CANARY, role="author", action="x", what=name)
    own = ("mine", run, "1", "s")
    others = (name, run, "1", f"s{CANARY}")
    asked = 0
    for route in server.app.routes:
        if not isinstance(route, APIRoute) or "GET" not in (route.methods or ()) or route.path.endswith("/stream"):
            continue
        for pipeline_name, of, number, savepoint in (own, others):
            path = route.path.replace("{name}", pipeline_name).replace("{run}", of).replace("{number}", number)
            path = path.replace("{savepoint}", savepoint).replace("{step}", "rows").replace("{operation}", "o1")
            for role in (Role.VIEWER, Role.ADMIN):
                limited = server.client(role, {"team": "news"}).get(path)
                # What was asked for is repeated in the answer; all else is not in it.
                said = limited.text
                for asked_for in (name, f"s{CANARY}") if CANARY in path else ():
                    said = said.replace(asked_for, "")
                assert CANARY not in said, (path, said[:500])
                asked += 1
    assert asked > 100
    assert CANARY in server.client(Role.VIEWER).get("/api/v1/targets").text


def test_projects_and_targets_are_listed_to_those_who_belong_to_them(server: Server, news: Client) -> None:
    assert apply(news, pipeline("mine")).status_code == 200
    (mine,) = news.get("/api/v1/projects").json()
    assert (mine["name"], mine["labels"], mine["pipelines"]) == ("news", {"team": "news"}, {"used": 1, "limit": 2})
    assert [item["name"] for item in news.get("/api/v1/targets").json()] == ["local", "spare"]
    assert news.get("/api/v1/targets").json()[1]["failover"] == []
    everything = server.client(Role.VIEWER).get("/api/v1/projects").json()
    assert [item["name"] for item in everything] == ["news", CANARY, "default"]


# --- what is sent ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"path": "{data}/projects/canaryads/files/x"}, "PATH_NOT_ALLOWED"),
        ({"path": "{data}/files/x"}, "PATH_NOT_ALLOWED"),
        ({"path": "../../canaryads/files/x"}, "PATH_NOT_ALLOWED"),
        ({"path": "{data}/projects/news/files/x"}, "200"),
        ({"path": "./x"}, "200"),
        ({"url": "postgresql://u@canaryads.example.org/db"}, "URL_NOT_ALLOWED"),
        ({"url": "postgresql://u@news.example.org/db"}, "200"),
        ({"url": "postgresql://u:${secret:env/ADS_DB}@news.example.org/db"}, "SECRET_NOT_ALLOWED"),
        ({"url": "postgresql://u:${secret:env/NEWS_DB}@news.example.org/db"}, "200"),
        # Whatever labels a draft has, it is judged by the rules of its sender.
        ({"url": "postgresql://u@canaryads.example.org/db", "labels": "{team: canaryads}"}, "URL_NOT_ALLOWED"),
        ({"url": "postgresql://u@canaryads.example.org/db", "labels": "{}"}, "URL_NOT_ALLOWED"),
    ],
)
def test_a_file_names_only_what_its_project_may_use(
    server: Server, news: Client, more: dict[str, str], expected: str
) -> None:
    data = str(server.services.folder.path)
    text = pipeline("mine", **{key: value.replace("{data}", data) for key, value in more.items()})
    file = {"path": "p.yaml", "text": text}
    assert code(news.post("/api/v1/validate", {"files": [file]})) == expected
    explained = news.post("/api/v1/explain", {"file": file}).json()
    codes = [item["code"] for item in explained["problems"]] or ["200"]
    assert codes[0] == expected
    if expected == "200":
        bench = server.services.bench
        assert isinstance(bench, Noted)
        assert bench.folders[-1] == f"{data}/projects/news/files"


def test_targets_of_others_are_not_there(server: Server, news: Client) -> None:
    answer = apply(news, pipeline("mine"), target=f"target-{CANARY}")
    assert (answer.status_code, code(answer)) == (422, "TARGET_UNKNOWN")
    assert answer.json()["detail"] == "Known: local, spare."
    assert apply(news, pipeline("mine"), target="spare").status_code == 200
    started = news.post("/api/v1/pipelines/mine/start", {"target": f"target-{CANARY}"})
    assert code(started) == "TARGET_UNKNOWN"
    # To somebody who sees all of them it is told as it is.
    whole = server.client(Role.AUTHOR)
    assert code(whole.post("/api/v1/pipelines/mine/start", {"target": f"target-{CANARY}"})) == "TARGET_NOT_ALLOWED"


def test_a_pipeline_does_not_take_its_rows_to_another_project(server: Server) -> None:
    whole = server.client(Role.AUTHOR)
    assert apply(whole, pipeline("moving")).status_code == 200
    assert apply(whole, pipeline("moving", CANARY)).status_code == 200, "it has not run yet"
    with_state(server, "moving", "s")
    answer = apply(whole, pipeline("moving"))
    assert (answer.status_code, code(answer)) == (409, "PROJECT_CHANGE_REFUSED")
    fork = {"file": {"path": "f.yaml", "text": pipeline("forked")}}
    assert code(whole.post("/api/v1/pipelines/moving/savepoints/s/fork", fork)) == "PROJECT_CHANGE_REFUSED"
    cutover = {"file": {"path": "f.yaml", "text": pipeline("moving")}}
    assert code(whole.post("/api/v1/pipelines/moving/cutover", cutover)) == "PROJECT_CHANGE_REFUSED"
    fork = {"file": {"path": "f.yaml", "text": pipeline("forked", CANARY)}}
    assert whole.post("/api/v1/pipelines/moving/savepoints/s/fork", fork).status_code == 202


def test_a_project_has_no_more_pipelines_than_it_may(server: Server, news: Client) -> None:
    assert apply(news, pipeline("one"), pipeline("two")).status_code == 200
    answer = apply(news, pipeline("three"))
    assert (answer.status_code, code(answer)) == (409, "QUOTA_EXCEEDED")
    assert "2 pipelines" in answer.json()["title"]
    assert "has 2 and this would make 3" in answer.json()["title"]
    assert apply(news, pipeline("one", column="other")).status_code == 200
    with_state(server, "one", "s")
    fork = {"file": {"path": "f.yaml", "text": pipeline("three")}}
    assert code(news.post("/api/v1/pipelines/one/savepoints/s/fork", fork)) == "QUOTA_EXCEEDED"
    assert apply(server.client(Role.AUTHOR), pipeline("free", labels="{}")).status_code == 200


def test_what_is_explained_of_a_name_is_not_told_of_the_next_pipeline_of_that_name(
    server: Server, news: Client, ads: Client
) -> None:
    assert apply(ads, pipeline("cachep", CANARY, column="theirs")).status_code == 200
    first = ads.get("/api/v1/pipelines/cachep/explain").json()
    assert ads.get("/api/v1/pipelines/cachep/explain").json() == first
    with server.store.writing() as connection:
        pipelines.forget(connection, "cachep")
    assert apply(news, pipeline("cachep")).status_code == 200
    assert news.get("/api/v1/pipelines/cachep/explain").json() != first
    bench = server.services.bench
    assert isinstance(bench, Noted)
    assert len(bench.folders) == 2


def test_a_token_is_limited_to_a_project_by_its_name(server: Server) -> None:
    admin = server.client(Role.ADMIN)
    made = admin.post("/api/v1/tokens", {"name": "x", "role": "author", "project": "news"})
    assert made.json()["scope"] == {"team": "news"}
    assert code(admin.post("/api/v1/tokens", {"name": "x", "role": "author", "project": "none"})) == "PROJECT_UNKNOWN"
    both = {"name": "x", "role": "author", "project": "news", "scope": {"a": "b"}}
    assert code(admin.post("/api/v1/tokens", both)) == "REQUEST_INVALID"


# --- without a configuration -------------------------------------------------------------------------------


def test_limited_tokens_are_kept_apart_before_projects_are_configured(tmp_path: Path) -> None:
    server = Server(tmp_path, ServerConfig())
    a, b = (server.client(Role.AUTHOR, {"team": team}) for team in "ab")
    whole = server.client(Role.AUTHOR)
    assert apply(a, pipeline("in-a", "a")).status_code == 200
    assert apply(whole, pipeline("unlimited", "a")).status_code == 200
    folders = {
        name: server.services.policies.of(server.services.projects.of(labels, scope)).folder
        for name, labels, scope in (("a", {"team": "a"}, {"team": "a"}), ("none", {"team": "a"}, None))
    }
    assert folders == {
        "a": tmp_path / "projects" / scope_id({"team": "a"}) / "files",
        "none": tmp_path / "files",
    }
    with server.store.reading() as connection:
        assert [found.scope for found in pipelines.every(connection)] == [{"team": "a"}, None]
    reaching = pipeline("in-b", "b", path=str(folders["a"] / "rows.txt"))
    assert code(apply(b, reaching)) == "PATH_NOT_ALLOWED"
    assert code(apply(b, pipeline("in-b", "b", path=str(folders["none"] / "rows.txt")))) == "PATH_NOT_ALLOWED"
    # What an unlimited token made has the rights of unlimited ones.
    assert code(apply(a, pipeline("unlimited", "a", column="other"))) == "FORBIDDEN"
    assert a.post("/api/v1/pipelines/unlimited/stop").status_code == 200
    assert apply(whole, pipeline("in-a", "a", column="other")).status_code == 200
    server.close()
