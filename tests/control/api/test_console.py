"""The console's files: only those that were built, whatever is asked for, and as browsers should keep them."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.control.api.server import Client, Server

from penstock.control.api.routes.console import PAGES
from penstock.control.config import ServerConfig

PAGE = "<!doctype html><title>Penstock</title>"
SCRIPT = "console.log('penstock')"


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Client]:
    """Someone without a token, before a server whose console has one script."""
    (tmp_path / "dist" / "assets").mkdir(parents=True)
    (tmp_path / "dist" / "index.html").write_text(PAGE)
    (tmp_path / "dist" / "icon.svg").write_text("<svg/>")
    (tmp_path / "dist" / "assets" / "main-abc.js").write_text(SCRIPT)
    (tmp_path / "dist" / "assets" / "notes.txt").write_text("not for browsers")
    (tmp_path / "dist" / "secret.js").write_text("beside the assets")
    server = Server(tmp_path, ServerConfig())
    server.services = replace(server.services, console_folder=tmp_path / "dist")
    server.app.state.services = server.services
    yield server.client(None)
    server.close()


def address(page: str) -> str:
    return page.replace("{name}", "engagement").replace("{part}", "logs")


@pytest.mark.parametrize("page", PAGES)
def test_every_address_of_the_console_shows_its_page(browser: Client, page: str) -> None:
    answer = browser.get(address(page))
    assert (answer.status_code, answer.text) == (200, PAGE)
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert answer.headers["Cache-Control"] == "no-cache"


def test_scripts_run_from_this_server_only_and_styles_too(browser: Client) -> None:
    policy = browser.get("/").headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "style-src 'self';" in policy
    assert "unsafe" not in policy


def test_what_the_page_loads_is_kept_for_ever(browser: Client) -> None:
    answer = browser.get("/assets/main-abc.js")
    assert (answer.status_code, answer.text) == (200, SCRIPT)
    assert answer.headers["Content-Type"] == "text/javascript; charset=utf-8"
    assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    assert browser.get("/icon.svg").headers["Content-Type"] == "image/svg+xml"


def test_a_page_that_is_known_is_not_sent_again(browser: Client) -> None:
    known = browser.get("/").headers["ETag"]
    again = browser.get("/alerts", headers={"If-None-Match": known})
    assert (again.status_code, again.content) == (304, b"")
    assert browser.get("/", headers={"If-None-Match": '"other"'}).status_code == 200


def test_files_are_packed_for_those_who_can_unpack_them(browser: Client) -> None:
    packed = browser.get("/assets/main-abc.js", headers={"Accept-Encoding": "gzip, br"})
    assert (packed.headers["Content-Encoding"], packed.text) == ("gzip", SCRIPT)
    assert int(packed.headers["Content-Length"]) == len(gzip.compress(SCRIPT.encode(), mtime=0))
    plain = browser.get("/assets/main-abc.js", headers={"Accept-Encoding": "identity"})
    assert "Content-Encoding" not in plain.headers
    assert plain.headers["Vary"] == "Accept-Encoding"


@pytest.mark.parametrize(
    "path",
    [
        "/assets/",
        "/assets/notes.txt",
        "/assets/none.js",
        "/assets/../secret.js",
        "/assets/..%2fsecret.js",
        "/assets/%2e%2e/secret.js",
        "/assets/%2e%2e%2fsecret.js",
        "/assets/..%5csecret.js",
        "/assets/%2fetc%2fpasswd",
        "/assets/main-abc.js%00.css",
        "/assets//main-abc.js",
        "/secret.js",
        "/index.html",
        "/pipelines/a/b/c",
        "/nothing",
    ],
)
def test_nothing_else_is_found(browser: Client, path: str) -> None:
    answer = browser.get(path)
    assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")


def test_without_a_console_a_page_says_how_to_get_one(server: Server, tmp_path: Path) -> None:
    server.app.state.services = replace(server.services, console_folder=tmp_path / "nowhere")
    answer = server.client(None).get("/")
    assert answer.status_code == 200
    assert "make setup" in answer.text
    assert server.client(None).get("/icon.svg").status_code == 404
