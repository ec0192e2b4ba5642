"""What differs between two savepoints: how far sources were read, time, state, rows, and the pipeline itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

from penstock.reports.savepoints import Savepoint, Totals
from penstock.spec.diff import Difference, differences
from penstock.spec.pipeline import Pipeline

_T = TypeVar("_T")


@dataclass(frozen=True)
class Pair(Generic[_T]):
    """A value in the first and in the second; None where there is none."""

    before: _T | None
    after: _T | None

    @property
    def differs(self) -> bool:
        return self.before != self.after


@dataclass(frozen=True)
class SavepointDiff:
    """Only what differs, but for batch and watermark."""

    same_lineage: bool
    """Whether one is an earlier or later moment of what the other is of."""
    batch: Pair[int]
    watermark: Pair[int]
    offsets: Mapping[str, Pair[Any]]
    state_bytes: Mapping[str, Pair[int]]
    totals: Mapping[str, Mapping[str, Pair[int]]]
    """Rows by what became of them, and by source, step or sink."""
    versions: Mapping[str, Pair[str]]
    spec: Sequence[Difference]


def compare(before: Savepoint, after: Savepoint, pipelines: tuple[Pipeline, Pipeline] | None = None) -> SavepointDiff:
    """What differs; `pipelines` are those that were declared, if they can still be read."""
    totals = {
        item.name: _pairs(getattr(before.totals, item.name), getattr(after.totals, item.name))
        for item in fields(Totals)
    }
    versions = {"penstock": Pair(before.penstock, after.penstock), "spark": Pair(before.spark, after.spark)}
    return SavepointDiff(
        before.lineage == after.lineage,
        Pair(before.batch, after.batch),
        Pair(before.watermark, after.watermark),
        _pairs(before.offsets, after.offsets),
        _pairs(before.state_of(), after.state_of()),
        {name: found for name, found in totals.items() if found},
        {name: pair for name, pair in versions.items() if pair.differs},
        [] if pipelines is None else differences(*pipelines),
    )


def _pairs(before: Mapping[str, _T], after: Mapping[str, _T]) -> dict[str, Pair[_T]]:
    pairs = {name: Pair(before.get(name), after.get(name)) for name in {**before, **after}}
    return {name: pair for name, pair in pairs.items() if pair.differs}
