"""What the guides on state and on reprocessing show, run on Spark."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from tests.conftest import Project
from tests.docs.pages import ROOT, project_of
from tests.docs.test_examples import shell
from tests.docs.test_safety_guides import blocks, squeezed, table_after
from tests.engine.running import course, table
from tests.runner.test_reprocess import again

from penstock.cli.reprocess import _time
from penstock.engine.inspection.writing import to_text
from penstock.engine.reprocessing.plan import Wanted
from penstock.errors import CODES
from penstock.frontends.load import load
from penstock.graph.build import build
from penstock.runner.state import overview, shown, target_of
from penstock.testing import shared_session

pytestmark = pytest.mark.spark

STATE, REPROCESSING = (ROOT / "docs" / "guides" / f"{name}.md" for name in ("state", "reprocessing"))


def test_state_is_shown_as_the_guide_says(tmp_path: Path) -> None:
    with project_of(STATE, tmp_path) as folder:
        pipeline = folder / "shop.yaml"
        course(build(load(pipeline)), folder / ".penstock" / "shop")
        target, text = target_of(str(pipeline)), io.StringIO()
        told = overview(target, spark=shared_session())
        with shown(target, "hourly", spark=shared_session()) as hourly:
            writer = to_text(text, "csv", hourly.schema)
            for rows in hourly.tables:
                writer.write(rows)
        with shown(target, "newest", ["ann"], spark=shared_session()) as newest:
            for rows in newest.tables:
                to_text(text, "json", newest.schema).write(rows)

    table_shown, rows_shown = blocks(STATE, "text")[:2]
    steps = [line.split() for line in squeezed(table_shown)[2:]]
    assert [(one.step, str(one.rows), one.kind) for one in told.steps] == [(row[0], row[1], row[-1]) for row in steps]
    assert text.getvalue().splitlines() == rows_shown.splitlines()


def test_a_range_is_computed_again_as_the_guide_says(tmp_path: Path) -> None:
    with project_of(REPROCESSING, tmp_path) as folder:
        course(build(load(folder / "orders.yaml")), folder / ".penstock" / "orders")
        script = blocks(REPROCESSING, "sh")[1]
        words = script.split()
        since, until = (_time(option, words[words.index(option) + 1]) for option in ("--from", "--to"))
        wanted = Wanted(since, until)
        assert again(Project(folder), folder / "mended.yaml", wanted) is not None
        query = script.splitlines()[-1].split('"')[1]
        stored = table(folder / "orders.db", query)

    assert ["|".join(map(str, row)) for row in stored] == squeezed(blocks(REPROCESSING, "text")[0])


@pytest.mark.parametrize("guide", [STATE, REPROCESSING], ids=lambda guide: guide.stem)
def test_the_codes_of_the_guides_exist(guide: Path) -> None:
    named = [row[0] for row in table_after(guide, "What is refused, and how it is told:")]
    assert named
    assert [code for code in named if code not in CODES] == []


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("guide", [STATE, REPROCESSING], ids=lambda guide: guide.stem)
def test_the_commands_of_the_guides_give_what_they_say(guide: Path, tmp_path: Path) -> None:
    with project_of(guide, tmp_path) as folder:
        scripts = blocks(guide, "sh")
        printed = [squeezed(shell(script, folder)) for script in scripts]
        if guide is STATE:
            assert (folder / "hourly.parquet").is_file()

    shown = squeezed(blocks(guide, "text")[-1])
    assert printed[len(scripts) - (2 if guide is STATE else 1)][-len(shown) :] == shown
