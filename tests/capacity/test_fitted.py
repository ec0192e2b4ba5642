"""What is said of a running pipeline: limits, size and advice, each with its reason."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.capacity.histories import TrueCosts, history

from penstock.capacity.fitted import Advice, Asked, Fitted, Known, fitted, refuse_unusual
from penstock.errors import PenstockError

USUAL = TrueCosts(0.4, 50e-6)


def exact(known: Known | None = None, asked: Asked | None = None, costs: TrueCosts = USUAL, **more: object) -> Fitted:
    """From a history without noise, with 6,000 rows/s."""
    past = history(costs, noise=0.0, outliers=0.0, **more)  # type: ignore[arg-type]
    return fitted("clicks", past, known or Known(2.0), replace(asked or Asked(), rate=6000.0))


def advice_of(found: Fitted, what: str) -> Advice:
    return next(advice for advice in found.advice if advice.what == what)


def test_the_limit_that_is_reached_first_comes_first() -> None:
    free, limited = exact(), exact(Known(2.0, batch_limit=10_000))

    assert [limit.resource for limit in free.limits] == ["freshness", "cores", "trigger"]
    # Two batches of 30 s: 0.4 s for themselves, and 29.6 s for rows.
    assert free.limits[0].rate == pytest.approx(29.6 / 30 / 50e-6)
    assert free.margin == pytest.approx(29.6 / 30 / 50e-6 / 6000)
    assert limited.limits[0].resource == "batch limit"
    assert limited.limits[0].rate == pytest.approx(10_000 / 0.9)


def test_other_loads_and_an_outage_are_predicted() -> None:
    found = exact()

    today, thrice = found.loads
    assert (today.rate, thrice.rate) == (6000, 18_000)
    assert today.batch_seconds == pytest.approx(1.0)
    # 0.4 s ÷ (1 − 0.9): batches follow one another, 4 s each.
    assert [thrice.batch_seconds, thrice.freshness] == pytest.approx([4.0, 8.0])
    assert found.outage is not None
    # 43.2 M rows, at 14,000 rows/s more than come.
    assert found.outage.caught_up == pytest.approx(43_200_000 / 14_000, rel=1e-6)


def test_a_load_beyond_the_cores_is_said_to_grow_for_ever() -> None:
    found = exact(asked=Asked(factor=4.0))

    assert not found.loads[1].keeps_up
    assert "24,000 rows/s are more than it can process: the backlog grows for ever" in found.warnings
    assert not found.keeps_goals


def test_goals_are_kept_if_loads_are_fresh_and_the_outage_is_caught_up_in_time() -> None:
    assert exact().keeps_goals
    assert not exact(asked=Asked(catch_up=1800)).keeps_goals
    assert not exact(asked=Asked(freshness=5)).keeps_goals


def test_cores_are_only_told_where_it_is_known_how_many_there_are() -> None:
    assert exact(cores=None).cores == ()
    assert any("give --cores" in each for each in exact(cores=None).assumptions)
    # 18,000 rows/s × 50 µs × 2 cores are 1.8 busy cores, of which 70 % may be used.
    assert [needed.cores for needed in exact().cores] == [1, 3]


def test_a_target_is_recommended_for_the_larger_load() -> None:
    found = exact(Known(2.0, partitions=2), state=lambda batch: 1000 + batch)

    assert advice_of(found, "target").advice == "3 cores"
    assert "60% of 3 cores are busy then" in advice_of(found, "target").why
    assert advice_of(found, "partitions").advice == "4"


def test_partitions_are_not_a_matter_without_state() -> None:
    assert [advice.what for advice in exact().advice] == ["trigger", "target"]


def test_a_trigger_is_recommended_that_the_fixed_part_is_a_fifth_of() -> None:
    costly, cheap, hurried = (
        exact(costs=TrueCosts(1.5, 20e-6)),
        exact(),
        exact(costs=TrueCosts(1.5, 20e-6), asked=Asked(freshness=5)),
    )

    assert advice_of(costly, "trigger").advice == "10 s"
    assert "75% of the trigger; then 15%" in advice_of(costly, "trigger").why
    assert advice_of(cheap, "trigger").advice == "keep it"
    assert advice_of(hurried, "trigger").why.endswith("leaves no time for a freshness of 5 s")


def test_growing_state_fills_the_memory_and_the_disk() -> None:
    past = [
        replace(batch, state_bytes=round(1e9 + (batch.at - 1_800_000_000) * 1e9 / 86_400))
        for batch in history(USUAL, noise=0.0, outliers=0.0, batches=4000)
    ]
    found = fitted("clicks", past, Known(2.0, disk_free=5 * 10**9), Asked())

    assert found.state_bytes is not None
    assert found.state_bytes.per_day == pytest.approx(1e9, rel=1e-3)
    assert "31.1 GB in 30 days" in advice_of(found, "memory of RocksDB").why
    assert "the disk is full in 5 days if state keeps growing at this rate" in found.warnings


def test_a_prediction_far_beyond_the_history_is_said_to_be_one() -> None:
    found = exact(asked=Asked(factor=3.2))

    # 19,200 rows/s take batches of 10 s, with 192,000 rows; the largest one had 28,000.
    assert any("6.86 times the largest one of the history" in warning for warning in found.warnings)


@pytest.mark.parametrize("asked", [Asked(factor=0), Asked(outage=-1), Asked(freshness=0), Asked(busy=0), Asked(busy=2)])
def test_what_cannot_be_answered_is_refused(asked: Asked) -> None:
    with pytest.raises(PenstockError) as caught:
        refuse_unusual(asked)

    assert caught.value.code == "USAGE"
