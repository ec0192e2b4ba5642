"""The loads: what each case reads and computes, and what it should cost at most.

Peers read this too, in environments of their own, so it imports nothing but Python's own library.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Kind = Literal["windows", "stateless", "idle", "rolling", "history"]
WINDOWS = tuple(
    (key, values) for values in ("count(*)", "sum(ms)", "min(ms)", "max(ms)") for key in ("user", "article")
)
"""Key and aggregate of each of up to eight tumbling windows."""


@dataclass(frozen=True)
class Limits:
    """What Penstock should need at most."""

    cores: float | None = None
    megabytes: float | None = None
    batch_ms: float | None = None


@dataclass(frozen=True)
class Case:
    name: str
    title: str
    kind: Kind
    rate: int = 100
    """Rows a second."""
    windows: int = 1
    keys: int = 200
    history: int = 0
    """Rows that are there at the start, within the hour before it."""
    limits: Limits = Limits()
    contenders: tuple[str, ...] = ("penstock",)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def case_from(values: dict[str, Any]) -> Case:
    """The case of `as_dict`, after it went through JSON."""
    kept = {key: value for key, value in values.items() if key not in ("limits", "contenders")}
    return Case(**kept, limits=Limits(**values["limits"]), contenders=tuple(values["contenders"]))


CHUNKS = "penstock chunks"
ALL = ("penstock", CHUNKS, "spark", "flink hashmap", "flink rocksdb")
CASES = (
    Case("1-window", "1 tumbling window", "windows", limits=Limits(0.25, 900, 200), contenders=ALL),
    Case("4-windows", "4 tumbling windows on one source", "windows", windows=4, contenders=ALL),
    Case("8-windows", "8 tumbling windows on one source", "windows", windows=8, limits=Limits(0.35, None, 300),
         contenders=ALL),
    Case("stateless", "a filter", "stateless", limits=Limits(0.20), contenders=("penstock", "spark", "flink hashmap")),
    Case("idle", "a window over files, of which none comes", "idle", rate=0, limits=Limits(0.02),
         contenders=("penstock", CHUNKS, "spark", "flink hashmap")),
    Case("rolling", "10,000 rows/s, rolling 1 h with distinct", "rolling", rate=10_000, keys=10_000,
         limits=Limits(0.6, 1500), contenders=("penstock", CHUNKS, "flink hashmap", "flink rocksdb")),
)  # fmt: skip
START_UP = "start-up"
CASE_NAMES = (*(case.name for case in CASES), START_UP)

CURVES: dict[str, tuple[tuple[int, Case], ...]] = {
    "window steps": tuple(
        (count, Case(f"steps-{count}", f"{count} windows", "windows", windows=count)) for count in (1, 2, 4, 8)
    ),
    "keys": tuple(
        (keys, Case(f"keys-{keys}", f"{keys:,} keys, 1,000 rows/s", "windows", rate=1000, keys=keys))
        for keys in (100, 1_000, 10_000, 100_000)
    ),
    "rows of state": tuple(
        (rows, Case(f"state-{rows}", f"rolling 1 h over {rows:,} rows", "history", keys=10_000, history=rows))
        for rows in (1_000, 100_000, 1_000_000)
    ),
    "rows a batch": tuple(
        (rate, Case(f"batch-{rate}", f"{rate:,} rows/s", "windows", rate=rate)) for rate in (100, 1_000, 10_000, 30_000)
    ),
}
"""What is varied, with the cases by its value."""
