"""No route answers without its role, and no role reaches pipelines that are not its own."""

from __future__ import annotations

import datetime as dt
import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from tests.control.api.server import T0, Client, Server, with_state
from tests.control.files import yaml

from penstock.control.api.app import PUBLIC, create_app
from penstock.control.api.guard import refuse_open_routes, role_of
from penstock.control.api.routes.console import PAGES
from penstock.control.auth.roles import Role
from penstock.control.auth.tokens import new_token
from penstock.control.config import Limits, ServerConfig, Target
from penstock.control.store import access, operations
from penstock.control.supervisor.ports import Operation

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
ROLES = list(Role)


def routes(server: Server) -> list[APIRoute]:
    found = [route for route in server.app.routes if isinstance(route, APIRoute)]
    assert len(found) == len(server.app.routes)
    assert len(found) > 40
    return found


def filled(path: str) -> str:
    """The path with something in place of its parameters, which names nothing."""
    path = path.replace("{number}", "7").replace("{run}", "r0123456789ab").replace("{token}", "t0123456789ab")
    return re.sub(r"\{\w+\}", "nobody", path)


def test_every_route_but_the_public_ones_refuses_those_without_a_token(server: Server) -> None:
    asking = server.client(None)
    for route in routes(server):
        for method in route.methods or ():
            answer = asking.request(method, filled(route.path), content=b"{not json")
            if route.path in PUBLIC:
                assert answer.status_code != 500, route.path
            else:
                assert (answer.status_code, answer.json()["code"]) == (401, "UNAUTHENTICATED"), route.path
                assert answer.headers["WWW-Authenticate"] == "Bearer"


def test_every_route_refuses_lesser_roles_and_takes_its_own_and_greater_ones(server: Server) -> None:
    for route in routes(server):
        role = role_of(route)
        if role is None or route.path.endswith("/stream"):
            continue
        for method in route.methods or ():
            for each in ROLES:
                status = server.client(each).request(method, filled(route.path)).status_code
                if each.covers(role):
                    assert status not in (401, 403, 500), (route.path, each)
                else:
                    assert status == 403, (route.path, each)


def test_streams_refuse_too(server: Server) -> None:
    found = [route for route in routes(server) if route.path.endswith("/stream")]
    assert len(found) == 3
    assert all(role_of(route) is Role.VIEWER for route in found)


def test_other_verbs_are_refused(server: Server) -> None:
    asking = server.client(Role.ADMIN)
    known: dict[str, set[str]] = {}
    for route in routes(server):
        known.setdefault(route.path, set()).update(route.methods or ())
    for path, methods in known.items():
        for method in set(METHODS) - methods:
            assert asking.request(method, filled(path)).status_code == 405, (method, path)


def test_what_answers_without_a_token_is_known(server: Server) -> None:
    console = {*PAGES, "/assets/{file}", "/icon.svg"}
    login = {"/api/v1/login", "/api/v1/login/oidc", "/api/v1/login/callback"}
    assert {"/healthz", "/readyz", *login, *console} == PUBLIC
    assert not any(path.startswith("/api/") for path in console)


def test_an_application_with_an_open_route_does_not_start(server: Server) -> None:
    app: FastAPI = create_app(server.services)
    app.get("/api/v1/forgotten")(lambda: "secret")
    with pytest.raises(RuntimeError):
        refuse_open_routes(app, PUBLIC)


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Basic abc", "Bearer pst_x", "pst_" + "x" * 43, "Bearer " + "x" * 5000]
)
def test_malformed_tokens_are_refused(server: Server, header: str) -> None:
    answer = server.client(None).get("/api/v1/whoami", headers={"Authorization": header})
    assert answer.status_code == 401


def test_the_token_in_a_query_is_no_token(server: Server) -> None:
    token = server.token(Role.ADMIN)
    assert server.client(None).get(f"/api/v1/whoami?token={token}&access_token={token}").status_code == 401


def test_expired_and_revoked_tokens_are_refused_at_once(server: Server) -> None:
    admin = server.client(Role.ADMIN)
    made = admin.post("/api/v1/tokens", {"name": "ci", "role": "viewer", "lasts": "1 hour"}).json()
    caller = Client(server.app, {"Authorization": f"Bearer {made['token']}"})
    assert caller.get("/api/v1/whoami").json()["who"] == "ci"
    server.time = T0 + dt.timedelta(hours=1)
    assert caller.get("/api/v1/whoami").status_code == 401
    server.time = T0
    assert admin.delete(f"/api/v1/tokens/{made['id']}").json()["revokedAt"] is not None
    assert caller.get("/api/v1/whoami").status_code == 401


def test_the_text_of_a_token_is_told_once(server: Server) -> None:
    admin = server.client(Role.ADMIN)
    made = admin.post("/api/v1/tokens", {"name": "ci", "role": "viewer"}).json()
    assert made["token"] not in admin.get("/api/v1/tokens").text
    assert made["token"] not in admin.get("/api/v1/audit").text


def test_the_last_admin_cannot_be_revoked(server: Server) -> None:
    admin = server.client(Role.ADMIN)
    (mine,) = [item for item in admin.get("/api/v1/tokens").json()["items"] if item["role"] == "admin"]
    answer = admin.delete(f"/api/v1/tokens/{mine['id']}")
    assert (answer.status_code, answer.json()["code"]) == (409, "REFUSED")
    assert admin.get("/api/v1/whoami").status_code == 200


def test_after_many_failures_an_address_waits_while_good_tokens_open(tmp_path: Path) -> None:
    server = Server(tmp_path, ServerConfig(limits=Limits(failed_logins=3)))
    bad = Client(server.app, {"Authorization": f"Bearer {new_token()}"})
    assert [bad.get("/api/v1/whoami").status_code for _ in range(5)] == [401] * 3 + [429] * 2
    answer = bad.get("/api/v1/whoami")
    assert (answer.json()["code"], answer.headers["Retry-After"]) == ("TOO_MANY_ATTEMPTS", "60")
    assert server.client(Role.VIEWER).get("/api/v1/whoami").status_code == 200
    elsewhere = Client(server.app, bad.headers, address="10.0.0.9")
    assert elsewhere.get("/api/v1/whoami").status_code == 401
    for hours in (-1, 1):
        server.time += dt.timedelta(hours=hours)
        assert bad.get("/api/v1/whoami").headers["Retry-After"] == "60", "setting the time of day changes nothing"
    server.services.attempts.clock = lambda: time.monotonic() + 60
    assert bad.get("/api/v1/whoami").status_code == 401
    server.close()


# --- pipelines of others -----------------------------------------------------------------------------------


@pytest.fixture
def teams(server: Server) -> Server:
    coder = server.client(Role.CODER)
    assert coder.apply("news1", labels="{team: news}").status_code == 200
    assert coder.apply("ads1", labels="{team: ads}").status_code == 200
    return server


def test_others_pipelines_do_not_exist_on_any_route(teams: Server) -> None:
    limited = teams.client(Role.AUTHOR, {"team": "news"})
    unlimited = teams.client(Role.AUTHOR)
    for route in routes(teams):
        if "/api/v1/pipelines/{name}" not in route.path or route.path.endswith("/stream"):
            continue
        path = route.path.replace("{name}", "ads1").replace("{number}", "1")
        for method in sorted(route.methods or ()):
            answer = limited.request(method, path)
            assert (answer.status_code, answer.json()["code"]) == (404, "PIPELINE_UNKNOWN"), route.path
            if method == "GET":
                found = unlimited.request(method, path)
                # What only a run leaves is not there yet, and that is told of pipelines that may be seen.
                missing = ("STATE_MISSING", "SAVEPOINT_UNKNOWN", "CUTOVER_UNKNOWN", "NOT_FOUND", "REQUEST_INVALID")
                assert found.status_code == 200 or found.json()["code"] in missing, route.path


def test_lists_hold_only_what_may_be_seen(teams: Server) -> None:
    limited = teams.client(Role.VIEWER, {"team": "news"})
    everything = teams.client(Role.VIEWER)
    assert [item["name"] for item in limited.get("/api/v1/pipelines").json()["items"]] == ["news1"]
    assert [item["name"] for item in everything.get("/api/v1/pipelines").json()["items"]] == ["ads1", "news1"]
    assert limited.get("/api/v1/pipelines?label=team=ads").json()["items"] == []
    assert {item["pipeline"] for item in limited.get("/api/v1/events").json()["items"]} == {"news1"}
    assert limited.get("/api/v1/events?pipeline=ads1").json()["items"] == []
    for path in ("runs", "exceptions", "alerts", "silences", "failovers"):
        assert limited.get(f"/api/v1/{path}").json() == {"items": [], "next": None}


def test_a_limited_token_applies_within_its_limit_only(teams: Server) -> None:
    limited = teams.client(Role.AUTHOR, {"team": "news"})
    assert limited.apply("ads1", labels="{team: news}").json()["code"] == "FORBIDDEN"
    assert limited.apply("new", labels="{}").status_code == 403
    assert limited.apply("news2", labels="{team: news}").status_code == 200
    pruned = limited.post("/api/v1/apply", {"files": [], "absent": "delete"}).json()
    assert {step["name"] for step in pruned["steps"]} == {"news1", "news2"}


def test_a_limited_admin_cannot_widen_its_limit(teams: Server) -> None:
    limited = teams.client(Role.ADMIN, {"team": "news"})
    assert limited.post("/api/v1/tokens", {"name": "x", "role": "viewer"}).status_code == 403
    for path in ("tokens", "audit"):
        assert limited.get(f"/api/v1/{path}").status_code == 403
    assert limited.get("/metrics").status_code == 403
    assert limited.post("/api/v1/silences", {"lasts": "1 hour"}).status_code == 403
    assert limited.post("/api/v1/targets/local/reclaim").status_code == 403


def test_silences_of_others_cannot_be_ended(teams: Server) -> None:
    made = teams.client(Role.OPERATOR).post("/api/v1/silences", {"pipeline": "ads1", "lasts": "1 hour"}).json()
    assert teams.client(Role.OPERATOR, {"team": "news"}).delete(f"/api/v1/silences/{made['id']}").status_code == 404
    assert teams.client(Role.OPERATOR, {"team": "ads"}).delete(f"/api/v1/silences/{made['id']}").status_code == 200


def test_a_target_may_take_a_higher_role(tmp_path: Path) -> None:
    targets = {"local": Target(), "big": Target(master="yarn", role=Role.ADMIN)}
    server = Server(tmp_path, ServerConfig(targets=targets))
    author = server.client(Role.AUTHOR)
    assert author.apply("a", target="big").status_code == 403
    assert author.apply("a").status_code == 200
    assert author.post("/api/v1/pipelines/a/start", {"target": "big"}).status_code == 403
    assert author.post("/api/v1/pipelines/a/start", {"target": "none"}).json()["code"] == "TARGET_UNKNOWN"
    assert server.client(Role.ADMIN).post("/api/v1/pipelines/a/start", {"target": "big"}).json()["target"] == "big"
    server.close()


# --- the log of changes ------------------------------------------------------------------------------------


def test_every_route_that_changes_something_is_in_the_audit_log(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = server.client(Role.ADMIN)
    replayed = {"running": False, "dryRun": False, "nodes": []}
    following = {
        "file": "versions/1.yaml", "stage": "following", "startedAt": T0.isoformat(), "savepoint": "s", "batch": 1,
        "kept": {}, "begun": [], "stands": 1, "committed": 1, "behind": 0, "following": True,
    }  # fmt: skip

    def told(*question: Any, **_: Any) -> dict[str, Any]:
        return {"answer": dict(following if json.loads(question[-1])["verb"] == "cutover" else replayed)}

    monkeypatch.setattr("penstock.control.api.state.ask", told)

    def changed(method: str, path: str, content: Any = None) -> dict[str, Any]:
        with server.store.writing() as connection:
            ended = (replace(item, ended_at=T0) for item in operations.open_ones(connection))
            operations.put(connection, ended)
        before = len(admin.get("/api/v1/audit?limit=1000").json()["items"])
        answer = admin.request(method, path, json=content)
        assert answer.status_code < 300, answer.text
        entries = admin.get("/api/v1/audit?limit=1000").json()["items"]
        assert len(entries) == before + 1, path
        assert (entries[0]["who"], entries[0]["role"]) == ("the admin", "admin")
        return dict(answer.json()) if answer.content else {}

    done = set()
    for method, path, content in (
        ("POST", "/api/v1/apply", {"files": [{"path": "a.yaml", "text": yaml("a")}]}),
        ("POST", "/api/v1/login/links", None),
        ("POST", "/api/v1/pipelines/{name}/stop", None),
        ("POST", "/api/v1/pipelines/{name}/start", None),
        ("POST", "/api/v1/pipelines/{name}/replay", {"what": "dead"}),
        ("POST", "/api/v1/pipelines/{name}/savepoints", None),
        ("POST", "/api/v1/pipelines/{name}/rescale", {"partitions": 8}),
        ("POST", "/api/v1/pipelines/{name}/accept-gap", {"sink": "out"}),
        ("POST", "/api/v1/pipelines/{name}/upgrade", None),
        ("POST", "/api/v1/pipelines/{name}/savepoints/{savepoint}/verify", None),
        ("POST", "/api/v1/pipelines/{name}/savepoints/{savepoint}/restore", None),
        (
            "POST",
            "/api/v1/pipelines/{name}/savepoints/{savepoint}/fork",
            {"file": {"path": "b.yaml", "text": yaml("b")}},
        ),
        ("DELETE", "/api/v1/pipelines/{name}/savepoints/{savepoint}", None),
        ("POST", "/api/v1/pipelines/{name}/cutover", {"file": {"path": "a.yaml", "text": yaml("a")}}),
        ("POST", "/api/v1/pipelines/{name}/cutover/compare", None),
        ("DELETE", "/api/v1/pipelines/{name}/cutover", None),
        ("POST", "/api/v1/pipelines/{name}/cutover/finish", None),
        ("DELETE", "/api/v1/pipelines/{name}", None),
        ("POST", "/api/v1/targets/{name}/reclaim", None),
        ("DELETE", "/api/v1/targets/{name}/reclaim", None),
    ):
        changed(
            method, path.replace("{name}", "local" if "targets" in path else "a").replace("{savepoint}", "s"), content
        )
        done.add((method, path))
        if path == "/api/v1/apply":
            with_state(server, "a", "s")
    admin.apply("a")
    asked = changed("POST", "/api/v1/pipelines/a/savepoints")
    before = Operation(asked["id"], "a", "savepoint", T0, "ann")
    with server.store.writing() as connection:
        operations.put(connection, [before])
    answer = admin.delete(f"/api/v1/pipelines/a/operations/{asked['id']}")
    assert (answer.status_code, answer.json()["cancelledBy"]) == (202, "the admin")
    assert admin.get("/api/v1/audit").json()["items"][0]["action"] == "pipeline.operation_cancel"
    done.add(("DELETE", "/api/v1/pipelines/{name}/operations/{operation}"))
    silence = changed("POST", "/api/v1/silences", {"lasts": "1 hour"})
    changed("DELETE", f"/api/v1/silences/{silence['id']}")
    token = changed("POST", "/api/v1/tokens", {"name": "x", "role": "viewer"})
    changed("DELETE", f"/api/v1/tokens/{token['id']}")
    done |= {("POST", "/api/v1/silences"), ("DELETE", "/api/v1/silences/{number}")}
    done |= {("POST", "/api/v1/tokens"), ("DELETE", "/api/v1/tokens/{token}")}
    changing = {(next(iter(route.methods or ())), route.path) for route in routes(server)}
    unchanging = {f"/api/v1/{each}" for each in ("plan", "validate", "explain", "preview", "login", "logout")}
    unchanging.add("/api/v1/pipelines/{name}/plan")
    assert {item for item in changing if item[0] != "GET" and item[1] not in unchanging} == done


def test_what_was_refused_is_not_in_the_audit_log(server: Server) -> None:
    server.client(Role.VIEWER).apply("a")
    server.client(Role.AUTHOR).post("/api/v1/pipelines/nobody/start")
    with server.store.reading() as connection:
        assert access.listed_audit(connection).items == ()
