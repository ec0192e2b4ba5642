"""Pictures of every page, light and dark, on a desk and on a phone, for people to look at."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.console.browser import DESKTOP, PHONE, opened
from tests.console.conftest import Console
from tests.console.test_console import PAGES, loaded

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ViewportSize

FOLDER = Path(__file__).parents[2] / "artifacts" / "console"
EMPTY_BYTES = 5000


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("screen", "size"), [("desk", DESKTOP), ("phone", PHONE)])
def test_pictures(browser: Browser, console: Console, screen: str, size: ViewportSize, scheme: str) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    with opened(browser, console.url, viewport=size, color_scheme=scheme) as page:
        page.goto("/login")
        page.get_by_label("Token").wait_for()
        page.screenshot(path=FOLDER / f"login-{screen}-{scheme}.png")
    with opened(browser, console.url, console.token, viewport=size, color_scheme=scheme) as page:
        for path in PAGES:
            loaded(page, path)
            page.wait_for_timeout(600)
            name = path.strip("/").replace("/", "-") or "overview"
            picture = page.screenshot(path=FOLDER / f"{name}-{screen}-{scheme}.png", full_page=True)
            assert len(picture) > EMPTY_BYTES, path
