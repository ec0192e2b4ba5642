"""What the guides on exactly once, history and throttling show, run on Spark."""

from __future__ import annotations

import json
import os
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.docs.pages import ROOT, blocks_of, project_of
from tests.docs.test_examples import functions_of, imported, shell
from tests.engine.running import course, table
from tests.faults.victim import committed_rows

from penstock.components.registry import components
from penstock.components.shared.crashpoints import MEANINGS
from penstock.engine.ledger import Ledger
from penstock.frontends.load import load
from penstock.graph.build import build
from penstock.runner.ledger import read_ledger
from penstock.runner.replay import replay_dead
from penstock.testing.crash import CrashTest

pytestmark = pytest.mark.spark

GUIDES = ROOT / "docs" / "guides"
EXACTLY_ONCE, HISTORY, THROTTLING = (GUIDES / f"{name}.md" for name in ("exactly-once", "bootstrapping", "throttling"))


def blocks(page: Path, language: str) -> list[str]:
    return [block.text for block in blocks_of(page) if block.language == language]


def table_after(page: Path, words: str) -> list[list[str]]:
    """The rows of the table that follows some words, without its heading."""
    lines = page.read_text("utf-8").split(words)[1].strip().split("\n\n")[0].splitlines()
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines[2:]]


def squeezed(text: str) -> list[str]:
    """Lines without what only lays them out."""
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


# --- exactly once --------------------------------------------------------------------------------------------------


def write_input(folder: Path) -> None:
    """The rows that the guide writes with `echo`."""
    (folder / "in").mkdir()
    (script, _) = blocks(EXACTLY_ONCE, "sh")
    (folder / "in" / "1.json").write_text("".join(f"{row}\n" for row in re.findall(r"echo '(.*)'", script)), "utf-8")


def test_rows_are_set_aside_and_fed_back_as_the_guide_says(tmp_path: Path) -> None:
    with project_of(EXACTLY_ONCE, tmp_path) as folder:
        write_input(folder)
        state = folder / ".penstock" / "prices"
        course(build(load(folder / "prices.yaml")), state)
        letters = [
            letter
            for place in ("", "sound_sifted", "price_sifted")
            for letter in committed_rows(state / "dead" / place)
        ]
        told = [[json.loads(letter["raw"])["id"], letter["stage"], letter["error"]] for letter in letters]
        assert told == table_after(EXACTLY_ONCE, "as they stand in the dead letters:")
        (entry,) = Ledger(state / "ledger.db").entries()
        assert (entry.rows_in, entry.rows_dead) == ({"paid": 4}, {"paid": 1, "sound": 1, "price": 1})

        mended = load(folder / "mended.yaml")
        fed = replay_dead(mended, state)
        said, shown = blocks(EXACTLY_ONCE, "text")[1:]
        lines = [f"{item.step}: {item.rows} dead letter fed back" for item in fed.steps]
        assert squeezed(said) == [*lines, "the next run takes them in"]
        course(build(mended), state)
        stored = table(folder / "prices.db", "SELECT id, price FROM prices ORDER BY id")
        assert ["|".join("" if value is None else str(value) for value in row) for row in stored] == squeezed(shown)
        assert read_ledger(mended, state).verdict == "sealed"


def test_the_stages_of_dead_letters_are_all_named() -> None:
    named = {row[0] for row in table_after(EXACTLY_ONCE, "This can happen at every\nstage:")}

    assert named == {"parse", "event time", "expectation", "step", "sink"}


def install(folder: Path, env: pytest.MonkeyPatch) -> None:
    """Makes the components that a guide declares known to processes that are started."""
    declared = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
    info = folder / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n", "utf-8")
    lines = [
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in found.items())
        for group, found in declared.items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines), "utf-8")
    env.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH")))))


def crash_test_of_the_guide(tmp_path: Path, env: pytest.MonkeyPatch, change: tuple[str, str] = ("", "")) -> None:
    """Runs the test file of the guide with the sink of the other guide, perhaps changed."""
    with project_of(GUIDES / "adding-a-component.md", tmp_path), project_of(EXACTLY_ONCE, tmp_path) as folder:
        sink = folder / "acme" / "outbox.py"
        before, after = change
        assert before in sink.read_text("utf-8")
        sink.write_text(sink.read_text("utf-8").replace(before, after), "utf-8")
        install(folder, env)
        (test,) = functions_of(imported(folder / "test_outbox.py")).values()
        (tmp_path / "run").mkdir()
        test(tmp_path / "run")  # type: ignore[call-arg]


@pytest.mark.timeout(600)
def test_the_crash_test_of_the_guide_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crash_test_of_the_guide(tmp_path, monkeypatch)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_crash_test_of_the_guide_notices_a_sink_that_does_not_know_its_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    naive = ('f"{batch.id:012d}.jsonl"', 'f"{batch.epoch}-{batch.id:012d}.jsonl"')

    with pytest.raises(AssertionError) as raised:
        crash_test_of_the_guide(tmp_path, monkeypatch, naive)
    assert raised.traceback[-1].name == "nothing_is_there_twice"


def test_every_call_of_the_harness_is_explained() -> None:
    calls = {name for name in vars(CrashTest) if name.startswith(("kill_", "forget_", "finish"))}
    guide = EXACTLY_ONCE.read_text("utf-8")
    testing = (GUIDES / "testing-a-pipeline.md").read_text("utf-8")

    assert [name for name in calls - {"kill_at_random"} if f"`{name}(" not in guide] == []
    assert [point for point in MEANINGS if f"`{point}`" not in testing] == []


# --- history -------------------------------------------------------------------------------------------------------


def test_history_comes_first_as_the_guide_says(tmp_path: Path) -> None:
    with project_of(HISTORY, tmp_path) as folder:
        seen = course(build(load(folder / "reading.yaml")), folder / "state")
        stored = table(folder / "reading.db", "SELECT id, views_1h FROM views ORDER BY id")

    shown = blocks(HISTORY, "text")[0]
    assert [f"{id}|{views}" for id, views in stored] == squeezed(shown)
    phases = [status.phase for status in seen if status.phase != "waiting for data"]
    assert [phase for place, phase in enumerate(phases) if phase not in phases[:place]][:3] == [
        "sorting history",
        "reading history",
        "running",
    ]


# --- throttling ----------------------------------------------------------------------------------------------------


def test_rows_are_paced_as_the_guide_says(tmp_path: Path) -> None:
    with project_of(THROTTLING, tmp_path) as folder:
        course(build(load(folder / "paced.yaml")), folder / "state")
        rows = [entry.rows_in["views"] for entry in Ledger(folder / "state" / "ledger.db").entries()]

    assert (rows[0], sum(rows)) == (2000, 5000)


def test_the_limits_of_sources_are_those_of_the_guide() -> None:
    known: dict[str, Any] = {}
    for name, cls in components("source").items():
        limit = getattr(cls, "batch_limit", None)
        if limit is not None:
            known[name] = (cls.model_fields[limit].alias, f"{cls.model_fields[limit].default:,}")
    told = {name: (key, default.split()[0]) for name, key, default in table_after(THROTTLING, "a limit for one batch:")}

    assert told == known


# --- as a person would run them: minutes, since every command starts a JVM ------------------------------------------


@pytest.mark.long
def test_the_commands_of_the_guide_on_exactly_once_give_what_it_says(tmp_path: Path) -> None:
    ledger, said, shown = blocks(EXACTLY_ONCE, "text")
    with project_of(EXACTLY_ONCE, tmp_path) as folder:
        first, second = (squeezed(shell(script, folder)) for script in blocks(EXACTLY_ONCE, "sh"))

    assert set(squeezed(ledger)) <= set(first)
    assert set(squeezed(said)) <= set(second)
    assert second[-3:] == squeezed(shown)


@pytest.mark.long
def test_the_commands_of_the_guide_on_history_give_what_it_says(tmp_path: Path) -> None:
    (script,) = blocks(HISTORY, "sh")
    with project_of(HISTORY, tmp_path) as folder:
        printed = squeezed(shell(script, folder))
        shutil.rmtree(folder / ".penstock")

    assert printed[-4:] == squeezed(blocks(HISTORY, "text")[0])
