"""Places as hexagons of the H3 grid: each row once for every cell around it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
_WIDTH = 15
"""The hexadecimal digits of a cell; the first one is always 8."""


def cells_around(
    lat: pa.Array | pa.ChunkedArray, lon: pa.Array | pa.ChunkedArray, resolution: int, ring: int
) -> tuple[np.ndarray, pa.Array, np.ndarray]:
    """All cells that are at most `ring` steps from the cell of each row.

    Gives row numbers (int64, ascending), a cell for each of these (int64), and for each row whether it is bad: one
    whose place is null or none on Earth (NaN, latitude beyond 90 or longitude beyond 180 degrees) has no cells. There
    are 1 + 3 * ring * (ring + 1) cells around a place, or fewer where one of the twelve pentagons is near.
    """
    latitudes, longitudes = _degrees(lat), _degrees(lon)
    bad = ~((np.abs(latitudes) <= 90) & (np.abs(longitudes) <= 180))
    good = np.flatnonzero(~bad)
    cells = _cells(latitudes[good], longitudes[good], resolution)
    encoded = pa.array(cells).dictionary_encode()
    around, sizes = disks(encoded.dictionary.to_pylist(), ring)
    which = encoded.indices.to_numpy()
    counts = sizes[which]
    begins = np.cumsum(sizes) - sizes
    places = np.arange(int(counts.sum())) + np.repeat(begins[which] - (np.cumsum(counts) - counts), counts)
    return np.repeat(good, counts), pa.array(around[places]), bad


def cell_texts(cells: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Cells (int64) as H3 writes them: 15 hexadecimal digits."""
    array = _whole(cells)
    numbers = pc.fill_null(array, 0).to_numpy(zero_copy_only=False)
    digits = np.empty((len(numbers), _WIDTH), np.uint8)
    for place in range(_WIDTH):
        digits[:, place] = _DIGITS[(numbers >> (4 * (_WIDTH - 1 - place))) & 15]
    offsets = np.arange(len(numbers) + 1, dtype=np.int32) * np.int32(_WIDTH)
    texts = pa.Array.from_buffers(pa.string(), len(numbers), [None, pa.py_buffer(offsets), pa.py_buffer(digits)])
    return pc.if_else(pc.is_valid(array), texts, None) if array.null_count else texts


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _degrees(column: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Values as float64, NaN for null."""
    return np.asarray(_whole(column).cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)


def _cells(latitudes: np.ndarray, longitudes: np.ndarray, resolution: int) -> np.ndarray:
    """The cell of each place. H3 takes one place at a time, so places that come again are asked for once."""
    from h3.api.basic_int import latlng_to_cell  # type: ignore[import-untyped]

    pairs = np.stack([latitudes, longitudes], axis=1)
    size = len(latitudes)
    encoded = pa.Array.from_buffers(pa.binary(16), size, [None, pa.py_buffer(pairs)]).dictionary_encode()
    count = len(encoded.dictionary)
    places = np.frombuffer(encoded.dictionary.buffers()[1], np.float64, 2 * count).reshape(-1, 2)
    found = (latlng_to_cell(lat, lon, resolution) for lat, lon in zip(*places.T.tolist(), strict=True))
    return np.asarray(np.fromiter(found, np.int64, count)[encoded.indices.to_numpy()])


def disks(cells: list[int], ring: int) -> tuple[np.ndarray, np.ndarray]:
    """The cells around each of some cells, one after the other, and how many there are of each."""
    from h3.api.memview_int import grid_disk  # type: ignore[import-untyped]

    found = [grid_disk(cell, ring) for cell in cells]
    return np.frombuffer(b"".join(found), np.int64), np.array([len(disk) for disk in found], np.int64)
