"""The join of changes against an oracle, at its edges, and what it keeps."""

from __future__ import annotations

import datetime as dt
import pickle
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernels.driving import CASES, Driver, Row
from tests.kernels.join_oracle import ChangelogJoinOracle, applied, chosen

from penstock.kernels import changelog_table, matching
from penstock.kernels.base import BUCKET, NO_WATERMARK, TIME
from penstock.kernels.changelog_join import ChangelogJoin
from penstock.kernels.changelog_table import CATALOG
from penstock.kernels.stable_hash import key_hash

LEFT = pa.schema(
    [
        ("k", pa.string()),
        ("j", pa.int32()),
        ("n", pa.int16()),
        ("p", pa.int64()),
        ("q", pa.string()),
        ("ver", pa.int64()),
        ("dead", pa.bool_()),
        (TIME, pa.int64()),
        ("unused", pa.string()),
    ]
)
RIGHT = pa.schema(
    [
        (TIME, pa.int64()),
        ("text", pa.string()),
        ("dead", pa.bool_()),
        ("id", pa.string()),
        ("jid", pa.int32()),
        ("r", pa.float64()),
    ]
)
KERNEL = ChangelogJoin(
    left=LEFT,
    right=RIGHT,
    left_key=("k", "j"),
    right_key=("id", "jid"),
    on=(("j", "jid"), ("k", "id")),
    how="left",
    left_out=(("k", "k"), ("p", "p"), ("j", "j"), ("q", "q")),
    right_out=(("r", "r"), ("id", "id")),
    deleted=("dead", "dead"),
    tombstones=3000,
    slots=4,
)
MANY = replace(KERNEL, left_key=("n", "k", "j"), left_out=(*KERNEL.left_out, ("n", "n")))
"""Several left rows share a right one."""
SIMPLE = replace(KERNEL, left_key=("k",), right_key=("id",), on=(("k", "id"),))


def weak_hash(columns: Sequence[pa.ChunkedArray]) -> np.ndarray:
    """Sends different keys to the same hash."""
    return (key_hash(columns) % np.uint64(2)) << np.uint64(63)


def driver(kernel: ChangelogJoin, **options: Any) -> Driver:
    keys = ([left for left, _ in kernel.on], [right for _, right in kernel.on])
    return Driver(kernel, (kernel.left, kernel.right), keys, **options)


def left(k: str | None = "a", time: int = 0, p: int | None = 0, dead: bool | None = None, **more: Any) -> Row:
    return {"k": k, "j": 1, "n": 1, "p": p, "q": None, "ver": 0, "dead": dead, TIME: time, "unused": "x", **more}


def right(key: str | None = "a", time: int = 0, r: float | None = 0.5, dead: bool | None = None, **more: Any) -> Row:
    return {TIME: time, "text": "", "dead": dead, "id": key, "jid": 1, "r": r, **more}


def counted(rows: Sequence[Row]) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in rows)


def kept(run: Driver) -> int:
    """How many rows are kept, apart from those that wait in a slot to be overwritten by recent ones."""
    assert isinstance(run.kernel, ChangelogJoin)
    keys = (run.kernel.left_key, run.kernel.right_key)
    found = set()
    for bucket, chunks in run.state.items():
        for number, table in chunks.tables().items():
            if number != CATALOG:
                side = (number - 1) % 2
                found |= {(bucket, side, tuple(row.values())) for row in table.select(keys[side]).to_pylist()}
    return len(found)


@dataclass
class Case:
    kernel: ChangelogJoin
    batches: list[tuple[list[Row], list[Row]]]
    max_delay: int
    weak: bool
    seed: int


CHOICES = 2**40


NAMES, NUMBERS, DEAD = ["a", "a", "b", "c", None], [1, 1, 1, 2, None], [None, False, False, True]


def left_of(number: int) -> Row:
    name, j, n, ms, rest, p, dead, q, ver = chosen(
        number,
        NAMES,
        NUMBERS,
        NUMBERS,
        range(13),
        [0, 0, 0, 1, 999],
        [None, 1, 2],
        DEAD,
        [None, "", "x"],
        [None, 1, 2, 3],
    )
    return left(name, ms * 1000 + rest, p, dead, j=j, n=n, q=q, ver=ver)


def right_of(number: int) -> Row:
    name, j, ms, rest, r, dead, text = chosen(
        number, NAMES, NUMBERS, range(13), [0, 0, 0, 1, 999], [None, -1.0, 2.0], DEAD, [None, "a", "b"]
    )
    return right(name, ms * 1000 + rest, r, dead, jid=j, text=text)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kernel = replace(
        draw(st.sampled_from([KERNEL, MANY, SIMPLE])),
        how=draw(st.sampled_from(["inner", "left"])),
        version=(draw(st.sampled_from([TIME, "ver"])), draw(st.sampled_from([TIME, "text"]))),
        deleted=draw(st.sampled_from([("dead", "dead"), ("dead", "dead"), (None, "dead"), (None, None)])),
        tombstones=draw(st.sampled_from([None, 0, 2000])),
        slots=draw(st.sampled_from([1, 3])),
        recent_rows=draw(st.sampled_from([0, 2, 100])),
    )
    rows = st.lists(st.integers(0, CHOICES - 1), max_size=draw(st.sampled_from([2, 7])))
    cuts = draw(st.lists(st.tuples(rows, rows), min_size=1, max_size=4))
    return Case(
        kernel=kernel,
        batches=[([left_of(n) for n in lefts], [right_of(n) for n in rights]) for lefts, rights in cuts],
        max_delay=draw(st.sampled_from([0, 3000])),
        weak=draw(st.booleans()),
        seed=draw(st.integers(0, 3)),
    )


def oracle_of(kernel: ChangelogJoin) -> ChangelogJoinOracle:
    content = []
    for schema, out, key, version, dead in (
        (LEFT, kernel.left_out, kernel.left_key, kernel.version[0], kernel.deleted[0]),
        (RIGHT, kernel.right_out, kernel.right_key, kernel.version[1], kernel.deleted[1]),
    ):
        names = {TIME, version, dead, *key, *(name for name, _ in out)}
        content.append([name for name in schema.names if name in names])
    return ChangelogJoinOracle(
        keys=(kernel.left_key, kernel.right_key),
        on=kernel.on,
        version=kernel.version,
        deleted=kernel.deleted,
        how=kernel.how,
        out=(kernel.left_out, kernel.right_out),
        tombstones=kernel.tombstones,
        content=(content[0], content[1]),
    )


def storable(kernel: ChangelogJoin, oracle: ChangelogJoinOracle) -> int:
    """How many rows need to be kept: those that a null keeps from joining only for the left join's sake."""
    count = 0
    for side, table in enumerate(oracle.tables):
        for row in table.values():
            hopeless = any(row[pair[side]] is None for pair in kernel.on)
            count += not hopeless or (side == 0 and kernel.how == "left")
    return count


@given(cases())
@settings(max_examples=CASES, deadline=None)
def test_every_batch_gives_what_the_oracle_gives(case: Case) -> None:
    kernel = case.kernel
    run = driver(kernel, max_delay=case.max_delay, seed=case.seed, buckets=2)
    oracle = oracle_of(kernel)
    weak = patch.object(changelog_table, "key_hash", weak_hash if case.weak else key_hash)
    with weak, patch.object(matching, "PAIRS_AT_ONCE", 3):
        for lefts, rights in case.batches:
            wanted = oracle.batch(run.watermark, lefts, rights)
            run.batch(lefts, rights)
            assert counted(run.by_batch[-1]) == counted(wanted)
        assert kept(run) == storable(kernel, oracle)
        oracle.batch(10**9, [], [])
        run.finish(10**9)
    assert run.by_batch[-1] == []
    assert kept(run) == storable(kernel, oracle)
    key = [dict(kernel.left_out)[name] for name in kernel.left_key]
    assert repr(sorted(applied(run.main, key).items(), key=repr)) == repr(sorted(oracle.joined().items(), key=repr))
    if kernel.tombstones is not None:
        assert set(run.wakes.values()) <= {None}
    assert not run.missed


def test_an_older_change_is_ignored() -> None:
    run = driver(KERNEL)
    run.batch([left(time=5, p=5)], [right(time=5)])
    run.batch([left(time=4, p=4)], [right(time=4, r=9.0)])
    assert [(row["p"], row["r"]) for row in run.main] == [(5, 0.5)]
    assert run.by_batch[1] == []
    assert run.written[1] == 0


def test_a_repeated_change_writes_and_gives_nothing() -> None:
    run = driver(KERNEL)
    run.batch([left(time=5, p=5)], [right(time=5)])
    run.batch([left(time=5, p=5)], [right(time=5)])
    assert run.by_batch[1] == []
    assert run.written[1] == 0


def test_a_newer_version_that_looks_the_same_is_kept_but_not_given() -> None:
    run = driver(KERNEL)
    run.batch([left(time=5, p=5)], [right(time=5)])
    run.batch([left(time=7, p=5)], [])
    run.batch([left(time=6, p=6)], [])
    assert [len(batch) for batch in run.by_batch] == [1, 0, 0]


def test_a_partner_of_nulls_changes_nothing_to_see() -> None:
    run = driver(replace(KERNEL, right_out=(("r", "r"),)))
    run.batch([left()], [])
    run.batch([], [right(r=None)])
    run.batch([], [right(time=1, r=1.0)])
    assert [[row["r"] for row in batch] for batch in run.by_batch] == [[None], [], [1.0]]


@pytest.mark.parametrize("turned", [False, True])
def test_equal_versions_are_decided_by_content_not_by_order(turned: bool) -> None:
    changes = [left(time=5, p=1, q="z"), left(time=5, p=2, q="a"), left(time=5, p=2, q=None)]
    run = driver(KERNEL)
    for row in reversed(changes) if turned else changes:
        run.batch([row], [])
    assert (run.main[-1]["p"], run.main[-1]["q"]) == (2, "a")


def test_a_deleted_row_is_given_as_its_key_alone() -> None:
    run = driver(MANY)
    run.batch([left(time=1, p=1, n=n, q="q") for n in (1, 2)], [right(time=1)])
    run.batch([left(time=2, n=2, dead=True, q="q")], [])
    gone = {"k": "a", "p": None, "j": 1, "q": None, "r": None, "id": None, "n": 2, "deleted": True}
    assert run.by_batch[1] == [gone]


def test_in_an_inner_join_rows_come_and_go_with_their_partner() -> None:
    run = driver(replace(MANY, how="inner", tombstones=None))
    run.batch([left(p=n, n=n) for n in (1, 2)], [])
    run.batch([], [right(time=1)])
    run.batch([], [right(time=2, dead=True)])
    run.batch([left(p=9, n=3)], [])
    run.batch([], [right(time=3, r=3.5)])
    seen = [sorted((row["n"], row["r"], row["deleted"]) for row in batch) for batch in run.by_batch]
    assert seen == [
        [],
        [(1, 0.5, False), (2, 0.5, False)],
        [(1, None, True), (2, None, True)],
        [],
        [(1, 3.5, False), (2, 3.5, False), (3, 3.5, False)],
    ]


def test_a_tombstone_keeps_older_changes_away_until_it_is_forgotten() -> None:
    run = driver(KERNEL, buckets=1)
    run.batch([left(time=5000, dead=True)], [])
    run.batch([left(time=4000, p=4)], [])
    assert run.main == []
    assert run.wakes == {0: 8000}
    run.batch([], [right("zzz", time=8999)])
    assert kept(run) == 2
    run.batch([], [])
    assert kept(run) == 1
    assert run.wakes == {0: None}
    run.batch([left(time=4000, p=4)], [])
    assert [row["p"] for row in run.main] == [4]


def test_a_tombstone_comes_due_to_the_microsecond() -> None:
    rows = pa.Table.from_pylist([left(time=5000, dead=True)], schema=LEFT)
    early = KERNEL.advance({}, [[rows], []], 7999)
    assert early.wake == 8000
    woken = KERNEL.advance(early.put, [[], []], 8000)
    assert set(woken.drop) == set(early.put)
    assert not woken.put
    due = KERNEL.advance({}, [[rows], []], 8000)
    assert due.wake is None
    assert not due.put


def test_without_a_limit_tombstones_stay() -> None:
    run = driver(replace(KERNEL, tombstones=None), buckets=1)
    run.batch([left(time=5000, dead=True)], [right(time=10**9)])
    run.finish(10**12)
    assert kept(run) == 2
    assert run.wakes == {0: None}


def test_nulls_in_join_columns_join_nothing() -> None:
    run = driver(KERNEL)
    run.batch([left(None, p=1), left("a", p=2, j=None)], [right(None), right("a", jid=None)])
    assert sorted((row["p"], row["r"]) for row in run.main) == [(1, None), (2, None)]
    run.batch([left(None, p=3, time=1)], [])
    assert [row["p"] for row in run.by_batch[1]] == [3], "null is a key like any other"
    inner = driver(replace(KERNEL, how="inner"))
    inner.batch([left(None)], [right(None)])
    assert inner.main == []
    assert inner.chunk_count() == 0


def test_only_needed_columns_are_sent() -> None:
    rows = pa.Table.from_pylist([{**left(), BUCKET: 0}], schema=LEFT.append(pa.field(BUCKET, pa.int32())))
    assert KERNEL.prepare(0, rows).column_names == ["k", "j", "p", "q", "dead", TIME, BUCKET]


KEYS: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [True, False],
    pa.int8(): [1, -1],
    pa.uint64(): [1, 2**63],
    pa.float32(): [1.5, float("inf")],
    pa.date32(): [dt.date(2024, 1, 1), dt.date(1960, 1, 1)],
    pa.timestamp("us"): [dt.datetime(2024, 1, 1), dt.datetime(1960, 1, 1)],  # noqa: DTZ001
    pa.decimal128(30, 2): [Decimal("1.25"), Decimal("-12345678901234567890.25")],
    pa.string(): ["", "a" * 100],
    pa.binary(): [b"\x00", b""],
}


@pytest.mark.parametrize("kind", list(KEYS), ids=str)
def test_keys_versions_and_values_of_any_type(kind: pa.DataType) -> None:
    schema = pa.schema([(TIME, pa.int64()), ("k", kind), ("version", kind), ("v", kind)])
    least, most = sorted(KEYS[kind])
    kernel = ChangelogJoin(
        left=schema,
        right=schema,
        left_key=("k",),
        right_key=("k",),
        on=(("k", "k"),),
        how="inner",
        left_out=(("k", "k"), ("v", "v")),
        right_out=(("v", "w"),),
        version=("version", "version"),
    )
    rows = [{TIME: 0, "k": key, "version": most, "v": key} for key in KEYS[kind]]
    run = driver(kernel)
    run.batch(rows, [])
    run.batch([], rows)
    assert counted(run.main) == counted([{"k": k, "v": k, "w": k, "deleted": False} for k in KEYS[kind]])
    run.batch(
        [{TIME: 9, "k": least, "version": least, "v": most}, {TIME: 9, "k": most, "version": None, "v": least}], []
    )
    assert run.by_batch[2] == []
    run.batch([{TIME: 9, "k": least, "version": most, "v": most}], [])
    assert run.by_batch[3] == [{"k": least, "v": most, "w": least, "deleted": False}]


NESTED: list[tuple[pa.DataType, Any, Any]] = [
    (pa.list_(pa.int64()), [1, 2], [1, None]),
    (pa.struct([("a", pa.string()), ("b", pa.list_(pa.float64()))]), {"a": "x", "b": [1.0]}, {"a": "x", "b": []}),
    (pa.map_(pa.string(), pa.int64()), [("a", 1)], [("b", 1)]),
]


@pytest.mark.parametrize(("kind", "one", "other"), NESTED, ids=lambda value: str(value)[:20])
def test_nested_values_are_compared(kind: pa.DataType, one: Any, other: Any) -> None:
    schema = pa.schema([(TIME, pa.int64()), ("k", pa.string()), ("v", kind)])
    kernel = ChangelogJoin(
        schema, schema, ("k",), ("k",), (("k", "k"),), "left", (("k", "k"), ("v", "v")), (("v", "w"),), slots=2
    )
    finals = []
    for changes in ([one, other], [other, one]):
        run = driver(kernel)
        for value in changes:
            run.batch([{TIME: 1, "k": "a", "v": value}], [])
        run.batch([{TIME: 2, "k": "a", "v": run.main[-1]["v"]}], [])
        assert run.by_batch[-1] == []
        run.batch([{TIME: 3, "k": "a", "v": None}], [{TIME: 3, "k": "a", "v": one}])
        assert [(row["v"], row["w"]) for row in run.by_batch[-1]] == [(None, one)]
        finals.append(repr(run.main[-2]))
    assert finals[0] == finals[1]


class Watched(dict[int, pa.Table]):
    """Says what is read of a state."""

    read: list[int]

    def __getitem__(self, number: int) -> pa.Table:
        self.read.append(number)
        return super().__getitem__(number)


def advanced(kernel: ChangelogJoin, state: dict[int, pa.Table], lefts: list[Row], rights: list[Row]) -> Any:
    """An advance, and the state after it: what was read, and what came of it."""
    tables = [
        [pa.Table.from_pylist(rows, schema=schema)] if rows else [] for rows, schema in ((lefts, LEFT), (rights, RIGHT))
    ]
    watched = Watched(state)
    watched.read = []
    result = kernel.advance(watched, tables, NO_WATERMARK)
    for number in result.drop:
        del state[number]
    state.update(result.put)
    return result, watched.read


def test_only_touched_slots_are_read_and_recent_rows_written() -> None:
    kernel = replace(SIMPLE, slots=16, recent_rows=10)
    state: dict[int, pa.Table] = {}
    advanced(kernel, state, [left(f"k{n}", p=n) for n in range(500)], [right(f"k{n}", r=float(n)) for n in range(500)])
    assert len(state) == 33, "all in slots, and a catalog"
    sizes = [table.num_rows for number, table in state.items() if number % 2]
    assert sum(sizes) == 500
    assert max(sizes) < 3 * min(sizes), "keys are spread evenly"
    result, read = advanced(kernel, state, [left("k7", p=-1, time=1)], [])
    assert [(row["p"], row["r"]) for row in result.main.to_pylist()] == [(-1, 7.0)]
    assert len(read) == 3, "the catalog and the slot of both sides"
    assert set(result.put) == {CATALOG, 1}
    assert result.put[1].num_rows == 1
    assert not result.drop
    result, read = advanced(kernel, state, [], [right("k7", r=-7.0, time=1)])
    assert [(row["p"], row["r"]) for row in result.main.to_pylist()] == [(-1, -7.0)], "recent rows hide older ones"
    assert set(result.put) == {CATALOG, 2}


def test_recent_rows_are_moved_before_they_cost_more_than_that() -> None:
    kernel = replace(SIMPLE, slots=16, recent_rows=10)
    state: dict[int, pa.Table] = {}
    advanced(kernel, state, [left(f"k{n}") for n in range(2000)], [])
    written = 0
    most = 0
    for n in range(400):
        result, _ = advanced(kernel, state, [left(f"k{(37 * n) % 2000}", p=n, time=n + 1)], [])
        written += sum(table.num_rows for number, table in result.put.items() if number != CATALOG)
        most = max(most, state[1].num_rows if 1 in state else 0)
    assert most <= (2 * 2000) ** 0.5 + 1
    assert written < 30_000, "a slot has 125 rows, so that writing slots would have cost 50,000"
    assert sum(table.num_rows for number, table in state.items() if number > 2) == 2000


def test_hashes_never_change() -> None:
    """State is kept by them."""
    columns = [pa.array(["", "abc", "x" * 50, None]), pa.array([0, -1, 2**40, 7])]
    assert [hex(value) for value in key_hash(columns)] == [
        "0x3856156f9eb82a14",
        "0x7badf0830d817724",
        "0xceed9e0390997773",
        "0xc6627523b7ea0272",
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"how": "full"},
        {"on": ()},
        {"on": (("k", "id"),)},
        {"left_key": ("k", "n")},
        {"left_out": (("k", "k"),)},
        {"on": (("k", "jid"), ("j", "id"))},
        {"deleted": ("p", None)},
        {"slots": 0},
        {"tombstones": -1},
    ],
)
def test_what_cannot_be_kept_right_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        replace(KERNEL, **change)


def test_kernels_travel() -> None:
    assert KERNEL.output.names
    assert pickle.loads(pickle.dumps(KERNEL)) == KERNEL
