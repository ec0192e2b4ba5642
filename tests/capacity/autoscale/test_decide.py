"""Decisions: when cores are given and taken away, and what speaks against it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.capacity.autoscale.decide import Action, Change, Decision, Memory, decide, started
from penstock.capacity.autoscale.evaluate import Rules
from penstock.capacity.autoscale.observe import Observed
from penstock.capacity.forecast import BatchCost

RULES = Rules(1, 16, restart=40, up_delay=0)
NOON = 12 * 3600.0


def observed(load: float, *, cores: int = 4, lag: float = 0.0, each: float = 1000.0, at: float = NOON) -> Observed:
    """`each`: what a core processes."""
    return Observed(at, cores, load, lag, BatchCost(0.0, 1 / (cores * each)))


def decided(
    load: float, memory: Memory | None = None, rules: Rules = RULES, *, at: float = NOON, **more: float
) -> Decision:
    return decide(observed(load, at=at, **more), memory or Memory(), rules, at)[0]  # type: ignore[arg-type]


def through(
    load: float, rules: Rules = RULES, *, minutes: int, memory: Memory | None = None, **more: float
) -> Decision:
    """The decision after looking once a minute."""
    memory, decision = memory or Memory(), None
    for minute in range(minutes + 1):
        at = NOON + minute * 60
        decision, memory = decide(observed(load, at=at, **more), memory, rules, at)  # type: ignore[arg-type]
        if decision.action in (Action.UP, Action.DOWN):
            break
    assert decision is not None
    return decision


def test_more_cores_are_given_when_they_are_needed() -> None:
    found = decided(6000)

    assert (found.action, found.before, found.after) == (Action.UP, 4, 9)
    assert found.in_words == (
        "load 6,000/s ÷ 0.7 + restart 40 s → 8,700/s; 4 cores give 4,000/s → 9 cores: more is needed, 4 → 9 cores"
    )


def test_a_rise_is_watched_before_more_are_given() -> None:
    rules = replace(RULES, up_delay=120)

    assert decided(6000, rules=rules).why == "more is needed; given in 2 min if that stays so"
    assert through(6000, rules, minutes=10).at == NOON + 120


def test_a_rise_that_does_not_last_changes_nothing() -> None:
    rules = replace(RULES, up_delay=120)
    _, memory = decide(observed(6000), Memory(), rules, NOON)
    _, memory = decide(observed(2800), memory, rules, NOON + 60)
    found, _ = decide(observed(6000), memory, rules, NOON + 120)

    assert found.action is Action.KEEP


def test_within_the_band_nothing_changes() -> None:
    assert decided(2800).action is Action.KEEP
    assert decided(2800).why == "busy for 70%, within 50% to 90%"


def test_the_fewest_cores_that_do_are_kept_however_little_they_do() -> None:
    assert decided(300, cores=1).why == "busy for 30%, and fewer cores would not be enough"


def test_fewer_cores_are_given_after_they_have_been_enough_for_an_hour() -> None:
    assert decided(1000).why.startswith("2 have been enough for 0 s; taken away in 1 h")
    found = through(1000, minutes=120)

    assert (found.action, found.at, found.after) == (Action.DOWN, NOON + 3600, 2)


def test_the_most_that_were_needed_in_that_hour_are_kept() -> None:
    _, memory = decide(observed(1900), Memory(), RULES, NOON)
    found = through(1000, minutes=120, memory=replace(memory, down_since=NOON))

    assert found.after == 3


def test_an_hour_that_was_interrupted_begins_again() -> None:
    _, memory = decide(observed(1000), Memory(), RULES, NOON)
    _, memory = decide(observed(2800), memory, RULES, NOON + 1800)
    found, _ = decide(observed(1000), memory, RULES, NOON + 3700)

    assert found.action is Action.KEEP


def test_no_cores_are_taken_away_while_it_is_catching_up() -> None:
    # 100,000 rows are more than comes in a minute, and little for the cores.
    found = through(1000, minutes=180, lag=100_000.0)

    assert found.action is Action.KEEP
    assert found.why == "fewer cores are never given while it is catching up"


def test_a_change_is_left_alone_until_its_effect_can_be_seen() -> None:
    _, memory = decide(observed(6000), Memory(), RULES, NOON)
    found, _ = decide(observed(16_000, cores=9), memory, RULES, NOON + 300)
    later, _ = decide(observed(16_000, cores=9), memory, RULES, NOON + 341)

    assert (found.action, found.why) == (Action.KEEP, "changed 5 min ago; judged again in 40 s")
    assert later.action is Action.UP


def test_a_start_is_not_judged() -> None:
    memory = started(Memory(), RULES, NOON)

    assert decided(6000, memory, at=NOON + 299).action is Action.KEEP
    assert decided(6000, memory, at=NOON + 300).action is Action.UP


@pytest.mark.parametrize(
    ("excluded", "held"),
    [((11.0, 13.0), True), ((12.5, 13.0), False), ((22.0, 12.5), True), ((22.0, 11.0), False)],
)
def test_nothing_is_changed_in_excluded_times(excluded: tuple[float, float], held: bool) -> None:
    start, end = (hour * 3600 for hour in excluded)
    found = decided(6000, rules=replace(RULES, excluded=((start, end),)))

    assert (found.action is Action.HELD) is held
    assert found.evaluation is not None
    assert found.evaluation.needed == 9


def changes(count: int) -> Memory:
    return Memory(changes=tuple(Change(NOON - 7200 - number, 4, 4, 0.0, 0.0) for number in range(count)), judged=NOON)


def test_there_is_a_most_of_changes_in_a_day() -> None:
    assert decided(6000, changes(7)).action is Action.UP
    assert decided(6000, changes(8)).why == "8 changes in 24 hours are the most that are allowed"


def test_the_last_changes_of_a_day_are_kept_for_more_cores() -> None:
    found = through(1000, minutes=120, memory=changes(6))

    assert found.action is Action.HELD
    assert found.why == "6 changes in 24 hours, and the last ones are kept for more cores"
    assert through(1000, minutes=120, memory=changes(5)).action is Action.DOWN


def test_changes_of_the_day_before_do_not_count() -> None:
    old = Memory(changes=tuple(Change(NOON - 90_000, 4, 4, 0.0, 0.0) for _ in range(8)), judged=NOON)

    assert decided(6000, old).action is Action.UP


def test_cores_that_did_not_help_are_said_not_to_and_no_more_are_given() -> None:
    _, memory = decide(observed(6000), Memory(), RULES, NOON)
    # Nine cores process as little as four did.
    found, memory = decide(observed(6000, cores=9, each=4000 / 9), memory, RULES, NOON + 400)

    assert found.ineffective == ("4 → 9 cores was to bring 5,000 rows/s and brought 0; no more are given for 6 h")
    assert (found.action, found.after) == (Action.HELD, 9)
    later, _ = decide(observed(6000, cores=9, each=4000 / 9), memory, RULES, NOON + 400 + 6 * 3600)
    assert later.action is Action.UP


def test_cores_that_helped_by_half_are_counted_by_half_the_next_time() -> None:
    _, memory = decide(observed(6000), Memory(), RULES, NOON)
    found, memory = decide(observed(6000, cores=9, each=6500 / 9), memory, RULES, NOON + 400)

    assert memory.scaling == pytest.approx(0.5)
    assert found.ineffective is None
    # 8,705 of 6,500: 2,205 more, at 361 instead of 722 for each core.
    assert found.after == 16


def test_an_effect_is_judged_once() -> None:
    _, memory = decide(observed(6000), Memory(), RULES, NOON)
    _, memory = decide(observed(6300, cores=9), memory, RULES, NOON + 400)
    _, after = decide(observed(6300, cores=9, each=10.0), memory, RULES, NOON + 460)

    assert after.scaling == memory.scaling == 1.0


def test_the_limits_are_kept() -> None:
    narrow = replace(RULES, least=3, most=5)

    assert decided(6000, rules=narrow).after == 5
    assert through(100, narrow, minutes=120).after == 3
    assert decided(6000, rules=narrow, cores=5).why == "5 is the most that is allowed, and it is not enough"


def test_a_size_outside_of_the_limits_is_brought_inside() -> None:
    assert decided(100, rules=replace(RULES, least=6)).after == 6
    assert decided(2500, rules=replace(RULES, most=3)).after == 3


def test_too_few_batches_change_nothing() -> None:
    found, _ = decide(None, Memory(), RULES, NOON)

    assert (found.action, found.why) == (Action.KEEP, "too few batches to judge")
