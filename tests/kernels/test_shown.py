"""What kernels show of their state after random batches, against dictionaries and loops that keep what must be kept."""

from __future__ import annotations

import os
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import h3  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernels.driving import Driver, Row
from tests.kernels.window_oracle import aggregated

from penstock.kernels.aggregate import Aggregate
from penstock.kernels.base import NO_WATERMARK, TIME, Kernel
from penstock.kernels.changelog_join import ChangelogJoin
from penstock.kernels.dedupe import Dedupe
from penstock.kernels.geo_window import GeoWindow
from penstock.kernels.interval_join import IntervalJoin
from penstock.kernels.latest import Latest
from penstock.kernels.rolling import Rolling
from penstock.kernels.session import Session
from penstock.kernels.top_n import TopN
from penstock.kernels.window import Window

SECOND = 1_000_000
DELAY = 3 * SECOND
COLUMNS = pa.schema([(TIME, pa.int64()), ("id", pa.int64()), ("key", pa.string()), ("value", pa.int64())])
AGGREGATES = (
    Aggregate("n", "count"), Aggregate("total", "sum", "value"), Aggregate("different", "count_distinct", "value"),
    Aggregate("newest", "last", "id"), Aggregate("mean", "avg", "value"),
)  # fmt: skip
Kept = Callable[[], list[Row]]
Fed = Callable[[Sequence[Row], int, int], None]
"""Takes rows of a batch, the watermark they are judged by, and that of the batch."""
seeds = st.integers(0, 1 << 48).map(random.Random)
few = settings(max_examples=60 * int(os.environ.get("PENSTOCK_CASES", "1")), deadline=None)


def instant(time: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time)


def batches(draw: random.Random) -> list[list[Row]]:
    """Rows of ever later times, some of them out of order and some too late."""
    found, id, now = [], 0, 0
    for _ in range(draw.randint(1, 7)):
        rows = []
        for _ in range(draw.randint(0, 9)):
            now += draw.randint(0, 4)
            id += 1
            time = max(now - draw.choice([0, 0, 1, 3, 9]), 0) * SECOND + draw.randint(0, 2)
            value = None if draw.random() < 0.2 else draw.randint(0, 4)
            rows.append({TIME: time, "id": id, "key": draw.choice(["a", "b", None]), "value": value})
        found.append(rows)
    return found


def as_counts(rows: Sequence[Row]) -> Counter[str]:
    plain = [
        {name: str(value) if isinstance(value, datetime) else value for name, value in row.items()} for row in rows
    ]
    return Counter(repr(sorted(row.items())) for row in plain)


def shown(driver: Driver) -> list[Row]:
    tables = [driver.kernel.shown(chunks.tables(), driver.before) for chunks in driver.state.values()]
    empty = driver.kernel.shown({}, NO_WATERMARK)
    assert empty.num_rows == 0
    assert all(table.schema.equals(empty.schema) for table in tables), (
        empty.schema,
        [table.schema for table in tables],
    )
    assert set(driver.kernel.shown_keys) <= set(empty.schema.names)
    return [row for table in tables for row in table.to_pylist()]


def compare(draw: random.Random, kernel: Kernel, fed: Fed, kept: Kept) -> None:
    """Feeds batches to both and compares after each."""
    driver = Driver(kernel, [COLUMNS], [kernel.shown_keys], DELAY, seed=draw.randint(0, 1 << 30))
    for rows in batches(draw):
        before, now = driver.before, driver.watermark
        driver.batch(rows)
        fed(rows, before, now)
        assert as_counts(shown(driver)) == as_counts(kept())


# --- windows -----------------------------------------------------------------------------------------------------


class Windows:
    """Rows by window and key."""

    def __init__(self, size: int, slide: int, allowed: int, keys: Callable[[Row], list[Row]]) -> None:
        self.size, self.slide, self.allowed, self.keys = size, slide, allowed, keys
        self.rows: dict[tuple[Any, ...], list[Row]] = defaultdict(list)

    def feed(self, rows: Sequence[Row], before: int, now: int) -> None:
        for row in rows:
            start = row[TIME] // self.slide * self.slide
            while start + self.size > row[TIME]:
                if start + self.size > before - self.allowed:
                    for key in self.keys(row):
                        self.rows[start, *key.items()].append(row)
                start -= self.slide
        self.rows = defaultdict(
            list, {key: rows for key, rows in self.rows.items() if key[0] + self.size > now - self.allowed}
        )

    def kept(self) -> list[Row]:
        return [
            {
                **dict(keys),
                "window_start": instant(start),
                "window_end": instant(start + self.size),
                **{each.name: aggregated(each, rows) for each in AGGREGATES},
            }
            for (start, *keys), rows in self.rows.items()
        ]


def of_key(row: Row) -> list[Row]:
    return [{"key": row["key"]}]


@few
@given(seeds)
def test_windows_that_can_change(draw: random.Random) -> None:
    size = draw.choice([4, 6]) * SECOND
    slide = draw.choice([None, size // 2, SECOND])
    allowed = draw.choice([0, 0, 5 * SECOND])
    emit = draw.choice(["close", "update"])
    oracle = Windows(size, slide or size, allowed, of_key)
    kernel = Window(COLUMNS, ("key",), AGGREGATES, size, slide, emit, allowed)
    compare(draw, kernel, oracle.feed, oracle.kept)


@few
@given(seeds)
def test_windows_without_a_key(draw: random.Random) -> None:
    oracle = Windows(4 * SECOND, 4 * SECOND, 0, lambda row: [{}])
    compare(draw, Window(COLUMNS, (), AGGREGATES, 4 * SECOND), oracle.feed, oracle.kept)


@few
@given(seeds)
def test_windows_of_cells(draw: random.Random) -> None:
    ring, slide = draw.randint(0, 1), draw.choice([None, 2 * SECOND])
    places = [(52.52, 13.405), (52.53, 13.41), (-33.9, 151.2)]
    schema = COLUMNS.append(pa.field("lat", pa.float64())).append(pa.field("lon", pa.float64()))

    def cells(row: Row) -> list[Row]:
        around = h3.grid_disk(h3.latlng_to_cell(row["lat"], row["lon"], 8), ring)
        return [{"cell": cell, "key": row["key"]} for cell in around]

    oracle = Windows(4 * SECOND, slide or 4 * SECOND, 0, cells)
    kernel = GeoWindow(
        schema, ("key",), AGGREGATES, "lat", "lon", 8, ring, buckets=3, size=4 * SECOND, slide=slide
    )  # fmt: skip
    driver = Driver(kernel, [schema], [("key",)], DELAY, seed=draw.randint(0, 1 << 30))
    for rows in batches(draw):
        placed = [{**row, **dict(zip(("lat", "lon"), draw.choice(places), strict=True))} for row in rows]
        before, now = driver.before, driver.watermark
        driver.batch(placed)
        oracle.feed(placed, before, now)
        assert as_counts(shown(driver)) == as_counts(oracle.kept())
    for bucket, chunks in driver.state.items():
        for row in kernel.shown(chunks.tables(), driver.before).select(["cell", "key"]).to_pylist():
            assert kernel.own_bucket(pa.Table.from_pylist([row], pa.schema([("cell", "str"), ("key", "str")])), 3) == (
                bucket
            )


@few
@given(seeds)
def test_sessions_that_have_not_ended(draw: random.Random) -> None:
    gap = draw.choice([2, 5]) * SECOND
    open_: dict[Any, list[list[Row]]] = defaultdict(list)

    def feed(rows: Sequence[Row], before: int, now: int) -> None:
        came = sorted((row for row in rows if row[TIME] + gap > before), key=lambda row: row[TIME])
        for key in {*open_, *(row["key"] for row in came)}:
            known = [row for session in open_[key] for row in session] + [row for row in came if row["key"] == key]
            sessions: list[list[Row]] = []
            for row in sorted(known, key=lambda row: row[TIME]):
                if sessions and row[TIME] <= sessions[-1][-1][TIME] + gap:
                    sessions[-1].append(row)
                else:
                    sessions.append([row])
            open_[key] = [session for session in sessions if session[-1][TIME] + gap > now]

    def kept() -> list[Row]:
        return [
            {
                "key": key,
                "window_start": instant(session[0][TIME]),
                "window_end": instant(session[-1][TIME] + gap),
                **{each.name: aggregated(each, session) for each in AGGREGATES},
            }
            for key, sessions in open_.items()
            for session in sessions
        ]

    compare(draw, Session(COLUMNS, ("key",), AGGREGATES, gap), feed, kept)


@few
@given(seeds)
def test_lists_of_windows(draw: random.Random) -> None:
    size, n, allowed = 5 * SECOND, draw.randint(1, 3), draw.choice([0, 6 * SECOND])
    windows: dict[tuple[int, Any], list[Row]] = defaultdict(list)

    def feed(rows: Sequence[Row], before: int, now: int) -> None:
        for row in rows:
            start = row[TIME] // size * size
            if start + size > before - allowed:
                windows[start, row["key"]].append(row)
        for start, key in list(windows):
            if start + size <= now - allowed:
                del windows[start, key]

    def kept() -> list[Row]:
        found = []
        for (start, key), rows in windows.items():
            ranked = sorted(rows, key=lambda row: (row["value"] is None, -(row["value"] or 0), row["id"]))[:n]
            bounds = {"window_start": instant(start), "window_end": instant(start + size)}
            found += [
                {**bounds, "rank": rank, "key": key, "id": row["id"], "value": row["value"]}
                for rank, row in enumerate(ranked, 1)
            ]
        return found

    kernel = TopN(COLUMNS, ("key",), n, (("value", True),), size, ("id", "key", "value"), allowed)
    compare(draw, kernel, feed, kept)


# --- rows --------------------------------------------------------------------------------------------------------


@few
@given(seeds)
def test_rows_of_rolling_intervals(draw: random.Random) -> None:
    """Of a column that is only counted it is kept whether it was there, of others the value."""
    over, at_once = draw.choice([3, 7]) * SECOND, draw.random() < 0.5
    rows_: list[Row] = []
    watermark = NO_WATERMARK

    def feed(rows: Sequence[Row], before: int, now: int) -> None:
        nonlocal watermark
        rows_.extend(row for row in rows if row[TIME] > before)
        watermark = now

    def kept() -> list[Row]:
        found = []
        for row in rows_:
            waits = not at_once and row[TIME] > watermark
            told = {"waits": waits, "event_time": instant(row[TIME]), "key": row["key"]}
            values = {"id is there": row["id"] is not None, "value": row["value"], "id": row["id"] if waits else None}
            if waits or row[TIME] > watermark + 1 - over:
                found.append({**told, **values})
        return found

    aggregates = (Aggregate("n", "count", "id"), Aggregate("total", "sum", "value"))
    kernel = Rolling(COLUMNS, ("key",), aggregates, over, ("id", "key", "value"), at_once)
    compare(draw, kernel, feed, kept)


@few
@given(seeds)
def test_rolling_that_only_counts_different_values_keeps_the_last_of_each(draw: random.Random) -> None:
    over = draw.choice([3, 7]) * SECOND
    rows_: list[Row] = []
    watermark = NO_WATERMARK

    def feed(rows: Sequence[Row], before: int, now: int) -> None:
        nonlocal watermark
        rows_.extend(row for row in rows if row[TIME] > before)
        watermark = now

    def kept() -> list[Row]:
        found = [row for row in rows_ if row[TIME] > watermark]
        last: dict[Any, list[Row]] = defaultdict(list)
        for row in rows_:
            if watermark + 1 - over < row[TIME] <= watermark and row["value"] is not None:
                last[row["key"], row["value"]].append(row)
        told = [({"waits": True}, row) for row in found]
        told += [({"waits": False}, max(rows, key=lambda row: row[TIME])) for rows in last.values()]
        return [
            {**waits, "event_time": instant(row[TIME]), "key": row["key"], "value": row["value"],
             "id": row["id"] if waits["waits"] else None}
            for waits, row in told
        ]  # fmt: skip

    kernel = Rolling(COLUMNS, ("key",), (Aggregate("d", "count_distinct", "value"),), over, ("id", "key", "value"))
    compare(draw, kernel, feed, kept)


@few
@given(seeds)
def test_last_rows(draw: random.Random) -> None:
    forget = draw.choice([None, 4 * SECOND])
    last: dict[Any, Row] = {}

    def feed(rows: Sequence[Row], before: int, now: int) -> None:
        for row in rows:
            if forget is not None and row[TIME] < before - forget:
                continue
            was = last.get(row["key"])
            if was is None or (row[TIME], row["id"]) > (was[TIME], was["id"]):
                last[row["key"]] = row
        for key in [key for key, row in last.items() if forget is not None and row[TIME] + forget < now]:
            del last[key]

    def kept() -> list[Row]:
        return [
            {"event_time": instant(row[TIME]), "key": key, "id": row["id"], "value": row["value"]}
            for key, row in last.items()
        ]

    compare(draw, Latest(COLUMNS, ("key",), ("id", "key", "value"), forget=forget, slots=2), feed, kept)


@few
@given(seeds)
def test_rows_that_keep_repetitions_back(draw: random.Random) -> None:
    within, exact = draw.choice([2, 5]) * SECOND, draw.random() < 0.6
    waiting: list[Row] = []
    given_: dict[Any, list[int]] = defaultdict(list)
    watermark = NO_WATERMARK

    def feed(rows: Sequence[Row], before: int, now: int) -> None:
        nonlocal watermark, waiting
        watermark = now
        waiting += [row for row in rows if row[TIME] > before]
        due = [row for row in waiting if not exact or row[TIME] <= now]
        waiting = [row for row in waiting if exact and row[TIME] > now]
        for row in sorted(due, key=lambda row: row[TIME]):
            if all(abs(row[TIME] - time) > within for time in given_[row["key"]]):
                given_[row["key"]].append(row[TIME])

    def kept() -> list[Row]:
        whole = [
            {"waits": True, "event_time": instant(row[TIME]), "key": row["key"], "id": row["id"], "value": row["value"]}
            for row in waiting
        ]
        return whole + [
            {"waits": False, "event_time": instant(time), "key": key, "id": None, "value": None}
            for key, times in given_.items()
            for time in times
            if time > watermark - within
        ]

    compare(draw, Dedupe(COLUMNS, ("key",), within, ("id", "key", "value"), exact), feed, kept)


# --- joins -------------------------------------------------------------------------------------------------------

OTHERS = pa.schema([(TIME, pa.int64()), ("name", pa.string()), ("note", pa.int64())])


def sides(draw: random.Random) -> list[tuple[list[Row], list[Row]]]:
    return [
        (left, [{TIME: row[TIME], "name": row["key"], "note": row["id"]} for row in right])
        for left, right in zip(batches(draw), batches(draw), strict=False)
    ]


@few
@given(seeds)
def test_rows_that_may_find_a_partner(draw: random.Random) -> None:
    how = draw.choice(["inner", "left", "right", "full"])
    lower, upper = draw.choice([(0, 4 * SECOND), (-2 * SECOND, SECOND), (SECOND, 5 * SECOND)])
    kernel = IntervalJoin(
        COLUMNS, OTHERS, ("key",), ("name",), how, lower, upper,
        (("id", "id"), ("key", "key"), ("value", "value")), (("note", "note"),), small_run=3, chunk_rows=4,
    )  # fmt: skip
    driver = Driver(kernel, [COLUMNS, OTHERS], [("key",), ("name",)], DELAY, seed=draw.randint(0, 1 << 30))
    lefts: list[Row] = []
    rights: list[Row] = []
    for left, right in sides(draw):
        before, now = driver.before, driver.watermark
        driver.batch(left, right)
        lefts += [row for row in left if row[TIME] > before and row["key"] is not None]
        rights += [row for row in right if row[TIME] > before and row["name"] is not None]

        def meet(one: Row, other: Row) -> bool:
            return bool(one["key"] == other["name"] and lower <= other[TIME] - one[TIME] <= upper)

        wanted = [
            {
                "side": "left", "event_time": instant(row[TIME]), "key": row["key"], "id": row["id"],
                "value": row["value"], "note": None,
                "matched": any(meet(row, other) for other in rights) if how in ("left", "full") else None,
            }
            for row in lefts if row[TIME] + upper > now
        ] + [
            {
                "side": "right", "event_time": instant(row[TIME]), "key": row["name"], "id": None, "value": None,
                "note": row["note"],
                "matched": any(meet(other, row) for other in lefts) if how in ("right", "full") else None,
            }
            for row in rights if row[TIME] - lower > now
        ]  # fmt: skip
        assert as_counts(shown(driver)) == as_counts(wanted)


@few
@given(seeds)
def test_tables_of_changes(draw: random.Random) -> None:
    tombstones = draw.choice([None, 3 * SECOND])
    left = COLUMNS.append(pa.field("gone", pa.bool_()))
    right = OTHERS.append(pa.field("gone", pa.bool_()))
    kernel = ChangelogJoin(
        left, right, ("key",), ("name",), (("key", "name"),), "left",
        (("id", "id"), ("key", "key"), ("value", "value")), (("note", "note"),),
        deleted=("gone", "gone"), tombstones=tombstones, slots=2, recent_rows=2,
    )  # fmt: skip
    driver = Driver(kernel, [left, right], [("key",), ("name",)], DELAY, seed=draw.randint(0, 1 << 30))
    tables: tuple[dict[Any, Row], dict[Any, Row]] = ({}, {})
    for parts in sides(draw):
        now = driver.watermark
        dated = [[{**row, "gone": draw.random() < 0.3} for row in part] for part in parts]
        driver.batch(*dated)
        for table, rows, name, tie in zip(tables, dated, ("key", "name"), ("id", "note"), strict=True):
            for row in rows:
                was = table.get(row[name])
                if name == "name" and row[name] is None:
                    continue
                rank = (row[TIME], row["gone"], row[tie])
                if was is None or rank > (was[TIME], was["gone"], was[tie]):
                    table[row[name]] = row
            if tombstones is not None:
                for key in [key for key, row in table.items() if row["gone"] and row[TIME] <= now - tombstones]:
                    del table[key]
        wanted = [
            {"side": side, "event_time": instant(row[TIME]), "deleted": row["gone"], "key": key,
             "id": row.get("id"), "value": row.get("value"), "note": row.get("note")}
            for side, table in zip(("left", "right"), tables, strict=True) for key, row in table.items()
        ]  # fmt: skip
        assert as_counts(shown(driver)) == as_counts(wanted)


def test_names_that_rows_have_themselves_are_not_taken_twice() -> None:
    schema = pa.schema([(TIME, pa.int64()), ("waits", pa.string()), ("event_time", pa.int64())])
    found = Dedupe(schema, ("waits",), SECOND, ("waits", "event_time")).shown({}, NO_WATERMARK)
    assert found.schema.names == ["_waits", "_event_time", "waits", "event_time"]


def test_a_cell_that_is_none_is_told() -> None:
    kernel = GeoWindow(COLUMNS, (), AGGREGATES, "lat", "lon", 8, 0, buckets=3, size=SECOND)
    with pytest.raises(ValueError, match="hexadecimal"):
        kernel.own_bucket(pa.table({"cell": ["Berlin"]}), 3)
