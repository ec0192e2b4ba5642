"""A bucket's chunks in Spark's state store: which there are, their bytes, and copies kept by the worker.

The store holds, for each bucket, one entry per chunk and an index. The index names the chunks with a version that
is new whenever a chunk is written, so a worker can use a chunk it has decoded before without reading it again, and
never uses one that a failed or repeated batch has written.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

_INDEX = -(1 << 63)
_NO_TIMER = -(1 << 63)
_KEPT_BYTES = 256 << 20


@dataclass
class Index:
    """What the state of a bucket consists of."""

    versions: dict[int, int] = field(default_factory=dict)
    timer: int | None = None

    def encoded(self) -> bytes:
        head = [_NO_TIMER if self.timer is None else self.timer]
        return np.array([*head, *self.versions.keys(), *self.versions.values()], np.int64).tobytes()

    @staticmethod
    def decoded(data: bytes) -> Index:
        timer, *rest = np.frombuffer(data, np.int64).tolist()
        half = len(rest) // 2
        return Index(dict(zip(rest[:half], rest[half:], strict=True)), None if timer == _NO_TIMER else timer)


class Kept:
    """Decoded chunks a worker keeps from batch to batch, the least recently used given up first."""

    def __init__(self, limit: int = _KEPT_BYTES) -> None:
        self.limit = limit
        self.size = 0
        self._tables: OrderedDict[tuple[str, int, int], tuple[int, pa.Table]] = OrderedDict()

    def get(self, place: tuple[str, int, int], version: int) -> pa.Table | None:
        found = self._tables.get(place)
        if found is None or found[0] != version:
            return None
        self._tables.move_to_end(place)
        return found[1]

    def put(self, place: tuple[str, int, int], version: int, table: pa.Table) -> None:
        self.forget(place)
        self._tables[place] = (version, table)
        self.size += table.nbytes
        while self.size > self.limit and self._tables:
            _, (_, oldest) = self._tables.popitem(last=False)
            self.size -= oldest.nbytes

    def forget(self, place: tuple[str, int, int]) -> None:
        found = self._tables.pop(place, None)
        if found is not None:
            self.size -= found[1].nbytes


_KEPT = Kept()
"""One for the process: a worker serves many tasks, one at a time."""


Fitted = Callable[[int, pa.Table], pa.Table]
"""A chunk, by its number, as its reader wants it."""


def _as_it_is(number: int, chunk: pa.Table) -> pa.Table:
    return chunk


class StoredChunks(Mapping[int, pa.Table]):
    """The chunks of one bucket, read when asked for. `store` is Spark's map state of the bucket being handled."""

    def __init__(self, store: Any, step: str, bucket: int, kept: Kept = _KEPT, fitted: Fitted | None = None) -> None:
        self.store = store
        self.fitted = fitted or _as_it_is
        self.place = (step, bucket)
        self.kept = kept
        found = store.getValue((_INDEX,))
        self.index = Index() if found is None else Index.decoded(found[0])
        self._saved_timer = self.index.timer

    def __getitem__(self, number: int) -> pa.Table:
        version = self.index.versions[number]
        table = self.kept.get((*self.place, number), version)
        if table is None:
            table = decode(self.store.getValue((number,))[0])
            self.kept.put((*self.place, number), version, table)
        # What a worker keeps may be from before a change of the step, like what is stored.
        return self.fitted(number, table)

    def __iter__(self) -> Iterator[int]:
        return iter(self.index.versions)

    def __len__(self) -> int:
        return len(self.index.versions)

    def __contains__(self, number: object) -> bool:
        return number in self.index.versions

    def save(self, put: Mapping[int, pa.Table], drop: Any, timer: int | None) -> None:
        """Writes what has changed; nothing if nothing has."""
        for number in drop:
            if number not in put and self.index.versions.pop(number, None) is not None:
                self.store.removeKey((number,))
                self.kept.forget((*self.place, number))
        version = secrets.randbits(62)
        for number, table in put.items():
            self.store.updateValue((number,), (encode(table),))
            self.index.versions[number] = version
            self.kept.put((*self.place, number), version, table)
        self.index.timer = timer
        if put or drop or timer != self._saved_timer:
            self._save_index()

    def _save_index(self) -> None:
        if self.index.versions or self.index.timer is not None:
            self.store.updateValue((_INDEX,), (self.index.encoded(),))
        else:
            self.store.removeKey((_INDEX,))


def encode(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def decode(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()
