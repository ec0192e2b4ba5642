"""What the guide on savepoints shows, run on Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docs.pages import ROOT, project_of
from tests.docs.test_examples import shell
from tests.docs.test_safety_guides import blocks, squeezed, table_after
from tests.engine.running import course, table
from tests.engine.savepoints.taking import put_back

from penstock.engine.savepoints.take import Wish
from penstock.errors import CODES
from penstock.frontends.load import load
from penstock.graph.build import build
from penstock.runner.savepoints import create

pytestmark = pytest.mark.spark

GUIDE = ROOT / "docs" / "guides" / "savepoints.md"


def written(script: str, folder: Path) -> None:
    """What the guide's `echo` and `rm` do."""
    for line in script.splitlines():
        if line.startswith("rm "):
            (folder / line.removeprefix("rm ")).unlink()
        elif line.startswith("echo "):
            text, _, place = line.removeprefix("echo ").partition("' >")
            with (folder / place.lstrip("> ")).open("a", encoding="utf-8") as file:
                file.write(text.lstrip("'") + "\n")


def test_wrong_rows_are_taken_back_and_state_is_kept_as_the_guide_says(tmp_path: Path) -> None:
    first, wrong, mended, *_ = blocks(GUIDE, "sh")
    with project_of(GUIDE, tmp_path) as folder:
        (folder / "in").mkdir()
        pipeline, state = folder / "visits.yaml", folder / ".penstock" / "visits"
        graph = build(load(pipeline))
        written(first, folder)
        course(graph, state)
        _, saved = create(load(pipeline), state, Wish("good"))
        written(wrong, folder)
        course(graph, state)
        users = table(folder / "visits.db", "SELECT DISTINCT user FROM visits")
        assert ("WRONG",) in users

        written(mended, folder)
        put_back(pipeline, state, saved)
        course(graph, state)
        stored = table(folder / "visits.db", "SELECT id, user, visits_1h FROM visits ORDER BY id")

    assert ["|".join(map(str, row)) for row in stored] == squeezed(blocks(GUIDE, "text")[0])


def test_the_codes_of_the_guide_exist() -> None:
    named = [row[0] for row in table_after(GUIDE, "What is refused, and how it is told:")]

    assert named
    assert [code for code in named if code not in CODES] == []


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_commands_of_the_guide_give_what_it_says(tmp_path: Path) -> None:
    with project_of(GUIDE, tmp_path) as folder:
        printed = [squeezed(shell(script, folder)) for script in blocks(GUIDE, "sh")[:3]]

    shown = squeezed(blocks(GUIDE, "text")[0])
    assert printed[-1][-len(shown) :] == shown
    assert any("all as they were" in line for line in printed[0])
