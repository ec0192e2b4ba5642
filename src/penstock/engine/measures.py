"""What the ledger keeps of a batch besides the number of rows: when they happened, and checksums."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.components.shared.checksum import NAME as CHECKSUM
from penstock.components.shared.checksum import fits, spark_sum
from penstock.engine.by_time import NAME as TIMES
from penstock.engine.by_time import Times, difference, tally, times_below, times_of
from penstock.engine.frames import columns_of
from penstock.engine.markers import execution
from penstock.spec.pipeline import LedgerSettings

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

AllTimes = dict[tuple[str, str], Times]
"""By what became of rows and where, as the ledger names it."""


class Measures:
    """Collects what was observed while a batch ran."""

    def __init__(self, settings: LedgerSettings) -> None:
        self.window_ms = settings.window.millis if settings.window is not None else None
        self.columns = settings.checksum
        self._seen: dict[str, Mapping[str, Any]] = {}
        self._dead: dict[str, Times] = {}

    def of_step(self, rows: DataFrame) -> list[Column]:
        """What is to be observed of the rows of a step."""
        times = tally(rows, self.window_ms) if self.window_ms is not None else None
        return [] if times is None else [times]

    def of_sink(self, rows: DataFrame) -> list[Column]:
        """What is to be observed of the rows of a sink."""
        sums = [spark_sum(self.columns)] if self.columns and fits(self.columns, columns_of(rows)) else []
        return [*self.of_step(rows), *sums]

    def begin(self, query: StreamingQuery) -> None:
        """Takes over what the streaming query has observed, after its job has run."""
        self._dead.clear()
        self._seen = _observed(query) if self.window_ms is not None or self.columns else {}

    def note(self, name: str, found: Mapping[str, Any]) -> None:
        """Takes over what was observed after the query."""
        self._seen[name] = found

    def note_dead(self, node: str, rows: DataFrame) -> None:
        """Takes note of rows that a step has sifted out."""
        if self.window_ms is not None:
            for start, count in times_below(rows, self.window_ms).items():
                known = self._dead.setdefault(node, {})
                known[start] = known.get(start, 0) + count

    def checksums(self) -> dict[str, int]:
        """By sink."""
        return {
            name.removeprefix("rows_out "): int(found[CHECKSUM])
            for name, found in self._seen.items()
            if CHECKSUM in found
        }

    def times(self, late: Mapping[str, Iterable[tuple[int, int]]], filters: Iterable[str]) -> AllTimes:
        """When the rows happened; `late` are those that came too late for each step."""
        if self.window_ms is None:
            return {}
        found: AllTimes = {}
        for name in self._seen:
            what, _, node = name.partition(" ")
            if what in ("rows_in", "rows_out", "replayed"):
                found[what, node] = self._times(name)
        for node in filters:
            dropped = difference(self._times(f"before {node}"), self._times(f"after {node}"))
            found["filtered", node] = difference(dropped, self._dead.get(node, {}))
        found |= {("late", node): dict(times) for node, times in late.items()}
        found |= {("rows_dead", node): times for node, times in self._dead.items()}
        return {key: times for key, times in found.items() if times}

    def _times(self, name: str) -> Times:
        assert self.window_ms is not None
        return times_of(self._seen.get(name, {}).get(TIMES), self.window_ms)


def _observed(query: StreamingQuery) -> dict[str, Mapping[str, Any]]:
    """What Spark has observed in the running batch, by name."""
    found: dict[str, Mapping[str, Any]] = {}
    metrics = execution(query).observedMetrics().iterator()
    while metrics.hasNext():
        entry = metrics.next()
        found[str(entry._1())] = json.loads(entry._2().json())
    return found
