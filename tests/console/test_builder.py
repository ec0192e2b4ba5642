"""A pipeline built by drag and drop over a real server: seen through the engine before it runs, and running after."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from tests.console.browser import breaches, opened
from tests.console.conftest import Console
from tests.console.test_console import loaded
from tests.e2e.serving import Site

from penstock.testing.processes import until

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Locator, Page


class Real(Console):
    """A server whose runners are real."""

    def __init__(self, folder: Path) -> None:
        config = folder / "server.yaml"
        config.write_text(CONFIG, "utf-8")
        Site.__init__(self, folder, "--config", config, fake=False)

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Waits; if in vain, it tells what has happened instead."""
        try:
            until(condition, what, 300, every=0.5)
        except AssertionError as error:
            happened = [f"{each['at']} {each['text']}" for each in self.ask("/events?pipeline=drawn&limit=30")["items"]]
            raise AssertionError("\n".join([str(error), *happened])) from None


CONFIG = """\
targets:
  local: {master: "local[2]", driverMemory: 768m, conf: {spark.driver.extraJavaOptions: -XX:TieredStopAtLevel=1}}
"""
EDITED = """\
# Drawn by hand, and gone on with.
apiVersion: penstock/v1
kind: Pipeline
metadata: {name: drawn}
spec:
  sources:
    views:
      generator: {dataset: page_views, malformedShare: 0.05, lateShare: 0.2}
      eventTime: {column: ts, maxDelay: 1 second}
  steps:
    filter: {from: views, filter: ms >= 500}
    counts: {from: filter, window: {size: 1 second, by: [country], values: {views: count(*)}}}
  sinks:
    sqlite: {from: filter, sqlite: {path: ./out/drawn.db, table: long_views, key: [id]}}
    counted: {from: counts, sqlite: {path: ./out/drawn.db, table: counts}}
  late: side
"""


@pytest.fixture
def real(browser: Browser, tmp_path: Path) -> Iterator[Real]:
    site = Real(tmp_path)
    with site:
        yield site


def node(page: Page, name: str) -> Locator:
    return page.locator(f'.react-flow__node[data-id="{name}"]')


def drag(page: Page, component: str, x: int, y: int) -> None:
    piece = page.get_by_role("button", name=f"Add {component}", exact=True)
    piece.drag_to(page.locator(".board"), target_position={"x": x, "y": y})


def connect(page: Page, one: str, other: str) -> None:
    """Draws a line from the right edge of a node to the left edge of another."""
    begin = node(page, one).locator(".react-flow__handle.source").bounding_box()
    end = node(page, other).locator(".react-flow__handle.target").bounding_box()
    assert begin is not None
    assert end is not None
    page.mouse.move(begin["x"] + 5, begin["y"] + 5)
    page.mouse.down()
    page.mouse.move(end["x"] - 20, end["y"] + 5, steps=4)
    page.mouse.move(end["x"] + 5, end["y"] + 5, steps=2)
    page.mouse.up()


def text(page: Page) -> str:
    lines = page.locator(".builder-file .cm-line").all_inner_texts()
    return "\n".join("" if line == "\n" else line for line in lines)


def written(page: Page, words: str) -> None:
    """Waits until the file has these words."""
    page.locator(".builder-file .cm-content").filter(has_text=words).wait_for()


@pytest.mark.timeout(1500)
def test_a_pipeline_is_drawn_tried_deployed_and_operated(browser: Browser, real: Real) -> None:
    with opened(browser, real.url, real.token_of("author"), viewport={"width": 1500, "height": 1000}) as page:
        loaded(page, "/new")
        page.get_by_role("button", name="Empty").click()
        page.get_by_text("Drag a source here").wait_for()
        drag(page, "source generator", 120, 80)
        drag(page, "step filter", 360, 80)
        drag(page, "sink sqlite", 600, 80)
        assert "from:" not in text(page)
        connect(page, "generator", "filter")
        written(page, "from: generator")
        connect(page, "filter", "sqlite")
        written(page, "from: filter")

        node(page, "generator").click()
        settings = page.locator(".node-form")
        settings.get_by_label("rows", exact=True).fill("")
        settings.get_by_label("rows", exact=True).press("Enter")
        settings.locator("summary", has_text="more settings").click()
        settings.get_by_label("malformedShare").fill("0.05")
        settings.get_by_label("malformedShare").press("Enter")
        settings.get_by_label("lateShare").fill("0.2")
        settings.get_by_label("lateShare").press("Enter")
        settings.get_by_label("name", exact=True).fill("views")
        settings.get_by_label("name", exact=True).press("Enter")
        node(page, "views").wait_for()
        written(page, "from: views")
        assert "rows:" not in text(page)

        # What is wrong is said at the node and at the line, whether it was typed here or there.
        node(page, "filter").click()
        query = settings.get_by_role("textbox", name="where")
        query.press("Control+a")
        query.press_sequentially("ms >= ")
        node(page, "filter").locator(".badge.attention").wait_for(timeout=120_000)
        query.press("Control+a")
        query.press_sequentially("ms >= 500")
        page.get_by_text("The file is sound").wait_for(timeout=120_000)
        node(page, "filter").locator(".badge.attention").wait_for(state="detached", timeout=120_000)
        page.locator(".wire-label", has_text="columns").first.wait_for(timeout=120_000)
        assert breaches(page) == []

        # Columns are offered, by what the analyser says of the input.
        query.press("Control+a")
        query.press_sequentially("ms >= 500 AND art")
        page.locator(".cm-tooltip-autocomplete", has_text="article").wait_for()
        query.press("Escape")
        query.press("Control+a")
        query.press_sequentially("ms >= 500")

        page.get_by_role("tab", name="Rows").click()
        page.locator(".sample-rows tbody tr").first.wait_for(timeout=180_000)
        header = page.locator(".sample-rows th").all_inner_texts()
        place = next(index for index, title in enumerate(header) if title.startswith("ms"))
        cells = page.locator(f".sample-rows tbody td:nth-child({place + 1})").all_inner_texts()
        assert min(int(cell) for cell in cells) >= 500

        # The file is the same thing: what is written there is drawn here, and a comment stays where it is.
        editor = page.get_by_role("textbox", name="Text of new.yaml")
        editor.press("Control+Home")
        page.keyboard.insert_text("# Drawn by hand.\n")
        page.get_by_role("tab", name="Settings").click()
        node(page, "sqlite").click()
        settings.get_by_label("table").fill("long_views")
        settings.get_by_label("table").press("Enter")
        settings.get_by_label("Take id away").click()
        written(page, "table: long_views")
        assert text(page).startswith("# Drawn by hand.")
        page.get_by_role("button", name="Undo").click()
        written(page, "key: [id]")

        page.get_by_label("Name", exact=True).fill("drawn")
        page.get_by_label("Name", exact=True).press("Enter")
        written(page, "name: drawn")
        page.get_by_text("The file is sound").wait_for(timeout=120_000)
        page.get_by_role("button", name="Deploy").click()
        page.get_by_role("heading", name="drawn").wait_for(timeout=90_000)
        page.locator(".health .badge", has_text="Running").wait_for(timeout=120_000)
        page.locator(".flow-label", has_text="/s").first.wait_for(timeout=120_000)
        before = page.locator(".evidence").inner_text()
        page.wait_for_function("was => document.querySelector('.evidence').innerText !== was", arg=before)

        # A row that cannot be read is there to be looked at, and is fed again.
        page.locator(".evidence a", has_text="dead").click()
        page.get_by_role("table", name="Dead letters").locator("tbody tr").first.wait_for(timeout=90_000)
        page.get_by_role("button", name="Replay…").click()
        again = page.get_by_role("dialog").get_by_role("button", name="Replay")
        page.wait_for_function("() => !document.querySelector('dialog button[type=submit]').disabled")
        again.click()
        page.get_by_text("rows are fed again").wait_for(timeout=90_000)
        page.get_by_role("link", name="Logs").click()
        page.locator(".log .line").first.wait_for()
        saved(page)
        edited(page, real)
    assert real.ask("/pipelines/drawn/versions/1")["text"].startswith("# Drawn by hand.")
    with opened(browser, real.url, real.token_of("viewer")) as page:
        refused(page)


def saved(page: Page) -> None:
    """Takes a savepoint of the pipeline that runs, and verifies it."""
    page.goto("/pipelines/drawn/savepoints")
    page.get_by_role("button", name="Take a savepoint").click()
    page.get_by_role("dialog").get_by_label("Name").fill("before")
    page.get_by_role("dialog").get_by_role("button", name="Take").click()
    page.get_by_role("button", name="Verify before").click(timeout=120_000)
    page.get_by_text("files are as they were written").wait_for(timeout=120_000)


def edited(page: Page, real: Real) -> None:
    """Adds a window to what runs, plans and applies that, and sees the rows that come too late for it."""
    page.goto("/pipelines/drawn/edit")
    editor = page.get_by_role("textbox", name="Text of drawn.yaml")
    editor.press("Control+a")
    # Over a selection the browser itself would write styles into the text.
    editor.press("Delete")
    page.keyboard.insert_text(EDITED)
    page.get_by_text("The file is sound").wait_for(timeout=120_000)
    page.get_by_role("button", name="Plan").click()
    plan = page.get_by_role("region", name="Plan")
    plan.get_by_role("heading", name="upgrade drawn").wait_for(timeout=120_000)
    assert "counts" in plan.locator(".flow-diff .comes").all_inner_texts()[0]
    page.get_by_role("button", name="Apply").click()
    real.until(lambda: real.pipeline("drawn")["version"] == 2, "that it is another version")
    real.until(lambda: real.pipeline("drawn")["rowsLate"] > 0, "rows come late")
    page.goto("/pipelines/drawn/late")
    page.get_by_role("table", name="Late rows").locator("tbody tr").first.wait_for(timeout=120_000)
    page.goto("/pipelines/drawn/batches")
    page.get_by_role("table", name="batches").locator("tbody tr").first.wait_for()


def refused(page: Page) -> None:
    """Somebody who may only look."""
    loaded(page, "/pipelines/drawn")
    assert page.get_by_role("button", name="Stop").count() == 0
    assert page.get_by_role("link", name="Edit").count() == 0
    page.goto("/pipelines/drawn/savepoints")
    page.get_by_text("before").first.wait_for()
    assert page.get_by_role("button", name="Take a savepoint").count() == 0
    page.goto("/pipelines/drawn/edit")
    page.get_by_role("heading", name="You may not edit pipelines").wait_for()
    status = page.evaluate("async () => (await fetch('/api/v1/pipelines/drawn/stop', {method: 'POST'})).status")
    assert status == 403


def test_a_viewer_does_not_build(browser: Browser, console: Console) -> None:
    with opened(browser, console.url, console.token_of("operator")) as page:
        page.goto("/new")
        page.get_by_role("heading", name="You may not add pipelines").wait_for()
        assert page.get_by_role("button", name="Deploy").count() == 0
