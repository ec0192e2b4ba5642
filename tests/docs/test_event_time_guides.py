"""What the guides on windows, rolling features and joins show, run on Spark."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from tests.docs.pages import ROOT, Block, blocks_of, project_of
from tests.docs.test_examples import functions_of, imported, shell

from penstock.frontends.load import load
from penstock.testing import run_cases

pytestmark = pytest.mark.spark

GUIDES = ROOT / "docs" / "guides"
LATE = GUIDES / "windows-and-late-data.md"
PAGES = [LATE, GUIDES / "rolling-features.md", GUIDES / "joins.md"]


def has_cases(block: Block) -> bool:
    return block.language == "yaml" and "tests" in YAML(typ="safe").load(block.text).get("spec", {})


PIPELINES = [block for page in PAGES for block in blocks_of(page) if has_cases(block)]


@pytest.mark.parametrize("block", PIPELINES, ids=lambda block: str(block.file_name))
def test_the_tests_of_a_pipeline_pass(block: Block, tmp_path: Path) -> None:
    assert block.file_name is not None
    with project_of(block.page, tmp_path) as folder:
        results = list(run_cases(load(folder / block.file_name)))

    assert results
    assert {result.name: result.differences for result in results if not result.passed} == {}


def test_late_rows_fare_as_the_guide_says(tmp_path: Path) -> None:
    with project_of(LATE, tmp_path) as folder:
        module = imported(folder / "test_policies.py")
        outcomes: dict[str, Any] = {}
        policies = {"drop": "drop", "side": "side", "correct": module.ps.Late("correct", allowed="1 hour")}
        outcome = module.outcome

        def kept(late: Any) -> Any:
            """The outcome, computed once: the tests of the guide ask for it again."""
            name = late if isinstance(late, str) else late.policy
            if name not in outcomes:
                outcomes[name] = outcome(late)
            return outcomes[name]

        vars(module)["outcome"] = kept
        shown = {name: column(*kept(late)) for name, late in policies.items()}
        tests = functions_of(module)
        for test in tests.values():
            test()

    assert len(tests) == 3
    assert shown == table("What comes out, side by side:")


def column(given: dict[str, list[int]], late: list[dict[str, Any]], count: int, corrections: int) -> list[str]:
    """What the table of the guide says of one policy."""
    rows = [", ".join(map(str, given[window])) for window in ("12:00", "12:01")]
    return [*rows, ", ".join(row["id"] for row in late) or "none", str(count), str(corrections)]


def table(after: str) -> dict[str, list[str]]:
    """The columns of the table that follows some words in the guide, by their heading; without the first one."""
    lines = LATE.read_text("utf-8").split(after)[1].strip().split("\n\n")[0].splitlines()
    cells = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines if not line.startswith("|--")]
    heading, *rows = cells
    return {name: [row[place] for row in rows] for place, name in enumerate(heading) if place}


@pytest.mark.long
def test_the_commands_of_the_guide_replay_a_late_row(tmp_path: Path) -> None:
    (script,) = [block for block in blocks_of(LATE) if block.language == "sh" and "replay" in block.text]
    (said, shown) = [
        block.text for block in blocks_of(LATE) if block.language == "text" and re.search(r"fed again|\|3", block.text)
    ]
    with project_of(LATE, tmp_path) as folder:
        printed = shell(script.text, folder)

    assert said in printed
    assert printed.endswith(shown)
