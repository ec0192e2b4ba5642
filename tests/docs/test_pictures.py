"""The pictures of the guides: drawn by the script beside them, readable, and true to what the guides test."""

from __future__ import annotations

import ast
import datetime as dt
import importlib.util
import re
import sys
from types import ModuleType
from typing import Any

import pytest
from ruamel.yaml import YAML
from tests.docs.pages import PAGES, ROOT, Block, blocks_of, without_blocks

FOLDER = ROOT / "docs" / "pictures"
GUIDES = ROOT / "docs" / "guides"
NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("penstock_pictures", FOLDER / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


MAKE = script()
PICTURES = sorted(MAKE.PICTURES)


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_as_the_script_draws_it(name: str) -> None:
    assert (FOLDER / name).read_text("utf-8") == MAKE.PICTURES[name]().svg(), "run docs/pictures/make.py"


@pytest.mark.parametrize("name", PICTURES)
def test_texts_of_a_picture_stand_apart_and_nothing_is_fetched(name: str) -> None:
    picture = MAKE.PICTURES[name]()

    assert picture.overlaps() == []
    assert re.findall(r"https?://[^\"]+", picture.svg()) == ["http://www.w3.org/2000/svg"]


def test_texts_that_overlap_would_be_noticed() -> None:
    picture = MAKE.Picture("two texts", 100)
    picture.text(20, 50, "watermark")
    picture.text(60, 52, "12:01:05")
    picture.text(840, 20, "outside")

    assert picture.overlaps() == [("watermark", "12:01:05"), ("outside", "the edge")]


def test_light_and_dark_colour_the_same_things() -> None:
    assert MAKE.LIGHT.keys() == MAKE.DARK.keys()
    used = {name for draw in MAKE.PICTURES.values() for name in re.findall(r'class="(\w+)"', draw().svg())}
    assert used <= MAKE.LIGHT.keys()


def test_every_picture_is_shown_and_described_somewhere() -> None:
    shown = {
        name: words
        for page in PAGES
        for words, name in re.findall(r"!\[([^\]]*)\]\([./]*pictures/([\w-]+\.svg)\)", without_blocks(page))
    }

    assert sorted(shown) == PICTURES
    assert all(shown.values())


# --- the numbers in the pictures are those that the guides test ----------------------------------------------------


def block(page: str, name: str) -> Block:
    (found,) = [item for item in blocks_of(GUIDES / page) if item.file_name == name]
    return found


def case(page: str, name: str) -> dict[str, Any]:
    (test, *_) = YAML(typ="safe").load(block(page, name).text)["spec"]["tests"]
    found: dict[str, Any] = test
    return found


def seconds(text: str) -> int:
    """How many seconds after noon a time is."""
    return int((dt.datetime.fromisoformat(text) - NOON).total_seconds())


def test_windows_are_those_of_the_guide() -> None:
    test = case("windows-and-late-data.md", "windows.yaml")
    expected = test["expect"]

    assert {row["id"]: seconds(row["ts"]) for row in test["given"]["views"]} == MAKE.VIEWS
    for step, drawn in (("tumbling", MAKE.tumbling()), ("sliding", MAKE.sliding()), ("sessions", MAKE.sessions())):
        assert [(seconds(row["window_start"]), row["views"]) for row in expected[step]] == [
            (start, views) for start, _, views in drawn
        ]
    assert [seconds(row["window_end"]) for row in expected["sessions"]] == [end for _, end, _ in MAKE.sessions()]


def test_late_rows_are_those_of_the_guide() -> None:
    text = block("windows-and-late-data.md", "test_policies.py").text
    (batches,) = [
        ast.literal_eval(node.value)
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "BATCHES"
    ]

    assert [{id: seconds(f"2024-05-01T{time}Z") for id, time in batch.items()} for batch in batches] == [*MAKE.BATCHES]


def test_rolling_numbers_are_those_of_the_guide() -> None:
    test = case("rolling-features.md", "reading.yaml")
    given = [(seconds(row["ts"]), row["article"]) for row in test["given"]["views"]]
    expected = [(row["views_1m"], row["articles_1m"]) for row in test["expect"]["enriched"]]

    assert given == [*MAKE.READS]
    assert expected == [(views, articles) for _, views, articles in MAKE.trailing()]
