"""Login by a browser: cookies, sessions of OpenID Connect, and requests that other sites make."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from tests.control.api.server import Client, Server
from tests.control.auth.issuer import CLIENT, SECRET, Issuer, running_issuer

from penstock.control.auth.oidc import Oidc
from penstock.control.auth.roles import Role
from penstock.control.auth.tokens import new_token
from penstock.control.config import OidcSettings, ServerConfig
from penstock.control.projects import accesses_of

REDIRECT = "http://server/api/v1/login/callback"
SAME = {"Origin": "http://server", "Host": "server"}


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with running_issuer() as issuer:
        yield issuer


@pytest.fixture
def with_oidc(tmp_path: Path, issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("OIDC_SECRET", SECRET)
    settings = OidcSettings(
        issuer=issuer.address,
        client_id=CLIENT,
        client_secret="${secret:env/OIDC_SECRET}",
        redirect=REDIRECT,
        roles={"data": Role.OPERATOR},
    )

    def now() -> dt.datetime:
        return dt.datetime.now(dt.UTC)

    server = Server(tmp_path, ServerConfig(oidc=settings), oidc=Oidc(settings, now))
    server.time = now()
    yield server
    server.close()


def cookies(answer: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in answer.cookies.items() if value}


def browser(server: Server, jar: dict[str, str]) -> Client:
    return Client(server.app, {"Cookie": "; ".join(f"{name}={value}" for name, value in jar.items())})


def test_a_token_becomes_a_cookie_that_scripts_and_other_sites_do_not_get(server: Server) -> None:
    answer = server.client(None).post("/api/v1/login", {"token": server.token(Role.VIEWER)}, headers=SAME)
    assert answer.json() == {"who": "the viewer", "role": "viewer"}
    header = answer.headers["Set-Cookie"].lower()
    assert "httponly" in header
    assert "samesite=strict" in header
    assert browser(server, cookies(answer)).get("/api/v1/whoami").json()["role"] == "viewer"
    assert server.client(None).post("/api/v1/login", {"token": new_token()}, headers=SAME).status_code == 401


def code_of(server: Server, role: Role) -> str:
    answer = server.client(role).post("/api/v1/login/links")
    assert (answer.status_code, answer.json()["seconds"]) == (201, 600)
    path, _, code = answer.json()["path"].partition("#code=")
    assert path == "/login"
    return str(code)


def test_a_link_logs_a_browser_in_once_with_the_token_that_asked_for_it(server: Server) -> None:
    code = code_of(server, Role.OPERATOR)
    answer = server.client(None).post("/api/v1/login", {"code": code}, headers=SAME)
    assert answer.json() == {"who": "the operator", "role": "operator"}
    assert cookies(answer)["penstock_session"] == server.token(Role.OPERATOR)
    again = server.client(None).post("/api/v1/login", {"code": code}, headers=SAME)
    assert (again.status_code, again.json()["code"]) == (401, "UNAUTHENTICATED")
    assert "used already" in again.json()["title"]


def test_codes_cannot_be_tried_at_will(server: Server) -> None:
    statuses = [
        server.client(None).post("/api/v1/login", {"code": new_token()}, headers=SAME).status_code for _ in range(11)
    ]
    assert statuses == [401] * 10 + [429]


def test_another_site_cannot_log_a_browser_in(server: Server) -> None:
    headers = {"Host": "server", "Origin": "http://evil.example.org"}
    code = code_of(server, Role.VIEWER)
    assert server.client(None).post("/api/v1/login", {"code": code}, headers=headers).status_code == 403
    assert server.client(None).post("/api/v1/login", {"code": code}, headers=SAME).status_code == 200


def test_a_link_ends_with_its_token(server: Server) -> None:
    admin, code = server.client(Role.ADMIN), code_of(server, Role.VIEWER)
    (token,) = (one["id"] for one in admin.get("/api/v1/tokens").json()["items"] if one["name"] == "the viewer")
    assert admin.delete(f"/api/v1/tokens/{token}").status_code == 200
    assert server.client(None).post("/api/v1/login", {"code": code}, headers=SAME).status_code == 401


def test_links_are_made_and_used_on_the_machine_of_the_server_only(server: Server) -> None:
    header = {"Authorization": f"Bearer {server.token(Role.ADMIN)}"}
    elsewhere = Client(server.app, header, address="10.0.0.7").post("/api/v1/login/links")
    assert (elsewhere.status_code, elsewhere.json()["code"]) == (403, "FORBIDDEN")
    code = code_of(server, Role.ADMIN)
    answer = Client(server.app, SAME, address="10.0.0.7").post("/api/v1/login", {"code": code})
    assert answer.status_code == 401


def test_a_browser_cannot_make_links(server: Server) -> None:
    jar = {"penstock_session": server.token(Role.ADMIN)}
    assert browser(server, jar).post("/api/v1/login/links", headers=SAME).status_code == 403
    assert server.client(None).post("/api/v1/login/links").status_code == 401


@pytest.mark.parametrize("body", [{}, {"token": "a", "code": "b"}, {"token": None}])
def test_a_login_takes_a_token_or_a_code(server: Server, body: dict[str, str | None]) -> None:
    assert server.client(None).post("/api/v1/login", body, headers=SAME).status_code == 422


def test_failed_logins_are_limited(server: Server) -> None:
    statuses = [
        server.client(None).post("/api/v1/login", {"token": new_token()}, headers=SAME).status_code for _ in range(11)
    ]
    assert statuses == [401] * 10 + [429]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (SAME, 202),
        ({"Host": "server", "Sec-Fetch-Site": "same-origin"}, 202),
        ({"Host": "server", "Origin": "http://evil.example.org"}, 403),
        ({"Host": "server", "Origin": "null"}, 403),
        ({"Host": "server", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Host": "server"}, 403),
    ],
)
def test_other_sites_cannot_act_with_a_cookie(server: Server, headers: dict[str, str], status: int) -> None:
    jar = {"penstock_session": server.token(Role.OPERATOR)}
    answer = browser(server, jar).post("/api/v1/targets/local/reclaim", headers=headers)
    assert answer.status_code == status


def come_back(address: str) -> str:
    """Where the issuer sends the browser after the person has logged in."""
    return httpx.get(address).headers["Location"].removeprefix("http://server")


def test_a_person_logs_in_and_out(with_oidc: Server) -> None:
    begun = with_oidc.client(None).get("/api/v1/login/oidc")
    assert begun.status_code == 303
    done = browser(with_oidc, cookies(begun)).get(come_back(begun.headers["Location"]))
    assert (done.status_code, done.headers["Refresh"]) == (200, "0; url=/")
    inside = browser(with_oidc, {"penstock_session": cookies(done)["penstock_session"]})
    who = inside.get("/api/v1/whoami").json()
    assert (who["who"], who["role"]) == ("ann@example.org", "operator")
    (entry,) = with_oidc.client(Role.ADMIN).get("/api/v1/audit").json()["items"]
    assert (entry["who"], entry["action"]) == ("ann@example.org", "login")
    assert inside.post("/api/v1/logout", headers=SAME).status_code == 204
    assert inside.get("/api/v1/whoami").status_code == 401


def test_a_session_ends(with_oidc: Server) -> None:
    begun = with_oidc.client(None).get("/api/v1/login/oidc")
    done = browser(with_oidc, cookies(begun)).get(come_back(begun.headers["Location"]))
    inside = browser(with_oidc, {"penstock_session": cookies(done)["penstock_session"]})
    with_oidc.time += dt.timedelta(hours=7, minutes=59)
    assert inside.get("/api/v1/whoami").status_code == 200
    with_oidc.time += dt.timedelta(minutes=1)
    assert inside.get("/api/v1/whoami").status_code == 401


def test_the_login_of_another_browser_is_of_no_use(with_oidc: Server) -> None:
    begun = with_oidc.client(None).get("/api/v1/login/oidc")
    answer = with_oidc.client(None).get(come_back(begun.headers["Location"]))
    assert (answer.status_code, "penstock_session" in answer.cookies) == (401, False)


def test_a_person_without_a_role_stays_outside(with_oidc: Server, issuer: Issuer) -> None:
    issuer.claims["groups"] = ["visitors"]
    begun = with_oidc.client(None).get("/api/v1/login/oidc")
    answer = browser(with_oidc, cookies(begun)).get(come_back(begun.headers["Location"]))
    assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")


def test_who_logs_in_is_told_how(server: Server, with_oidc: Server) -> None:
    assert server.client(None).get("/api/v1/login").json() == {"oidc": False}
    assert with_oidc.client(None).get("/api/v1/login").json() == {"oidc": True}


def test_without_an_issuer_there_is_no_such_login(server: Server) -> None:
    assert server.client(None).get("/api/v1/login/oidc").status_code == 404
    assert server.client(None).get("/api/v1/login/callback?state=a&code=b").status_code == 404


# --- projects ----------------------------------------------------------------------------------------------


def project_config(issuer: Issuer, groups: dict[str, dict[str, str]]) -> ServerConfig:
    return ServerConfig.model_validate(
        {
            "oidc": {
                "issuer": issuer.address,
                "client_id": CLIENT,
                "client_secret": "${secret:env/OIDC_SECRET}",
                "redirect": REDIRECT,
                "roles": {"boss": "viewer"},
            },
            "projects": {name: {"labels": {"team": name}, "groups": roles} for name, roles in groups.items()},
        }
    )


def test_a_person_sees_their_projects_with_a_role_in_each(
    tmp_path: Path, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OIDC_SECRET", SECRET)
    roles = {"news": {"dev": "author"}, "ads": {"dev": "viewer", "ops": "operator"}, "sport": {"other": "author"}}
    config = project_config(issuer, roles)
    assert config.oidc is not None

    def now() -> dt.datetime:
        return dt.datetime.now(dt.UTC)

    oidc = Oidc(config.oidc, now, accesses=lambda groups: accesses_of(config, groups))
    server = Server(tmp_path, config, oidc=oidc)
    server.time = now()
    coder = server.client(Role.CODER)
    for name in roles:
        assert coder.apply(f"of-{name}", labels=f"{{team: {name}}}").status_code == 200

    issuer.claims["groups"] = ["dev", "unknown"]
    begun = server.client(None).get("/api/v1/login/oidc")
    done = browser(server, cookies(begun)).get(come_back(begun.headers["Location"]))
    inside = browser(server, {"penstock_session": cookies(done)["penstock_session"]})
    inside.headers |= SAME
    who = inside.get("/api/v1/whoami").json()
    assert (who["role"], who["accesses"]) == (
        "author",
        [{"role": "author", "scope": {"team": "news"}}, {"role": "viewer", "scope": {"team": "ads"}}],
    )
    assert [item["name"] for item in inside.get("/api/v1/pipelines").json()["items"]] == ["of-ads", "of-news"]
    assert inside.get("/api/v1/pipelines/of-sport").status_code == 404
    assert inside.post("/api/v1/pipelines/of-news/stop").status_code == 200
    assert inside.post("/api/v1/pipelines/of-ads/stop").status_code == 404
    assert inside.apply("of-news", labels="{team: news}", table="other").status_code == 200
    assert inside.apply("new", labels="{team: ads}").status_code == 403
    assert inside.get("/metrics").status_code == 403

    # What the groups open is read from the configuration of now, not from that of the login.
    changed = project_config(issuer, {**roles, "news": {"dev": "viewer"}, "ads": {"ops": "operator"}})
    server.app.state.services = replace(server.services, config=changed)
    assert inside.post("/api/v1/pipelines/of-news/stop").status_code == 403
    assert [item["name"] for item in inside.get("/api/v1/pipelines").json()["items"]] == ["of-news"]
    server.app.state.services = replace(server.services, config=project_config(issuer, {"news": {"x": "author"}}))
    assert inside.get("/api/v1/whoami").status_code == 401
    server.close()
