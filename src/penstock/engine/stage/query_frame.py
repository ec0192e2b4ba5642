"""The one frame of a query that ends below the kernels: rows of the floor, and beside them what kernels read of each.

Kernels that read the same node read it in one pass: each has a struct of its own columns in the row, which is null
where a row is not for it. So eight steps over one source cost one read, and a row travels once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from penstock.components.base import Carried, KernelInput
from penstock.engine.markers import marker
from penstock.engine.stage.builder import StageBuilder
from penstock.engine.stage.fusing import fused
from penstock.engine.stage.plan import StagePlan
from penstock.kernels.base import BUCKET
from penstock.spec.schema import quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PART = "_penstock_part"
_COLUMN = "_penstock_piece"


@dataclass(frozen=True)
class Piece:
    """A struct column of the query's rows: what one input of a kernel reads, or rows of a node as they are."""

    column: str
    node: str
    side: int | None
    """Which input of the kernel `node`; None for the rows of `node` itself."""
    names: tuple[str, ...]


@dataclass(frozen=True)
class Part:
    """Rows of the query that come the same way: the number in the column `PART`, and the marker they pass."""

    number: int
    mark: int
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class QueryFrame:
    frame: DataFrame
    parts: tuple[Part, ...]

    @property
    def pieces(self) -> tuple[Piece, ...]:
        return tuple(piece for part in self.parts for piece in part.pieces)


def bucket_of(rows: KernelInput, buckets: int) -> Column:
    """The bucket of each row of a kernel's input."""
    from pyspark.sql import functions as F

    keys = [F.col(quote(name)) for name in rows.keys]
    return (F.pmod(F.xxhash64(*keys), F.lit(buckets)).cast("int") if keys else F.lit(0)).alias(BUCKET)


def with_bucket(rows: KernelInput, buckets: int) -> DataFrame:
    return rows.rows.withColumn(BUCKET, bucket_of(rows, buckets))


def query_frame(
    builder: StageBuilder,
    plan: StagePlan,
    frames: Mapping[str, DataFrame],
    pseudo: Mapping[str, DataFrame],
    first_mark: int,
) -> QueryFrame:
    """`pseudo` are frames that travel beside the floor, by name; `first_mark` numbers the markers of the parts."""
    parts: list[Part] = []
    built: list[DataFrame] = []
    columns_of: dict[tuple[str, int | None], str] = {}

    def add(rows: DataFrame, columns: list[tuple[Piece, Column]]) -> None:
        from pyspark.sql import functions as F

        number = len(parts)
        mark = first_mark + number
        for piece, _ in columns:
            # Names of nodes may contain dots, in which Spark sees fields.
            columns_of.setdefault((piece.node, piece.side), f"{_COLUMN}_{len(columns_of)}")
        named = [replace(piece, column=columns_of[piece.node, piece.side]) for piece, _ in columns]
        parts.append(Part(number, mark, tuple(named)))
        chosen = [column.alias(piece.column) for piece, (_, column) in zip(named, columns, strict=True)]
        built.append(rows.where(marker(mark)).select(F.lit(number).alias(PART), *chosen))

    for name in plan.floor:
        kernels = [kernel for kernel in plan.kernels if kernel in plan.direct and name in builder.staged[kernel].inputs]
        columns = [_piece_of(builder, kernel, builder.staged[kernel].inputs.index(name)) for kernel in kernels]
        if name in plan.rows:
            columns.append(_whole(name, frames[name]))
        if columns:
            add(builder.marked(name, frames[name]).frame, columns)
    for kernel in plan.kernels:
        again = builder.staged[kernel].again
        if again is not None and kernel in plan.direct:
            for side in range(len(again.inputs)):
                piece, _ = _piece_of(builder, kernel, side)
                rows = with_bucket(again.inputs[side], builder.buckets)
                add(rows, [(piece, _struct(rows))])
    for name, rows in pseudo.items():
        add(rows, [_whole(name, rows)])
    whole = reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), built)
    return QueryFrame(whole, tuple(parts))


def _whole(name: str, frame: DataFrame) -> tuple[Piece, Column]:
    return Piece("", name, None, tuple(frame.columns)), _struct(frame)


def _struct(frame: DataFrame) -> Column:
    from pyspark.sql import functions as F

    return F.struct(*(F.col(quote(name)) for name in frame.columns))


def _piece_of(builder: StageBuilder, kernel: str, side: int) -> tuple[Piece, Column]:
    """What a kernel reads, as a column over the rows of the node below it."""
    from pyspark.sql import functions as F

    carried: Carried = builder.staged[kernel].carried
    rows = KernelInput(with_bucket(carried.inputs[side], builder.buckets), carried.inputs[side].keys)
    found = fused(rows.rows)
    assert found is not None
    columns, conditions = found
    names = rows.rows.columns
    struct = F.struct(*(column.alias(name) for column, name in zip(columns, names, strict=True)))
    if conditions:
        struct = F.when(reduce(lambda left, right: left & right, conditions), struct)
    return Piece("", kernel, side, tuple(names)), struct
