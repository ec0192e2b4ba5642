"""Chunks in a state store: what is read, what is written, and which copies a worker may use."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.engine.state.chunks import Index, Kept, StoredChunks


class Store:
    """Stands in for Spark's map state, and counts what is asked of it."""

    def __init__(self) -> None:
        self.values: dict[int, bytes] = {}
        self.read: list[int] = []
        self.written: list[int] = []

    def getValue(self, key: tuple[int]) -> tuple[bytes] | None:
        self.read.append(key[0])
        return (self.values[key[0]],) if key[0] in self.values else None

    def updateValue(self, key: tuple[int], value: tuple[bytes]) -> None:
        self.written.append(key[0])
        self.values[key[0]] = value[0]

    def removeKey(self, key: tuple[int]) -> None:
        del self.values[key[0]]


def table(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


def opened(store: Any, kept: Kept | None = None) -> StoredChunks:
    store.read.clear()
    store.written.clear()
    return StoredChunks(store, "step", 3, kept or Kept())


def test_what_was_saved_is_found_again() -> None:
    store = Store()
    opened(store).save({7: table(1, 2), -5: table()}, (), 99)
    again = opened(store)
    assert sorted(again) == [-5, 7]
    assert again[7].to_pylist() == [{"n": 1}, {"n": 2}]
    assert again.index.timer == 99


def test_only_touched_chunks_are_written() -> None:
    store = Store()
    opened(store).save({number: table(number) for number in range(50)}, (), None)
    chunks = opened(store)
    chunks.save({7: table(8)}, (9,), None)
    assert len(store.written) == 2, "the chunk and the index"
    assert sorted(opened(store)) == [number for number in range(50) if number != 9]


def test_an_advance_that_changes_nothing_writes_nothing() -> None:
    store = Store()
    opened(store).save({1: table(1)}, (), 5)
    opened(store).save({}, (), 5)
    assert store.written == []


def test_a_timer_that_is_taken_back_is_noted() -> None:
    store = Store()
    opened(store).save({1: table(1)}, (), 5)
    chunks = opened(store)
    chunks.index.timer = None
    chunks.save({}, (), None)
    assert opened(store).index.timer is None


def test_state_that_is_empty_leaves_nothing_in_the_store() -> None:
    store = Store()
    opened(store).save({1: table(1)}, (), 5)
    opened(store).save({}, (1,), None)
    assert store.values == {}


def test_a_worker_does_not_read_again_what_it_has() -> None:
    store, kept = Store(), Kept()
    opened(store, kept).save({1: table(1), 2: table(2)}, (), None)
    chunks = opened(store, kept)
    assert chunks[1].to_pylist() == [{"n": 1}]
    assert len(store.read) == 1, "the index"


def test_a_worker_reads_anew_what_another_has_written() -> None:
    store, kept, other = Store(), Kept(), Kept()
    opened(store, kept).save({1: table(1), 2: table(2)}, (), None)
    opened(store, other).save({1: table(10)}, (), None)
    chunks = opened(store, kept)
    assert (chunks[1].to_pylist(), chunks[2].to_pylist()) == ([{"n": 10}], [{"n": 2}])
    assert len(store.read) == 2, "the index and the chunk that changed"


def test_a_worker_does_not_use_what_a_failed_batch_wrote() -> None:
    store, kept = Store(), Kept()
    opened(store, kept).save({1: table(1)}, (), None)
    committed = dict(store.values)
    opened(store, kept).save({1: table(666)}, (), None)
    store.values = committed
    assert opened(store, kept)[1].to_pylist() == [{"n": 1}]


def test_copies_are_given_up_when_they_take_too_much_room() -> None:
    kept = Kept(limit=table(*range(100)).nbytes * 3)
    for number in range(10):
        kept.put(("step", 0, number), 1, table(*range(100)))
    assert kept.size <= kept.limit
    assert kept.get(("step", 0, 9), 1) is not None
    assert kept.get(("step", 0, 0), 1) is None


def test_an_index_survives_its_bytes() -> None:
    for index in (Index(), Index({1: 2, -3: 4}, 77), Index({5: 6}, None)):
        assert Index.decoded(index.encoded()) == index
