"""Cells around places, against H3 asked for one place at a time and neighbours found step by step."""

from __future__ import annotations

from decimal import Decimal

import h3  # type: ignore[import-untyped]
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernels.driving import CASES

from penstock.kernels.hexagons import cell_texts, cells_around

ODD = [None, float("nan"), float("inf"), -float("inf"), 90.00001, -91.0, 180.5, -180.00001, 1e300]
PENTAGON = h3.cell_to_latlng(h3.get_pentagons(5)[3])
LATITUDES = st.one_of(
    st.floats(-90, 90), st.floats(52.4, 52.6), st.sampled_from([*ODD, 90.0, -90.0, 0.0, -0.0, PENTAGON[0]])
)
LONGITUDES = st.one_of(
    st.floats(-180, 180), st.floats(13.3, 13.5), st.sampled_from([*ODD, 180.0, -180.0, 0.0, PENTAGON[1]])
)


def around(lat: float | None, lon: float | None, resolution: int, ring: int) -> set[str]:
    """Neighbours of neighbours, a step for each ring."""
    if lat is None or lon is None or not (-90 <= lat <= 90) or not (-180 <= lon <= 180):
        return set()
    found = {h3.latlng_to_cell(lat, lon, resolution)}
    for _ in range(ring):
        found |= {other for cell in found for other in h3.grid_ring(cell, 1)}
    return found


@given(
    places=st.lists(st.tuples(LATITUDES, LONGITUDES), max_size=6),
    resolution=st.sampled_from([0, 1, 5, 8, 9, 15]),
    ring=st.integers(0, 2),
    chunks=st.booleans(),
)
@settings(max_examples=CASES, deadline=None)
def test_gives_what_h3_gives(
    places: list[tuple[float | None, float | None]], resolution: int, ring: int, chunks: bool
) -> None:
    places = places + places[:2]
    lat, lon = (pa.array([place[side] for place in places], pa.float64()) for side in (0, 1))
    if chunks:
        lat, lon = pa.chunked_array([lat[:1], lat[1:]]), pa.chunked_array([lon[:2], lon[2:]])
    rows, cells, bad = cells_around(lat, lon, resolution, ring)
    expected = [around(*place, resolution, ring) for place in places]
    texts = cell_texts(cells).to_pylist()
    assert cells.type == pa.int64()
    assert len(rows) == len(cells) == sum(map(len, expected))
    assert [{texts[n] for n in np.flatnonzero(rows == row)} for row in range(len(places))] == expected
    assert bad.tolist() == [not found for found in expected]
    assert (np.diff(rows) >= 0).all()


def test_no_rows() -> None:
    rows, cells, bad = cells_around(pa.array([], pa.float64()), pa.array([], pa.float64()), 8, 1)
    assert (len(rows), cells.type, len(cells), len(bad)) == (0, pa.int64(), 0, 0)
    assert cell_texts(cells).to_pylist() == []


def test_only_bad_rows() -> None:
    rows, cells, bad = cells_around(pa.array([None, 91.0]), pa.array([1.0, 1.0]), 8, 1)
    assert (len(rows), cells.type, len(cells), bad.tolist()) == (0, pa.int64(), 0, [True, True])


def test_a_pentagon_has_fewer_neighbours() -> None:
    rows, _, _ = cells_around(pa.array([PENTAGON[0], 52.5]), pa.array([PENTAGON[1], 13.4]), 5, 1)
    assert np.bincount(rows).tolist() == [6, 7]


@pytest.mark.parametrize("kind", [pa.float32(), pa.int64(), pa.decimal128(9, 6)])
def test_other_types_of_degrees(kind: pa.DataType) -> None:
    lat, lon = (pa.array([Decimal(degree), None]).cast(kind) for degree in (52, 13))
    rows, cells, bad = cells_around(lat, lon, 7, 0)
    assert (rows.tolist(), cell_texts(cells).to_pylist()) == ([0], [h3.latlng_to_cell(52, 13, 7)])
    assert bad.tolist() == [False, True]


def test_texts_of_nulls_and_chunks() -> None:
    text = h3.latlng_to_cell(1, 2, 9)
    number = h3.str_to_int(text)
    assert cell_texts(pa.chunked_array([[number], [None, number]], pa.int64())).to_pylist() == [text, None, text]
    assert cell_texts(pa.array([0, number, None, number])[1:]).to_pylist() == [text, None, text]
