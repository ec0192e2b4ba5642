"""One server with four pipelines, and one browser, for all tests of the console."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.console.browser import running_browser
from tests.e2e.serving import Site
from tests.servers.base import Unavailable
from tests.servers.fixtures import missing

from penstock.control.console import FOLDER

if TYPE_CHECKING:
    from playwright.sync_api import Browser

RUNNER = Path(__file__).parent / "live_runner.py"
ENGAGEMENT = """\
# Views of articles, cleaned and counted.
apiVersion: penstock/v1
kind: Pipeline
metadata: {name: NAME, labels: {team: TEAM}}
spec:
  sources:
    views:
      generator: {dataset: page_views, rate: 100}
      eventTime: {column: ts, maxDelay: 5 seconds}
  steps:
    clean: {from: views, filter: ms >= 500}
    articles:
      from: clean
      window: {size: 10 seconds, by: [article], values: {views: count(*)}}
  sinks:
    store: {from: articles, sqlite: {path: ./out/NAME.db, table: articles, key: [window_start, article]}}
    raw: {from: clean, sqlite: {path: ./out/NAME.db, table: raw}}
  alerts:
    - {name: behind, when: watermark_lag > 1 minute, severity: page}
"""


def pipeline(name: str, team: str = "news") -> str:
    return ENGAGEMENT.replace("NAME", name).replace("TEAM", team)


class Console(Site):
    """A server whose runners report as busy ones do."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, fake=True, env={"FAKE_RUNNER": str(RUNNER)})

    @property
    def url(self) -> str:
        return self.server.url

    def send(self, method: str, path: str, content: Any = None, token: str | None = None) -> Any:
        headers = {"Authorization": f"Bearer {token or self.token}"}
        answer = httpx.request(
            method, f"{self.url}/api/v1{path}", json=content, headers=headers, trust_env=False, timeout=30
        )
        assert answer.status_code < 300, answer.text
        return answer.json() if answer.content else None

    def apply(self, *names: str, team: str = "news", **more: Any) -> None:
        files = [{"path": f"{name}.yaml", "text": pipeline(name, team)} for name in names]
        self.send("POST", "/apply", {"files": files, **more})

    def token_of(self, role: str) -> str:
        return str(self.send("POST", "/tokens", {"name": f"the {role}", "role": role})["token"])


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Not for longer: while it is there, the thread has a loop of its own, and others can start none."""
    if not (FOLDER / "index.html").is_file():
        missing("Console", "it has not been built; run `make setup` with Node 20.19 or newer")
    try:
        with running_browser() as found:
            yield found
    except Unavailable as error:
        missing("Chromium", error)


@pytest.fixture(scope="module")
def console(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """`engagement` runs, `reporting` is behind, `route` has failed, `archive` is stopped."""
    console = Console(tmp_path_factory.mktemp("console"))
    with console:
        console.mode("reporting", "behind")
        console.mode("route", "mistake")
        console.apply("engagement", "reporting", "route")
        console.apply("archive", team="shop", start=False)
        console.wait_for("engagement", "RUNNING", seconds=60)
        console.wait_for("reporting", "CATCHING_UP", seconds=60)
        console.wait_for("route", "FAILED", seconds=60)
        yield console
