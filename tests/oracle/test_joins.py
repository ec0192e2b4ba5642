"""Joins on Spark give what plain Python gives, batch by batch, with late rows, crashes and stops."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.kernels.join_oracle import ChangelogJoinOracle, IntervalJoinOracle
from tests.oracle.judges import ChangelogJoin, Join
from tests.oracle.streams import SECOND, Row, Step, check, draw_feeds, pipeline

pytestmark = pytest.mark.spark

SCHEMA = "id: bigint, k: string, n: bigint, gone: boolean, ts: timestamp"
COLUMNS = ("id", "k", "n", "gone", "ts")
SOURCES = ("left", "right")
KINDS = ("full", "left", "right", "inner")


def draw_row(chance: random.Random, number: int) -> Row:
    """Most rows have the same key."""
    return {
        "id": number,
        "k": chance.choice(["a", "a", "b", "c", "d", None]),
        "n": chance.choice([0, 1, 2, None]),
        "gone": chance.choice([None, False, False, True]),
    }


def join(chance: random.Random, how: str) -> Step:
    lower, upper = chance.choice([(0, 0), (0, 12), (-5, 5), (-30, -2), (3, 20)])
    text = f"from: left, join: {{with: right, on: [k], how: {how}, prefix: r_, "
    text += f"within: ['{lower} seconds', '{upper} seconds']}}"
    right = [("k", "_other_k"), *((name, f"r_{name}") for name in COLUMNS if name != "k")]
    out = ([(name, name) for name in COLUMNS], right)
    oracle = IntervalJoinOracle((["k"], ["k"]), how, lower * SECOND, upper * SECOND, out, max_delay=0)
    return Step("pairs", text, Join(oracle, SOURCES, "k"))


def changelog(chance: random.Random, how: str, remember: int | None) -> Step:
    version = chance.choice([None, "n"])
    text = f"from: left, changelog_join: {{with: right, on: [k], how: {how}, deleted: gone, prefix: r_"
    text += "" if version is None else f", version: {version}"
    text += "}" if remember is None else f", remember: {remember} seconds}}"
    newer = version or "_time"
    oracle = ChangelogJoinOracle(
        keys=(["k"], ["k"]),
        on=[("k", "k")],
        version=(newer, newer),
        deleted=("gone", "gone"),
        how=how,
        out=(
            [(name, name) for name in COLUMNS if name != "gone"],
            [(name, f"r_{name}") for name in COLUMNS if name not in ("k", "gone")],
        ),
        tombstones=None if remember is None else remember * SECOND,
        content=(["_time", *COLUMNS], ["_time", *COLUMNS]),
    )
    return Step("table", text, ChangelogJoin(oracle, SOURCES))


def check_joins(folder: Path, seed: int) -> None:
    chance = random.Random(seed)
    delay = (5, 0, 10)[seed % 3]
    feeds = draw_feeds(chance, dict.fromkeys(SOURCES, draw_row), delay, late=True)
    steps = [join(chance, KINDS[seed % 4]), changelog(chance, ("inner", "left")[seed % 2], (None, 10, 0)[seed % 3])]
    path = pipeline(folder / "joins.yaml", dict.fromkeys(SOURCES, SCHEMA), delay, steps)
    print(path.read_text(), *feeds, sep="\n")
    check(path, feeds, delay, steps)


@pytest.mark.parametrize("seed", [1])
def test_joins_give_what_plain_python_gives(tmp_path: Path, seed: int) -> None:
    check_joins(tmp_path, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1030))
def test_joins_in_many_cases(tmp_path: Path, seed: int) -> None:
    check_joins(tmp_path, seed)
