"""Steps that keep state, one after the other, give what plain Python gives, batch by batch; none finds rows late."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.kernels.join_oracle import IntervalJoinOracle
from tests.kernels.window_oracle import SessionOracle, WindowOracle
from tests.oracle.judges import Chained, Join, Rolling, Windows
from tests.oracle.streams import (
    SECOND,
    START,
    START_MICROS,
    Judge,
    Moment,
    Row,
    Step,
    Verdict,
    check,
    draw_feeds,
    pipeline,
)

from penstock.kernels.aggregate import Aggregate

pytestmark = pytest.mark.spark

SCHEMA = "id: bigint, k: string, n: bigint, ts: timestamp"
COLUMNS = ("id", "k", "n", "ts")
TOTAL = Aggregate("total", "sum", "n")
EVERY = Aggregate("every", "count")


def draw_row(chance: random.Random, number: int) -> Row:
    return {"id": number, "k": chance.choice(["a", "a", "b", None]), "n": chance.choice([0, 1, 2, -7, None])}


def micros(column: str, shift: int = 0) -> Callable[[Row], int]:
    """When a row happened that says so in a column."""

    def time(row: Row) -> int:
        passed: dt.timedelta = row[column] - START
        return START_MICROS + passed // dt.timedelta(microseconds=1) + shift

    return time


class OfLeft:
    """The judge of a step that reads only the first of two sources."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge

    def batch(self, moment: Moment) -> Verdict:
        return self.judge.batch(Moment(moment.number, {"": moment.rows["left"]}, moment.before, moment.watermark))


def windows_of_windows(chance: random.Random) -> list[Step]:
    small, big = chance.choice([(5, 20), (12, 12), (10, 35)])
    first = Windows(WindowOracle(("k",), (TOTAL,), small * SECOND, small * SECOND))
    second = Windows(WindowOracle((), (Aggregate("grand", "sum", "total"), EVERY), big * SECOND, big * SECOND))
    values = "{grand: sum(total), every: count(*)}"
    return [
        Step("small", f"from: left, window: {{size: {small} seconds, by: [k], values: {{total: sum(n)}}}}", None),
        Step(
            "big",
            f"from: small, window: {{size: {big} seconds, values: {values}}}",
            Chained(OfLeft(first), second, micros("window_end", -1)),
        ),
    ]


def windows_of_rolling(chance: random.Random) -> list[Step]:
    over, size, at_once = chance.choice([3, 20]), chance.choice([5, 12]), chance.random() < 0.3
    first = Rolling(("k",), (TOTAL,), over * SECOND, COLUMNS, at_once)
    second = Windows(WindowOracle(("k",), (Aggregate("most", "max", "total"),), size * SECOND, size * SECOND))
    emit = "at once" if at_once else "complete"
    rolling = f"{{by: [k], over: {over} seconds, values: {{total: sum(n)}}, emit: {emit}}}"
    return [
        Step("rolled", f"from: left, rolling: {rolling}", None),
        Step(
            "most",
            f"from: rolled, window: {{size: {size} seconds, by: [k], values: {{most: max(total)}}}}",
            Chained(OfLeft(first), second, micros("ts")),
        ),
    ]


def rolling_of_sessions(chance: random.Random) -> list[Step]:
    gap, over = chance.choice([1, 2, 6]), chance.choice([10, 30])
    first = Windows(SessionOracle(("k",), (EVERY,), gap * SECOND))
    columns = ("k", "window_start", "window_end", "every")
    second = Rolling(("k",), (Aggregate("sessions", "count"),), over * SECOND, columns, at_once=False)
    return [
        Step("visits", f"from: left, window: {{gap: {gap} seconds, by: [k], values: {{every: count(*)}}}}", None),
        Step(
            "recent",
            f"from: visits, rolling: {{by: [k], over: {over} seconds, values: {{sessions: count(*)}}}}",
            Chained(OfLeft(first), second, micros("window_end")),
        ),
    ]


def windows_of_pairs(chance: random.Random) -> list[Step]:
    how = chance.choice(["inner", "left"])
    lower, upper = chance.choice([(0, 12), (-5, 5), (-30, -2), (3, 20)])
    size = chance.choice([5, 12])
    out = ([(name, name) for name in COLUMNS], [("k", "_other_k"), ("n", "r_n"), ("id", "r_id"), ("ts", "r_ts")])
    oracle = IntervalJoinOracle((["k"], ["k"]), how, lower * SECOND, upper * SECOND, out, max_delay=0)
    counts = (EVERY, Aggregate("matched", "count", "r_id"))
    second = Windows(WindowOracle((), counts, size * SECOND, size * SECOND))
    within = f"['{lower} seconds', '{upper} seconds']"
    return [
        Step("pairs", f"from: left, join: {{with: right, on: [k], how: {how}, prefix: r_, within: {within}}}", None),
        Step(
            "counted",
            f"from: pairs, window: {{size: {size} seconds, values: {{every: count(*), matched: count(r_id)}}}}",
            Chained(Join(oracle, ("left", "right"), "k"), second, micros("ts"), hold=max(0, upper) * SECOND),
        ),
    ]


CHAINS = (windows_of_windows, windows_of_rolling, rolling_of_sessions, windows_of_pairs)


def check_chains(folder: Path, seed: int, chains: Sequence[Callable[[random.Random], list[Step]]] = CHAINS) -> None:
    chance = random.Random(seed)
    delay = (5, 0, 10)[seed % 3]
    feeds = draw_feeds(chance, {"left": draw_row, "right": draw_row}, delay, late=seed % 2 == 0)
    steps = [step for chain in chains for step in chain(chance)]
    path = pipeline(folder / "chains.yaml", {"left": SCHEMA, "right": SCHEMA}, delay, steps)
    print(path.read_text(), *feeds, sep="\n")
    check(path, feeds, delay, steps)


def test_chains_give_what_plain_python_gives(tmp_path: Path) -> None:
    check_chains(tmp_path, 0, (windows_of_windows, windows_of_pairs))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1020))
def test_chains_in_many_cases(tmp_path: Path, seed: int) -> None:
    check_chains(tmp_path, seed)
