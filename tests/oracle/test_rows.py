"""Rolling aggregates, first and last rows on Spark are what plain Python gives, with late rows, crashes and stops."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.kernels.small_oracles import Clock, DedupeOracle, LatestOracle
from tests.oracle.judges import Dedupe, Latest, Rolling
from tests.oracle.streams import SECOND, Row, Step, check, draw_feeds, pipeline

from penstock.kernels.aggregate import Aggregate

pytestmark = pytest.mark.spark

SCHEMA = "id: bigint, k: string, j: int, n: bigint, ts: timestamp"
COLUMNS = ("id", "k", "j", "n", "ts")
VALUES = {
    "every": ("count(*)", Aggregate("every", "count")),
    "known": ("count(n)", Aggregate("known", "count", "n")),
    "total": ("sum(n)", Aggregate("total", "sum", "n")),
    "mean": ("avg(n)", Aggregate("mean", "avg", "n")),
    "least": ("min(n)", Aggregate("least", "min", "n")),
    "spread": ("stddev(n)", Aggregate("spread", "stddev", "n")),
    "earliest": ("first(n)", Aggregate("earliest", "first", "n")),
    "newest": ("last(j)", Aggregate("newest", "last", "j")),
    "kinds": ("count_distinct(j)", Aggregate("kinds", "count_distinct", "j")),
}


def draw_row(chance: random.Random, number: int) -> Row:
    """Most rows have the same key."""
    return {
        "id": number,
        "k": chance.choice(["a", "a", "a", "b", "c", None]),
        "j": chance.choice([1, 1, 2, 3, None]),
        "n": chance.choice([0, 1, 2, -7, 1 << 40, None]),
    }


def emit(at_once: bool) -> str:
    return f"emit: {'at once' if at_once else 'complete'}"


def rolling(chance: random.Random, at_once: bool) -> Step:
    by, over = chance.choice([(), ("k",), ("k",), ("k", "j")]), chance.choice([3, 10, 40])
    names = chance.sample(sorted(VALUES), chance.randint(2, 4))
    values = ", ".join(f"{name}: {VALUES[name][0]}" for name in names)
    text = (
        f"from: rows, rolling: {{by: [{', '.join(by)}], over: {over} seconds, values: {{{values}}}, {emit(at_once)}}}"
    )
    aggregates = [VALUES[name][1] for name in names]
    return Step("rolling", text, Rolling(by, aggregates, over * SECOND, COLUMNS, at_once))


def dedupe(chance: random.Random, delay: int, at_once: bool) -> Step:
    by, within = chance.choice([("k",), ("k", "j")]), chance.choice([None, 4, 30] if delay else [4, 30])
    given = "" if within is None else f", within: {within} seconds"
    text = f"from: rows, dedupe: {{by: [{', '.join(by)}]{given}, {emit(at_once)}}}"
    oracle = DedupeOracle(Clock(0), by, COLUMNS, (delay if within is None else within) * SECOND)
    return Step("once", text, Dedupe(oracle, at_once))


def latest(chance: random.Random, forget: int | None) -> Step:
    by, order = chance.choice([("k",), ("k", "j")]), chance.choice([(), ("n",), ("j", "n")])
    text = f"from: rows, latest: {{by: [{', '.join(by)}], order: [{', '.join(order)}]"
    text += "}" if forget is None else f", forget: {forget} seconds}}"
    newer = order or ("_time",)
    kept = tuple(dict.fromkeys((*by, "_time", *newer, *COLUMNS)))
    oracle = LatestOracle(Clock(0), by, newer, kept, COLUMNS, None if forget is None else forget * SECOND)
    return Step("last", text, Latest(oracle))


def check_rows(folder: Path, seed: int) -> None:
    chance = random.Random(seed)
    delay = (5, 0, 10)[seed % 3]
    feeds = draw_feeds(chance, {"rows": draw_row}, delay, late=True)
    steps = [
        rolling(chance, at_once=bool(seed % 2)),
        dedupe(chance, delay, at_once=bool(seed // 2 % 2)),
        latest(chance, forget=(None, 10, 40)[seed % 3]),
    ]
    path = pipeline(folder / "rows.yaml", {"rows": SCHEMA}, delay, steps)
    print(path.read_text(), *feeds, sep="\n")
    check(path, feeds, delay, steps)


@pytest.mark.parametrize("seed", [1])
def test_rows_are_what_plain_python_gives(tmp_path: Path, seed: int) -> None:
    check_rows(tmp_path, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1030))
def test_rows_in_many_cases(tmp_path: Path, seed: int) -> None:
    check_rows(tmp_path, seed)
