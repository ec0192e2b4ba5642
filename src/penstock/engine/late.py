"""Rows that came too late, kept with all their columns, how late they were, and which window they missed.

A step with a kernel counts its late rows as they pass. Only when a batch has some, and the policy is to keep them,
are its rows read once more and the late ones picked out, so a stream without late rows pays nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.components.base import Sink
from penstock.components.shared.arrow import in_arrow
from penstock.components.shared.event_time import event_time_of, hold_of, micros_of
from penstock.components.sinks.files import Files
from penstock.engine.state.pack import micros
from penstock.errors import Location, Problem
from penstock.graph.nodes import Graph
from penstock.kernels.base import TIME, Kernel
from penstock.spec.fields import Config
from penstock.spec.pipeline import Step as StepSpec

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

SINK = "late"
COLUMNS = {
    "late_step": "string",
    "late_batch": "bigint",
    "late_by_ms": "bigint",
    "late_window_start": "timestamp",
    "late_window_end": "timestamp",
}
"""What is added to the columns of a late row. The window is null for steps that have none."""
_UTC = pa.timestamp("us", tz="UTC")


def late_sink(declared: Config | None, folder: Path) -> Sink:
    """The sink of the pipeline file, or JSON files in the state folder."""
    return declared if isinstance(declared, Sink) else Files(path=str(folder), format="json")


def late_columns(frame: DataFrame) -> dict[str, str]:
    """The columns of late rows of a step that reads this frame."""
    return {item.name: item.dataType.simpleString() for item in frame.schema.fields} | COLUMNS


def late_problems(graph: Graph, steps: Iterable[str], frames: Mapping[str, DataFrame]) -> Iterator[Problem]:
    """What would keep late rows of these steps from being stored: names that are taken, or a sink that cannot."""
    tables: dict[str, tuple[str, dict[str, str]]] = {}
    for step in steps:
        spec = graph.nodes[step].spec
        assert isinstance(spec, StepSpec)
        policy = graph.file.pipeline.late_policy(spec)
        if policy.policy != "side":
            continue
        place = graph.location(step) if spec.late is None else graph.location(step, "late")
        for source in graph.nodes[step].inputs:
            columns = late_columns(frames[source])
            for name in frames[source].columns:
                if name.lower() in COLUMNS:
                    yield Problem("COLUMN_REPEATED", {"node": f"late rows of {step}", "column": name}, place)
            if isinstance(policy.sink, Sink):
                for problem in policy.sink.check_columns(f"{SINK}_{step}", columns):
                    yield Problem(problem.code, problem.params, problem.location or place)
                yield from _two_kinds(policy.sink, f"{step} ({source})", columns, place, tables)


def _two_kinds(
    sink: Sink, whose: str, columns: dict[str, str], place: Location, tables: dict[str, tuple[str, dict[str, str]]]
) -> Iterator[Problem]:
    """A problem if rows with other columns go to the same table; folders are apart for each step."""
    table = getattr(sink, "table", None)
    if table is None:
        return
    other, known = tables.setdefault(sink.model_dump_json(), (whose, columns))
    if known != columns:
        reason = f"late rows of {whose} have other columns than those of {other}"
        yield Problem("SINK_TABLE_DIFFERS", {"node": SINK, "table": table, "reason": reason}, place)


def late_rows(rows: DataFrame, kernel: Kernel, side: int, step: str, batch: int, watermark_ms: int) -> DataFrame:
    """The late ones among a step's input rows of a batch, once for each window they missed."""
    from pyspark.sql import functions as F

    watermark = micros(watermark_ms, hold_of(rows))
    column = event_time_of(rows)
    assert column is not None
    names = rows.columns
    timed = rows.withColumn(TIME, micros_of(rows, column))
    fields = ", ".join(f"`{name}` {kind}" for name, kind in late_columns(rows).items())
    marked = in_arrow(timed, _pick(kernel, side, names, watermark), fields)
    return marked.withColumn("late_step", F.lit(step)).withColumn("late_batch", F.lit(batch).cast("bigint"))


def _pick(
    kernel: Kernel, side: int, names: list[str], watermark: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def pick(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            table = pa.Table.from_batches([batch])
            missed = kernel.late(side, table, watermark).missed
            if missed.any():
                yield from _described(table, names, kernel, missed, watermark).combine_chunks().to_batches()

    return pick


def _described(table: pa.Table, names: list[str], kernel: Kernel, missed: np.ndarray, watermark: int) -> pa.Table:
    times = table.column(TIME).to_numpy()
    index, start, end = _windows(kernel, times, missed)
    size = len(index)
    # A row is as late as the result it missed had been closed; a row without window as it lags behind the watermark.
    since = watermark - (times[index] + getattr(kernel, "gap", 0) if end is None else end)
    added = [
        pa.nulls(size, pa.string()),
        pa.nulls(size, pa.int64()),
        pa.array(since // 1000, pa.int64()),
        pa.nulls(size, _UTC) if start is None else pa.array(start).cast(_UTC),
        pa.nulls(size, _UTC) if end is None else pa.array(end).cast(_UTC),
    ]
    found = table.select(names).take(pa.array(index))
    for name, values in zip(COLUMNS, added, strict=True):
        found = found.append_column(name, values)
    return found


def _windows(
    kernel: Kernel, times: np.ndarray, missed: np.ndarray
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """For each missed result the row, and the window's start and end if the kernel has windows."""
    index = np.repeat(np.arange(len(times)), missed)
    size: int | None = getattr(kernel, "size", None)
    if size is None:
        return index, None, None
    slide: int = getattr(kernel, "slide", None) or size
    # The windows of a row start at the multiples of `slide` in (t − size, t]; the earliest ones are missed first.
    first = ((times - size) // slide + 1) * slide
    rank = np.arange(len(index)) - np.repeat(np.cumsum(missed) - missed, missed)
    start = first[index] + rank * slide
    return index, start, start + size
