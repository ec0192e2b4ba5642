"""A browser on the console. What a page complains of, such as a breach of its policy, fails the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
from tests.servers.base import program

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page, ViewportSize

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
DESKTOP: ViewportSize = {"width": 1360, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}
AXE = Path(__file__).parents[2] / "console" / "node_modules" / "axe-core" / "axe.min.js"


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Debian's chromium; raises `Unavailable` if it cannot be had."""
    from playwright.sync_api import sync_playwright

    path = program("chromium", (), "chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(path), args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser: Browser, url: str, token: str | None = None, **more: Any) -> Iterator[Page]:
    """A page of its own, logged in if there is a token. It must not have complained when it is closed."""
    context = browser.new_context(base_url=url, viewport=more.pop("viewport", DESKTOP), **more)
    context.set_default_timeout(60_000)
    complaints: list[str] = []
    page = context.new_page()

    def heard(message: ConsoleMessage) -> None:
        if message.type == "error":
            complaints.append(f"{page.url}: {message.text} {message.location}")

    page.on("console", heard)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    try:
        if token is not None:
            log_in(page, url, token)
        yield page
    except BaseException as error:
        error.add_note(f"at {page.url} the page said {complaints}")
        raise
    finally:
        context.close()
    # Answers that refuse are asked for by the tests themselves; the browser tells of them too.
    told = [text for text in complaints if "Failed to load resource" not in text]
    assert told == [], told


def log_in(page: Page, url: str, token: str) -> None:
    """As the login page does it, without the page."""
    answer = httpx.post(f"{url}/api/v1/login", json={"token": token}, headers={"Origin": url}, trust_env=False)
    assert answer.status_code == 200, answer.text
    page.context.add_cookies(
        [
            {"name": name, "value": value, "url": url, "httpOnly": True, "sameSite": "Strict"}
            for name, value in answer.cookies.items()
        ]
    )


def breaches(page: Page) -> list[str]:
    """What keeps people from using the page who do not see it, or not well."""
    page.evaluate(AXE.read_text("utf-8"))
    found: list[dict[str, Any]] = page.evaluate("async () => (await axe.run(document)).violations")
    return [f"{item['id']}: {[node['html'][:160] for node in item['nodes'][:3]]}" for item in found]


def overflow(page: Page) -> int:
    """By how many pixels the page is wider than the screen."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))
