"""One pipeline between looks: advice is noted when it changes, and what people do about it is seen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.capacity.autoscale.decide import Action
from penstock.capacity.fit import MeasuredBatch
from penstock.control.autoscale.track import Look, Track, rules_of
from penstock.spec.scale import DailyTime, ScaleSettings
from penstock.spec.units import Duration

NOON = 1_800_000_000.0 // 86_400 * 86_400 + 43_200
SCALE = ScaleSettings(min=1, max=16)
EACH = 1000.0
"""Rows in a second that a core processes."""


def batches(
    load: float, *, cores: int, run: str = "r1", until: float = NOON, each: float = EACH
) -> list[MeasuredBatch]:
    """One batch in ten seconds, for twenty minutes."""
    rows = round(min(load, cores * each) * 10)
    return [
        MeasuredBatch(run, until - 10 * number, rows / (cores * each), rows, cores=cores)
        for number in range(120, 0, -1)
    ]


def look(load: float, *, cores: int = 2, at: float = NOON, run: str = "r1", waiting: float = 0.0) -> Look:
    return Look(at, run, at - 1200, cores, batches(load, cores=cores, run=run, until=at), waiting)


def test_advice_is_noted_once_with_its_formula() -> None:
    track = Track()
    said = [track.look(look(1900, at=NOON + 60 * minute), SCALE) for minute in range(10)]

    assert [text for text in said if text] == [
        "load 1,900/s ÷ 0.7 + restart 1 min → 2,800/s; 2 cores give 2,000/s → 3 cores: more is needed, 2 → 3 cores"
    ]
    # Two minutes of watching come first.
    assert said[2] is not None
    assert track.decision is not None
    assert (track.decision.action, track.decision.before, track.decision.after) == (Action.UP, 2, 3)


def test_advice_that_still_holds_is_noted_again_after_half_an_hour() -> None:
    track = Track()
    said = [track.look(look(1900, at=NOON + 60 * minute), SCALE) for minute in range(40)]

    assert [minute for minute, text in enumerate(said) if text] == [2, 32]


def test_it_is_said_when_advice_no_longer_holds() -> None:
    track = Track()
    for minute in range(4):
        track.look(look(1900, at=NOON + 60 * minute), SCALE)
    text = track.look(look(1400, at=NOON + 240), SCALE)

    assert text is not None
    assert text.startswith("no change is advised any more: load 1,400/s")
    assert track.look(look(1400, at=NOON + 300), SCALE) is None


def test_nothing_is_said_while_all_is_well() -> None:
    track = Track()

    assert [track.look(look(1400, at=NOON + 60 * minute), SCALE) for minute in range(10)] == [None] * 10


def test_a_size_that_somebody_changed_is_judged_by_its_effect() -> None:
    track = Track()
    for minute in range(4):
        track.look(look(1900, at=NOON + 60 * minute), SCALE)
    # Four cores that process no more than two did.
    start = NOON + 300
    slow = [
        MeasuredBatch("r2", start + 10 * number, 9.5, 19_000, cores=4) for number in range(60)
    ]  # fmt: skip
    calm = track.look(Look(start + 200, "r2", start, 4, slow[:20], 0.0), SCALE)
    text = track.look(Look(start + 600, "r2", start, 4, slow, 0.0), SCALE)

    assert calm is None
    assert text is not None
    assert text.startswith("2 → 4 cores was to bring 2,000 rows/s and brought 0; no more are given for 6 h")


def test_a_restart_takes_as_long_as_the_last_one_took() -> None:
    track = Track()
    track.look(look(1900), SCALE)
    old, start = batches(1900, cores=2), NOON + 90
    new = [MeasuredBatch("r2", start + 10 * number, 9.5, 19_000, cores=2) for number in range(60)]
    track.look(Look(start + 590, "r2", start - 30, 2, [*old, *new], 0.0), SCALE)

    found = track.decision
    track.look(Look(start + 600, "r2", start - 30, 2, [*old, *new], 0.0), SCALE)
    assert found is not None
    assert track.decision is not None
    assert track.decision.evaluation is not None
    # The last batch ended half a second before noon, and the first one after it began 90 seconds after.
    assert track.decision.evaluation.restart == pytest.approx(90.5)


def test_rows_that_wait_are_part_of_the_formula() -> None:
    track = Track()
    for minute in range(4):
        track.look(look(1900, at=NOON + 60 * minute, waiting=1.2e6), SCALE)

    assert track.decision is not None
    assert "lag 1.2 M ÷ 30 min" in track.decision.in_words


def test_where_files_wait_only_rows_that_were_read_count() -> None:
    track = Track()
    track.look(replace(look(1900), waiting=None), SCALE)

    assert track.decision is not None
    assert track.decision.evaluation is not None
    assert track.decision.evaluation.lag == 0


def test_rules_are_those_of_the_file() -> None:
    written = ScaleSettings(
        min=2, max=8, utilisation=0.6, catch_up=Duration(600_000), stabilisation=Duration(120_000),
        down_after=Duration(1_800_000), max_per_day=4, excluded=(DailyTime(1320, 360),),
    )  # fmt: skip
    rules = rules_of(written, restart=40)

    assert (rules.least, rules.most, rules.busy, rules.most_per_day, rules.restart) == (2, 8, 0.6, 4, 40)
    assert (rules.catch_up, rules.stabilisation, rules.down_delay) == (600, 120, 1800)
    assert rules.excluded == ((79_200, 21_600),)
