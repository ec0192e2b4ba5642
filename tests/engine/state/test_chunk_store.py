"""State in chunk files: what a batch leaves is read as it was, damage is named, and what nobody needs goes away."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.state.chunk_cache import ChunkCache
from penstock.engine.state.chunk_store import (
    BucketState,
    ChunkPlace,
    ChunkStore,
    ChunkWriter,
    StateIndex,
    advanced,
    index_file,
    read_chunk,
    read_index,
)
from penstock.engine.state.chunks import encode
from penstock.errors import PenstockError

NUMBERS = st.integers(-(1 << 62), 1 << 62)
PLACES = st.builds(
    ChunkPlace, st.sampled_from(["3-1/a.chunks", "4-1/b.chunks"]), st.integers(0, 1 << 40), st.integers(0, 1 << 30),
    st.integers(0, (1 << 32) - 1),
)  # fmt: skip
BUCKETS = st.builds(
    BucketState, st.dictionaries(NUMBERS, PLACES, min_size=1, max_size=4), st.one_of(st.none(), NUMBERS)
)
STEPS = st.dictionaries(st.text(min_size=1, max_size=5), st.dictionaries(st.integers(0, 4095), BUCKETS, max_size=4))


def rows(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


def put(store: ChunkStore, before: StateIndex, batch: int, bucket: int, *values: int) -> StateIndex:
    """A batch in which one bucket of one step changes."""
    writer = store.writer(batch)
    state = BucketState({0: writer.add(encode(rows(*values)))}, wake=batch)
    index = advanced(before, batch, 1000 * batch, {"step": {bucket: state}}, ["step"])
    store.move_out(index, writer)
    writer.close()
    store.commit(index)
    store.clean(batch)
    return index


def held(store: ChunkStore, index: StateIndex) -> dict[int, list[int]]:
    """What each bucket of the step holds."""
    return {
        bucket: read_chunk(store.folder, state.chunks[0]).column("n").to_pylist()
        for bucket, state in index.steps["step"].items()
    }


@given(STEPS, st.integers(0, 1 << 40), st.integers(0, 1 << 50))
def test_an_index_is_read_as_it_was_written(
    steps: dict[str, dict[int, BucketState]], batch: int, watermark: int
) -> None:
    index = StateIndex(batch, watermark, steps)
    assert StateIndex.decoded(index.encoded(), Path("index")) == index


@given(STEPS, st.data())
def test_an_index_that_was_changed_or_cut_short_is_refused(
    steps: dict[str, dict[int, BucketState]], data: st.DataObject
) -> None:
    text = bytearray(StateIndex(1, 2, steps).encoded())
    place = data.draw(st.integers(0, len(text) - 1))
    broken = (
        bytes(text[:place]) if data.draw(st.booleans()) else bytes([*text[:place], text[place] ^ 1, *text[place + 1 :]])
    )
    with pytest.raises(PenstockError, match="STATE_UNREADABLE"):
        StateIndex.decoded(broken, Path("index"))


def test_state_is_what_the_last_committed_batch_left(tmp_path: Path) -> None:
    store = ChunkStore(tmp_path, 1)
    index = store.open(-1)
    for batch in range(30):
        index = put(store, index, batch, batch % 4, batch, batch + 1)
    again = ChunkStore(tmp_path, 2)
    found = again.open(29)
    assert held(again, found) == {0: [28, 29], 1: [29, 30], 2: [26, 27], 3: [27, 28]}
    assert found.watermark == 29_000
    assert found == index


def test_a_batch_that_comes_again_begins_from_the_one_before_it_and_keeps_its_watermark(tmp_path: Path) -> None:
    store = ChunkStore(tmp_path, 1)
    first = put(store, store.open(-1), 0, 0, 1)
    put(store, first, 1, 0, 2)
    again = ChunkStore(tmp_path, 2)
    found = again.open(0)
    assert held(again, found) == {0: [1]}
    tried = again.first_try(1)
    assert tried is not None
    assert tried.watermark == 1000
    assert held(again, put(again, found, 1, 0, 3)) == {0: [3]}
    assert held(again, read_index(again.folder, 1)) == {0: [3]}


def test_a_run_that_was_overtaken_changes_nothing(tmp_path: Path) -> None:
    older = ChunkStore(tmp_path, 1)
    index = put(older, older.open(-1), 0, 0, 1)
    newer = ChunkStore(tmp_path, 2)
    found = newer.open(0)
    put(newer, found, 1, 0, 2)
    put(older, index, 1, 0, 9)
    older.clean(1, sweep=True)
    assert held(newer, newer.index(1)) == {0: [2]}


def test_what_no_batch_needs_is_removed(tmp_path: Path) -> None:
    store = ChunkStore(tmp_path, 1)
    index = store.open(-1)
    for batch in range(200):
        index = put(store, index, batch, 0, *range(batch % 7))
    files = {path.name for path in store.folder.rglob("*.chunks")}
    assert len(files) <= 12
    stray = store.folder / "199-1" / "stray.chunks"
    stray.write_bytes(b"of a task that failed")
    store.clean(199, sweep=True)
    assert not stray.exists()
    assert held(store, index) == {0: list(range(199 % 7))}


def test_a_file_from_which_little_is_needed_gives_that_away(tmp_path: Path) -> None:
    """State that never changes must not keep files alive in which all else is gone."""
    store = ChunkStore(tmp_path, 1)
    index = store.open(-1)
    writer = store.writer(0)
    buckets = {n: BucketState({0: writer.add(encode(rows(*range(1000 * n))))}) for n in range(4)}
    index = advanced(index, 0, 0, {"step": buckets}, ["step"])
    writer.close()
    store.commit(index)
    first = index.steps["step"][0].chunks[0].file
    for batch in range(1, 20):
        for bucket in (1, 2, 3):
            index = put(store, index, batch, bucket, batch) if bucket == 1 else index
            state = BucketState({0: index.steps["step"][1].chunks[0]})
            index.steps["step"][bucket] = state
    assert index.steps["step"][0].chunks[0].file != first
    assert held(store, index)[0] == []
    assert not (store.folder / first).exists()


@pytest.mark.parametrize("damage", ["missing", "cut short", "changed"])
def test_damage_of_a_chunk_is_named(tmp_path: Path, damage: str) -> None:
    store = ChunkStore(tmp_path, 1)
    index = put(store, store.open(-1), 0, 0, 1, 2, 3)
    (place,) = index.places()
    path = store.folder / place.file
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "cut short":
        path.write_bytes(content[:-5])
    else:
        path.write_bytes(content[:40] + bytes([content[40] ^ 255]) + content[41:])
    with pytest.raises(PenstockError) as caught:
        ChunkCache().get(store.folder, place)
    (problem,) = caught.value.problems
    assert problem.code == "STATE_UNREADABLE"
    assert str(problem.params["path"]) == str(path)


def test_a_missing_index_is_an_error_and_never_an_empty_state(tmp_path: Path) -> None:
    store = ChunkStore(tmp_path, 1)
    put(store, store.open(-1), 0, 0, 1)
    path = index_file(store.folder, 0)
    assert path is not None
    path.unlink()
    with pytest.raises(PenstockError, match="STATE_UNREADABLE"):
        ChunkStore(tmp_path, 2).open(0)


def test_nothing_is_written_where_nothing_changed(tmp_path: Path) -> None:
    ChunkWriter(tmp_path, 1, 1).close()
    assert list(tmp_path.iterdir()) == []
