"""What the guide on autoscaling shows is what is computed, to the digit."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from tests.capacity.autoscale.test_simulate import DIURNAL, OUTAGE, RECORDED, SPIKES, TRIPLE, day
from tests.docs.pages import ROOT, blocks_of

from penstock.capacity.autoscale.evaluate import Rules, evaluate
from penstock.capacity.autoscale.observe import Observed
from penstock.capacity.autoscale.simulate import Outcome
from penstock.capacity.forecast import BatchCost

GUIDE = ROOT / "docs" / "guides" / "autoscaling.md"
DAYS = {
    "triples for six hours": (TRIPLE, ()),
    "day and night": (DIURNAL, ()),
    "the day of [Do the math](capacity.md#a-day-of-load)": (RECORDED, ()),
    "six peaks of five minutes": (SPIKES, ()),
    "two hours of outage": (DIURNAL, OUTAGE),
}


def table() -> Mapping[str, list[str]]:
    text = GUIDE.read_text("utf-8").partition("| Day | Penstock |")[2]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    return {name: cells for name, *cells in rows if name in DAYS}


def cell(outcome: Outcome) -> str:
    return f"{outcome.core_hours:.0f}, {outcome.changes}, {outcome.over / 60:.0f}"


def test_every_day_of_the_table_is_simulated() -> None:
    assert table().keys() == DAYS.keys()


@pytest.mark.parametrize("name", DAYS)
def test_the_table_holds_what_the_simulation_gives(name: str) -> None:
    found = day(*DAYS[name])

    assert table()[name] == [cell(found[policy]) for policy in ("penstock", "flink", "fixed", "ideal")]


def test_the_formula_is_that_of_the_rules() -> None:
    observed = Observed(0.0, 2, 3200.0, 1.2e6, BatchCost(0.0, 1 / 2900))
    (shown,) = [block.text for block in blocks_of(GUIDE) if block.language == "text"]

    assert shown.strip() == evaluate(observed, Rules(1, 8, restart=40)).in_words


def words(text: str) -> list[str]:
    """Without numbers, units, and what is filled in."""
    plain = re.sub(r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}", " ", text)
    return [word for word in re.findall(r"[a-z]+", re.sub(r"\w*\d\w*", " ", plain)) if word not in ("min", "h", "s")]


def test_the_reasons_of_the_guide_are_those_of_the_rules() -> None:
    source = (ROOT / "src" / "penstock" / "capacity" / "autoscale" / "decide.py").read_text("utf-8")
    given = [words(text) for text in re.findall(r'f?"([^"\n]{20,})"', source)]
    section = GUIDE.read_text("utf-8").partition("## When nothing is advised")[2].partition("## ")[0]
    reasons = re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)

    assert len(reasons) == 10
    assert [reason for reason in reasons if words(reason) not in given] == []
