"""Decoded chunks of chunk files that a process keeps from batch to batch, the least recently used given up first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from penstock.engine.state.chunk_store import BucketState, ChunkPlace, read_chunk

KEPT_BYTES = 256 << 20


class ChunkCache:
    """A file is written once, so what was read from a place stays true."""

    def __init__(self, limit: int = KEPT_BYTES) -> None:
        self.limit = limit
        self.size = 0
        self._tables: OrderedDict[ChunkPlace, pa.Table] = OrderedDict()

    def get(self, folder: Path, place: ChunkPlace) -> pa.Table:
        found = self._tables.get(place)
        if found is not None:
            self._tables.move_to_end(place)
            return found
        table = read_chunk(folder, place)
        self.put(place, table)
        return table

    def put(self, place: ChunkPlace, table: pa.Table) -> None:
        self.forget(place)
        self._tables[place] = table
        self.size += table.nbytes
        while self.size > self.limit and self._tables:
            _, oldest = self._tables.popitem(last=False)
            self.size -= oldest.nbytes

    def forget(self, place: ChunkPlace) -> None:
        found = self._tables.pop(place, None)
        if found is not None:
            self.size -= found.nbytes


class BucketChunks(Mapping[int, pa.Table]):
    """The chunks of one bucket, read when asked for, as their kernel wants them."""

    def __init__(
        self, folder: Path, state: BucketState, cache: ChunkCache, fitted: Callable[[int, pa.Table], pa.Table]
    ) -> None:
        self.folder = folder
        self.state = state
        self.cache = cache
        self.fitted = fitted

    def __getitem__(self, number: int) -> pa.Table:
        # What is kept may be from before a change of the step, like what is stored.
        return self.fitted(number, self.cache.get(self.folder, self.state.chunks[number]))

    def __iter__(self) -> Iterator[int]:
        return iter(self.state.chunks)

    def __len__(self) -> int:
        return len(self.state.chunks)

    def __contains__(self, number: object) -> bool:
        return number in self.state.chunks
