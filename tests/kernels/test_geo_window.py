"""Windows by hexagonal cells: each row counts in all cells around it."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import h3  # type: ignore[import-untyped]
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernels.driving import CASES, Driver, Row

from penstock.kernels.aggregate import Aggregate
from penstock.kernels.base import NO_WATERMARK, TIME
from penstock.kernels.geo_window import GeoWindow

SIZE, RESOLUTION, BUCKETS = 1_000_000, 8, 3
SCHEMA = pa.schema(
    [(TIME, pa.int64()), ("lat", pa.float64()), ("lon", pa.float64()), ("city", pa.string()), ("user", pa.int64())]
)
AGGREGATES = (Aggregate("n", "count"), Aggregate("users", "count_distinct", "user"))
_PLACES = [(52.52, 13.405), (52.521, 13.405), (52.53, 13.41), (52.6, 13.5), (-33.9, 151.2), (89.99, 0.0), (0.0, 180.0)]


def kernel(ring: int, slide: int | None = None) -> GeoWindow:
    return GeoWindow(
        SCHEMA, ("city",), AGGREGATES, "lat", "lon", RESOLUTION, ring, buckets=BUCKETS, size=SIZE, slide=slide
    )


def oracle(rows: list[Row], ring: int, slide: int) -> dict[tuple[Any, ...], tuple[int, int]]:
    """Rows by window, cell and city, counted one by one."""
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        if row["lat"] is None or row["lon"] is None or abs(row["lat"]) > 90 or abs(row["lon"]) > 180:
            continue
        start = row[TIME] // slide * slide
        while start > row[TIME] - SIZE:
            for cell in h3.grid_disk(h3.latlng_to_cell(row["lat"], row["lon"], RESOLUTION), ring):
                groups[start, int(cell, 16), row["city"]].append(row)
            start -= slide
    return {key: (len(group), len({row["user"] for row in group} - {None})) for key, group in groups.items()}


def by_group(rows: list[Row]) -> dict[tuple[Any, ...], tuple[int, int]]:
    found = {}
    for row in rows:
        key = (int(row["window_start"].timestamp() * 1_000_000), row["cell"], row["city"])
        assert key not in found, "a group twice"
        found[key] = (row["n"], row["users"])
    return found


def rows_of(draw: st.DrawFn) -> list[Row]:
    places = st.sampled_from([*_PLACES, (None, 13.0), (95.0, 0.0), (0.0, 181.0)])
    row = st.builds(
        lambda time, place, city, user: {TIME: time, "lat": place[0], "lon": place[1], "city": city, "user": user},
        st.integers(0, 4 * SIZE),
        places,
        st.sampled_from(["b", "s", None]),
        st.sampled_from([1, 2, None]),
    )
    return draw(st.lists(row, max_size=8))


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Row], list[int], int, int | None, int]:
    rows = rows_of(draw)
    cuts = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    return rows, cuts, draw(st.integers(0, 2)), draw(st.sampled_from([None, SIZE // 2])), draw(st.integers(0, 99))


@settings(max_examples=CASES, deadline=None)
@given(cases())
def test_each_row_counts_in_the_cells_around_it(case: tuple[list[Row], list[int], int, int | None, int]) -> None:
    rows, cuts, ring, slide, seed = case
    driver = Driver(kernel(ring, slide), [SCHEMA], [("city",)], 10 * SIZE, BUCKETS, seed)
    for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        driver.batch(rows[start:end])
    driver.finish(100 * SIZE)

    assert by_group(driver.main) == oracle(rows, ring, slide or SIZE)
    assert driver.chunk_count() <= BUCKETS, "nothing but a note of the watermark is left"


def test_rows_that_are_nowhere_on_earth_are_dead_and_not_late() -> None:
    rows = [
        {TIME: 5, "lat": lat, "lon": lon, "city": "b", "user": 1}
        for lat, lon in [(52.5, 13.4), (None, 13.4), (91.0, 0.0), (0.0, float("nan"))]
    ]
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    judged = kernel(1).late(0, table, NO_WATERMARK)
    assert judged.dead is not None
    assert judged.dead.tolist() == judged.dropped.tolist() == [False, True, True, True]
    assert kernel(1).late(0, table, 10 * SIZE).missed.tolist() == [1, 0, 0, 0]


def test_many_rows_of_a_cell_travel_as_few() -> None:
    rows = [{TIME: 5, "lat": 52.52, "lon": 13.405, "city": "b", "user": 1} for _ in range(500)]
    table = pa.Table.from_pylist(rows, schema=SCHEMA).append_column("_bucket", pa.array([0] * 500, pa.int32()))
    assert kernel(1).prepare(0, table).num_rows == 7
