"""Costs of batches: known ones are found again in noisy histories, and what cannot be told is not made up."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.capacity.histories import TODAY, TrueCosts, history

from penstock.capacity.fit import BATCH, CHECKPOINT_BYTE, ROW, ROW_OUT, STATE_ROW, CostModel, fit
from penstock.errors import PenstockError


def code_of(error: PenstockError) -> str:
    return error.problems[0].code


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.05, 1.0), st.floats(5e-6, 5e-5))
def test_the_costs_of_a_batch_and_of_a_row_are_found_again(seed: int, batch: float, row: float) -> None:
    found = fit(history(TrueCosts(batch, row), seed=seed), "clicks")

    assert found.cost(ROW) == pytest.approx(row, rel=0.1)
    assert found.seconds({BATCH: 1, ROW: 20_000}) == pytest.approx(batch + row * 20_000, rel=0.05)


def test_error_bars_hold_the_truth_nineteen_times_in_twenty() -> None:
    truth = TrueCosts(0.4, 20e-6)
    models = [fit(history(truth, seed=seed, batches=400, outliers=0), "clicks") for seed in range(200)]

    for term, value in ((BATCH, truth.batch), (ROW, truth.row)):
        within = sum(
            abs(cost.seconds - value) <= cost.bar for each in models for cost in each.costs if cost.term == term
        )
        assert 180 <= within <= 199


def test_results_state_and_checkpoints_have_costs_of_their_own() -> None:
    truth = TrueCosts(0.3, 20e-6, row_out=15e-6, state_row=0.4e-6, checkpoint_byte=8e-9)
    found = fit(
        history(
            truth,
            batches=1500,
            noise=0.03,
            out_ratio=lambda chance, batch: 1.5 if batch % 10 == 0 else 0.0,
            state=lambda batch: 300_000 + 900 * batch,
            bytes_per_row=lambda chance: chance.uniform(20, 400),
        ),
        "clicks",
    )

    assert [cost.term for cost in found.costs] == [BATCH, ROW, ROW_OUT, STATE_ROW, CHECKPOINT_BYTE]
    assert found.cost(ROW) == pytest.approx(truth.row, rel=0.1)
    assert found.cost(ROW_OUT) == pytest.approx(truth.row_out, rel=0.15)
    assert found.cost(STATE_ROW) == pytest.approx(truth.state_row, rel=0.2)
    assert found.cost(CHECKPOINT_BYTE) == pytest.approx(truth.checkpoint_byte, rel=0.15)
    assert found.left_out == ()


def left_out(model: CostModel) -> dict[str, str]:
    return {each.term: each.reason for each in model.left_out}


def test_what_goes_in_step_with_the_rows_is_part_of_the_cost_of_a_row() -> None:
    found = fit(
        history(TrueCosts(checkpoint_byte=10e-9), out_ratio=lambda *_: 1.0, bytes_per_row=lambda _: 100.0), "clicks"
    )

    assert found.cost(ROW) == pytest.approx(20e-6 + 100 * 10e-9, rel=0.05)
    assert "went up and down with the rows" in left_out(found)[CHECKPOINT_BYTE]
    assert "went up and down with the rows" in left_out(found)[ROW_OUT]
    assert left_out(found)[STATE_ROW] == "there were none"


def test_a_cost_that_is_not_there_is_not_found() -> None:
    found = fit(history(bytes_per_row=lambda chance: chance.uniform(20, 400)), "clicks")

    assert left_out(found)[CHECKPOINT_BYTE] == "no cost of its own can be seen"


def test_what_the_history_does_not_hold_is_said() -> None:
    found = fit(history(), "clicks")

    assert left_out(found)[CHECKPOINT_BYTE] == "the history does not say how many there were"


def test_pauses_of_a_machine_do_not_move_the_costs() -> None:
    calm, shaken = (fit(history(seed=7, outliers=share), "clicks") for share in (0.0, 0.1))

    assert shaken.cost(ROW) == pytest.approx(calm.cost(ROW), rel=0.1)


def test_a_history_without_noise_is_explained_to_the_last() -> None:
    found = fit(history(noise=0.0, outliers=0.0), "clicks")

    assert [found.cost(BATCH), found.cost(ROW)] == pytest.approx([0.4, 20e-6])
    assert found.explained == pytest.approx(1.0)
    assert found.scatter == pytest.approx(0.0, abs=1e-9)


def test_the_warm_up_of_each_run_does_not_count() -> None:
    cold = [replace(batch, seconds=batch.seconds * 5) for batch in history(batches=30)]
    warm = [replace(batch, at=batch.at + 60) for batch in history()]

    found = fit([*cold, *warm], "clicks")

    assert found.cost(ROW) == pytest.approx(20e-6, rel=0.1)
    assert found.skipped == 30


def test_batches_with_another_number_of_cores_do_not_count() -> None:
    before = [
        replace(batch, run="r0", at=batch.at - 100_000, seconds=batch.seconds * 2, cores=1) for batch in history()
    ]

    found = fit([*before, *history()], "clicks")

    assert found.cost(ROW) == pytest.approx(20e-6, rel=0.1)


def test_a_short_history_says_how_long_it_needs() -> None:
    with pytest.raises(PenstockError) as caught:
        fit(history(batches=40), "clicks")

    (problem,) = caught.value.problems
    assert problem.code == "HISTORY_TOO_SHORT"
    # The first 30 batches, one in 2 s, are the warm-up; 20 more are needed.
    assert (problem.params["found"], problem.params["least"]) == (10, 30)
    assert problem.params["wait"] == "20 more batches with rows, about 40 seconds at the pace so far"


@pytest.mark.parametrize("batches", [0, 1])
def test_a_history_of_nothing_is_too_short(batches: int) -> None:
    with pytest.raises(PenstockError) as caught:
        fit(history(batches=batches), "clicks")

    assert code_of(caught.value) == "HISTORY_TOO_SHORT"


def test_batches_without_rows_say_nothing() -> None:
    empty = [replace(batch, rows=0) for batch in history()]

    with pytest.raises(PenstockError) as caught:
        fit(empty, "clicks")

    assert code_of(caught.value) == "HISTORY_TOO_SHORT"


def test_batches_that_are_all_alike_do_not_tell_batch_from_row() -> None:
    with pytest.raises(PenstockError) as caught:
        fit(history(rate=lambda at: 5000.0), "clicks")

    assert code_of(caught.value) == "HISTORY_TOO_EVEN"
    assert "between 10,000 and 10,000 rows" in caught.value.problems[0].message


def test_times_that_have_nothing_to_do_with_rows_are_refused() -> None:
    chance = random.Random(3)
    odd = [replace(batch, seconds=chance.uniform(0.5, 1.5)) for batch in history()]

    with pytest.raises(PenstockError) as caught:
        fit(odd, "clicks")

    assert code_of(caught.value) == "HISTORY_TOO_EVEN"


def test_the_range_of_the_history_is_known() -> None:
    batches = history()
    found = fit(batches, "clicks")

    used = [batch for batch in batches if batch.at >= TODAY + 60]
    assert (found.smallest, found.largest) == (min(b.rows for b in used), max(b.rows for b in used))
    assert found.batches == len(used)
