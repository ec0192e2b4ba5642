"""Windows of every kind on Spark give what plain Python gives, batch by batch, with late rows, crashes and stops."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.kernels.small_oracles import Clock, TopNOracle
from tests.kernels.window_oracle import SessionOracle, WindowOracle
from tests.oracle.judges import Cells, TopN, Windows
from tests.oracle.streams import SECOND, Row, Step, check, draw_feeds, pipeline

from penstock.kernels.aggregate import Aggregate

pytestmark = pytest.mark.spark

SCHEMA = "id: bigint, k: string, j: int, n: bigint, lat: double, lon: double, ts: timestamp"
COLUMNS = ("id", "k", "j", "n", "lat", "lon", "ts")
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
PLACES = [(52.52, 13.405), (52.52, 13.405), (52.53, 13.41), (-33.9, 151.2), (None, 13.4), (91.0, 0.0)]


def draw_row(chance: random.Random, number: int) -> Row:
    """Most rows have the same key."""
    lat, lon = chance.choice(PLACES)
    return {
        "id": number,
        "k": chance.choice(["a", "a", "a", "b", "c", None]),
        "j": chance.choice([1, 1, 2, 3, None]),
        "n": chance.choice([0, 1, 2, -7, 1 << 40, None]),
        "lat": lat,
        "lon": lon,
    }


def draw_values(chance: random.Random) -> tuple[str, tuple[Aggregate, ...]]:
    names = chance.sample(sorted(VALUES), chance.randint(2, 4))
    return ", ".join(f"{name}: {VALUES[name][0]}" for name in names), tuple(VALUES[name][1] for name in names)


def corrected(seconds: int) -> str:
    return f", late: {{policy: correct, allowed: {seconds} seconds}}" if seconds else ""


def window(chance: random.Random, name: str, *, slides: bool, emit: str = "close", late: int = 0) -> Step:
    size = chance.choice([5, 12, 30])
    slide = chance.randint(2, size - 1) if slides else size
    by, (values, aggregates) = chance.choice(BY), draw_values(chance)
    text = f"from: rows, window: {{size: {size} seconds, by: [{', '.join(by)}], values: {{{values}}}, emit: {emit}"
    text += f", slide: {slide} seconds}}" if slides else "}"
    oracle = WindowOracle(by, aggregates, size * SECOND, slide * SECOND, emit, allowed=late * SECOND)
    return Step(name, text + corrected(late), Windows(oracle))


def session(chance: random.Random) -> Step:
    gap = chance.choice([1, 2, 6])
    by, (values, aggregates) = chance.choice(BY), draw_values(chance)
    text = f"from: rows, window: {{gap: {gap} seconds, by: [{', '.join(by)}], values: {{{values}}}}}"
    return Step("sessions", text, Windows(SessionOracle(by, aggregates, gap * SECOND)))


def top(chance: random.Random, late: int) -> Step:
    size, n, by = chance.choice([5, 12, 30]), chance.choice([1, 2, 3]), chance.choice(BY)
    order = chance.choice([(("n", True),), (("j", False), ("n", True)), (("n", False),)])
    listed = ", ".join(f"{column} {'desc' if falls else 'asc'}" for column, falls in order)
    text = f"from: rows, top_n: {{size: {size} seconds, by: [{', '.join(by)}], order: [{listed}], n: {n}}}"
    oracle = TopNOracle(Clock(0), by, COLUMNS, n, order, size * SECOND, late * SECOND)
    return Step("best", text + corrected(late), TopN(oracle))


def cells(chance: random.Random, late: int) -> Step:
    size, ring, resolution = chance.choice([12, 30]), chance.choice([0, 1, 2]), chance.choice([7, 8])
    by, (values, aggregates) = chance.choice([(), ("k",)]), draw_values(chance)
    text = f"from: rows, geo_window: {{lat: lat, lon: lon, resolution: {resolution}, ring: {ring}, "
    text += f"size: {size} seconds, by: [{', '.join(by)}], values: {{{values}}}}}"
    oracle, plain = (
        WindowOracle(keys, aggregates, size * SECOND, size * SECOND, allowed=late * SECOND)
        for keys in (("cell", *by), by)
    )
    return Step("cells", text + corrected(late), Cells(oracle, plain, resolution, ring))


def check_windows(folder: Path, seed: int) -> None:
    chance = random.Random(seed)
    delay = (5, 0, 10)[seed % 3]
    feeds = draw_feeds(chance, {"rows": draw_row}, delay, late=True)
    emit, late = ("close", "update")[seed % 2], (0, 40, 8)[seed % 3]
    steps = [
        window(chance, "tumbling", slides=False, late=late),
        window(chance, "sliding", slides=True, emit=emit, late=late),
        session(chance),
        top(chance, late),
        cells(chance, late),
    ]
    path = pipeline(folder / "windows.yaml", {"rows": SCHEMA}, delay, steps)
    print(path.read_text(), *feeds, sep="\n")
    check(path, feeds, delay, steps)


@pytest.mark.parametrize("seed", [1])
def test_windows_give_what_plain_python_gives(tmp_path: Path, seed: int) -> None:
    check_windows(tmp_path, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1030))
def test_windows_in_many_cases(tmp_path: Path, seed: int) -> None:
    check_windows(tmp_path, seed)
