"""Windows of every kind on Spark give what plain Python gives, batch by batch, late rows, crashes and all."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from tests.kernels.small_oracles import Clock, TopNOracle
from tests.kernels.window_oracle import SessionOracle, WindowOracle
from tests.oracle.judges import TopN, Windows
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
    "most": ("max(n)", Aggregate("most", "max", "n")),
    "spread": ("stddev(n)", Aggregate("spread", "stddev", "n")),
    "earliest": ("first(n)", Aggregate("earliest", "first", "n")),
    "latest": ("last(j)", Aggregate("latest", "last", "j")),
    "kinds": ("count_distinct(j)", Aggregate("kinds", "count_distinct", "j")),
    "middle": ("'percentile(n, 0.5)'", Aggregate("middle", "percentile", "n", 0.5)),
    "often": ("'top_k(j, 2)'", Aggregate("often", "top_k", "j", 2)),
    "all_ids": ("collect(id)", Aggregate("all_ids", "collect", "id")),
}
BY = ((), ("k",), ("k",), ("k", "j"))


def draw_row(chance: random.Random, number: int) -> Row:
    """Most rows have the same key."""
    return {
        "id": number,
        "k": chance.choice(["a", "a", "a", "b", "c", None]),
        "j": chance.choice([1, 1, 2, 3, None]),
        "n": chance.choice([0, 1, 2, -7, 1 << 40, None]),
    }


def draw_values(chance: random.Random) -> tuple[str, tuple[Aggregate, ...]]:
    names = chance.sample(sorted(VALUES), chance.randint(1, 3))
    return ", ".join(f"{name}: {VALUES[name][0]}" for name in names), tuple(VALUES[name][1] for name in names)


def window(chance: random.Random, name: str, *, slides: bool = False, late: int = 0, **options: Any) -> Step:
    size = chance.choice([5, 12, 30])
    slide = chance.randint(2, size - 1) if slides else size
    by, (values, aggregates) = chance.choice(BY), draw_values(chance)
    text = f"from: rows, window: {{size: {size} seconds, by: [{', '.join(by)}], values: {{{values}}}"
    text += f", slide: {slide} seconds" if slides else ""
    text += "".join(f", {key}: {value}" for key, value in options.items()) + "}"
    text += f", late: {{policy: correct, allowed: {late} seconds}}" if late else ""
    oracle = WindowOracle(
        by, aggregates, size * SECOND, slide * SECOND, options.get("emit", "close"), allowed=late * SECOND
    )
    return Step(name, text, Windows(oracle))


def session(chance: random.Random) -> Step:
    gap = chance.choice([2, 6, 20])
    by, (values, aggregates) = chance.choice(BY), draw_values(chance)
    text = f"from: rows, window: {{gap: {gap} seconds, by: [{', '.join(by)}], values: {{{values}}}}}"
    return Step("sessions", text, Windows(SessionOracle(by, aggregates, gap * SECOND)))


def top(chance: random.Random, delay: int) -> Step:
    size, n, by = chance.choice([5, 12, 30]), chance.choice([1, 2, 3]), chance.choice(BY)
    order = chance.choice([(("n", True),), (("j", False), ("n", True)), (("n", False),)])
    late = chance.choice([0, 25])
    listed = ", ".join(f"{column} {'desc' if falls else 'asc'}" for column, falls in order)
    text = f"from: rows, top_n: {{size: {size} seconds, by: [{', '.join(by)}], order: [{listed}], n: {n}}}"
    text += f", late: {{policy: correct, allowed: {late} seconds}}" if late else ""
    oracle = TopNOracle(Clock(delay), by, COLUMNS, n, order, size * SECOND, late * SECOND)
    return Step("best", text, TopN(oracle))


def check_windows(folder: Path, seed: int) -> None:
    chance = random.Random(seed)
    delay = chance.choice([0, 5, 10])
    feeds = draw_feeds(chance, {"rows": draw_row}, delay, late=chance.random() < 0.8)
    steps = [
        window(chance, "tumbling"),
        window(chance, "sliding", slides=True),
        window(chance, "corrected", slides=chance.random() < 0.5, late=chance.choice([8, 40])),
        window(chance, "updated", slides=chance.random() < 0.5, emit="update", late=chance.choice([0, 20])),
        session(chance),
        top(chance, delay),
    ]
    path = pipeline(folder / "windows.yaml", {"rows": SCHEMA}, delay, steps)
    print(path.read_text(), *feeds, sep="\n")
    check(path, feeds, delay, steps)


@pytest.mark.parametrize("seed", range(20))
def test_windows_give_what_plain_python_gives(tmp_path: Path, seed: int) -> None:
    check_windows(tmp_path, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_windows_in_many_cases(tmp_path: Path, seed: int) -> None:
    check_windows(tmp_path, seed)
