"""Aggregates per hexagonal cell and window, where each row counts in all cells around it.

Rows are combined by the cell they lie in first, and only these partial results fan out to the cells around: however
many rows a cell has, each of its neighbours gets one partial result per window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from penstock.kernels.aggregate import Aggregate
from penstock.kernels.base import BUCKET, Kernel, Late, Result, State, differing
from penstock.kernels.hexagons import cells_around, disks
from penstock.kernels.stable_hash import key_hash
from penstock.kernels.window import Window

CELL = "cell"


@dataclass(frozen=True)
class GeoWindow(Kernel):
    """Windows by cell and further keys. `lat` and `lon` are the columns of a row's place, in degrees."""

    cannot_use: ClassVar[str] = "its latitude and longitude are no place on Earth"

    input: pa.Schema
    keys: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    lat: str
    lon: str
    resolution: int
    ring: int
    buckets: int
    size: int
    slide: int | None = None
    emit: str = "close"
    allowed: int = 0
    retained: int = 0

    @cached_property
    def window(self) -> Window:
        """What is computed once rows have cells."""
        columns = self.input.append(pa.field(CELL, pa.int64()))
        return Window(
            columns,
            (CELL, *self.keys),
            self.aggregates,
            self.size,
            self.slide,
            self.emit,
            self.allowed,
            self.retained,
        )

    @property
    def output(self) -> pa.Schema:
        return self.window.output

    def layout(self) -> dict[str, Any]:
        places = {"resolution": self.resolution, "lat": self.lat, "lon": self.lon, "buckets": self.buckets}
        return {**self.window.layout(), "kernel": "GeoWindow", **places}

    def unfit(self, before: Mapping[str, Any]) -> str | None:
        now = self.layout()
        places = {name: now[name] for name in now if name not in self.window.layout()}
        moved = differing({name: before.get(name) for name in ("kernel", *places)}, {"kernel": now["kernel"], **places})
        return moved or self.window.unfit({**{n: v for n, v in before.items() if n not in places}, "kernel": "Window"})

    def fitted(self, number: int, chunk: pa.Table) -> pa.Table:
        return self.window.fitted(number, chunk)

    def late(self, side: int, rows: pa.Table, watermark: int) -> Late:
        """Like a window's; rows that are nowhere on Earth are dead."""
        found = self.window.late(side, rows, watermark)
        _, _, bad = cells_around(rows.column(self.lat), rows.column(self.lon), self.resolution, 0)
        if not bad.any():
            return found
        return replace(found, missed=np.where(bad, 0, found.missed), dropped=found.dropped | bad, dead=bad)

    def prepare(self, side: int, rows: pa.Table) -> pa.Table:
        index, cells, _ = cells_around(rows.column(self.lat), rows.column(self.lon), self.resolution, 0)
        here = rows.take(pa.array(index)).append_column(CELL, cells)
        return self._fanned_out(self.window.prepare(side, here))

    def _fanned_out(self, partial: pa.Table) -> pa.Table:
        """Partial results of cells, given to each cell around."""
        encoded = partial.column(CELL).combine_chunks().dictionary_encode()
        around, sizes = disks(encoded.dictionary.to_pylist(), self.ring)
        which = encoded.indices.to_numpy()
        counts = sizes[which]
        begins = np.cumsum(sizes) - sizes
        places = np.arange(int(counts.sum())) + np.repeat(begins[which] - (np.cumsum(counts) - counts), counts)
        spread = partial.take(pa.array(np.repeat(np.arange(partial.num_rows), counts)))
        spread = spread.set_column(spread.column_names.index(CELL), CELL, pa.array(around[places]))
        hashes = key_hash([spread.column(name) for name in (CELL, *self.keys)])
        bucket = (hashes % np.uint64(self.buckets)).astype(np.int32)
        return spread.set_column(spread.column_names.index(BUCKET), BUCKET, pa.array(bucket))

    def advance(
        self, state: State, rows: Sequence[Sequence[pa.Table]], watermark: int, before: int | None = None
    ) -> Result:
        return self.window.advance(state, rows, watermark, before)

    @property
    def reach(self) -> tuple[int | None, int]:
        return self.window.reach

    @property
    def waits(self) -> bool:
        return self.window.waits

    @property
    def shown_keys(self) -> tuple[str, ...]:
        return (CELL, *self.keys)

    def shown(self, state: State, watermark: int) -> pa.Table:
        """As a window's, with cells as they are written."""
        found = self.window.shown(state, watermark)
        cells = pa.array([f"{cell:x}" for cell in found.column(CELL).to_pylist()], pa.string())
        return found.set_column(found.column_names.index(CELL), CELL, cells)

    def own_bucket(self, key: pa.Table, buckets: int) -> int | None:
        try:
            cells = pa.array([int(cell, 16) for cell in key.column(CELL).to_pylist()], pa.int64())
        except (TypeError, ValueError, OverflowError):
            raise ValueError("a cell is written in hexadecimal digits, as 88283473fffffff is") from None
        hashes = key_hash([cells, *(key.column(name) for name in self.keys)])
        return int(hashes[0] % np.uint64(buckets))

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "window"}
