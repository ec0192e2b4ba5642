"""What a contender has written, as a few numbers: a time without an equal answer does not count."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset

from benchmarks.views import LAST_USER

_TIME = pa.timestamp("ms")
_COLUMNS = {
    "windows": {"window_start": _TIME, "user": pa.int64(), "n": pa.int64()},
    "rows": {"ts": _TIME, "user": pa.int64(), "n": pa.int64(), "items": pa.int64()},
}
_WRAP = 1_000_003

Answer = dict[str, int]


def answer(output: Path, kind: str) -> Answer:
    """Rows, sums, and a sum that depends on which user and time each count belongs to.

    Without the last row, whose windows some systems close at the end of their input and others leave open.
    """
    columns = _COLUMNS[kind]
    time, *others = columns
    sums: Answer = {"rows": 0, **dict.fromkeys(others, 0), "mixed": 0}
    for table in _tables(output, columns):
        when = table[time].cast(_TIME, safe=False).to_numpy().astype("datetime64[ms]").astype(np.int64)
        kept = table["user"].to_numpy() != LAST_USER
        found = {name: table[name].to_numpy()[kept] for name in others}
        sums["rows"] += int(kept.sum())
        for name in others:
            sums[name] += int(found[name].sum())
        weight = (found["user"] * 31 + when[kept]) % _WRAP
        sums["mixed"] += int((weight * sum(found[name] % _WRAP for name in others[1:])).sum())
    del sums["user"]
    return sums


def _tables(output: Path, columns: dict[str, pa.DataType]) -> list[pa.Table]:
    files = [file for file in output.rglob("*") if file.is_file() and file.name[0] not in "._" and file.stat().st_size]
    parquet = [str(file) for file in files if file.suffix == ".parquet"]
    if parquet:
        return [pyarrow.dataset.dataset(parquet, format="parquet").to_table(columns=list(columns))]
    read = pyarrow.csv.ReadOptions(column_names=list(columns))
    return [_read_csv(file, columns, read) for file in files]


def _read_csv(file: Path, columns: dict[str, pa.DataType], read: pyarrow.csv.ReadOptions) -> pa.Table:
    """Lines without a header; times are written out, or in milliseconds."""
    with file.open("rb") as lines:
        numbers = lines.readline().split(b",")[0].isdigit()
    types = {name: pa.int64() if numbers else type for name, type in columns.items()}
    return pyarrow.csv.read_csv(file, read, convert_options=pyarrow.csv.ConvertOptions(column_types=types))
