"""Aggregates over the surroundings of places, by hexagonal cells and windows of event time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from penstock.components.base import Carried, CheckContext, KernelInput, KernelStep, StepContext
from penstock.components.shared.aggregates import FUNCTIONS, argument_columns, check_values, parse, same_but
from penstock.components.shared.kernel_inputs import (
    REPLAYED,
    arrow_schema,
    key_column,
    need_columns,
    only,
    refuse_floating,
    time_column,
)
from penstock.components.shared.windows import check_lengths, window_state_after
from penstock.errors import Problem
from penstock.spec.fields import Change, Holds, field
from penstock.spec.units import Duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class GeoWindow(KernelStep):
    """Counts what happens around places: each row counts in its hexagonal cell and in the cells around it.

    Cells are H3's: `resolution` says how large they are (7: about 5 km², 8: 0.7 km², 9: 0.1 km²), `ring` how many
    steps a row reaches (0: its own cell, 1: seven cells, 2: nineteen). Otherwise it is a `window` with the cell as a
    further key. Rows without a place on Earth are dead letters.
    """

    name: ClassVar[str] = "geo_window"
    needs_event_time: ClassVar[bool] = True
    late_policies: ClassVar[tuple[str, ...]] = ("drop", "side", "correct")
    example: ClassVar[str] = """\
from: requests
geo_window: {lat: lat, lon: lon, resolution: 8, ring: 1, size: 1 minute, values: {demand: count(*)}}
"""

    lat: str = field(holds=Holds.NAME, doc="The column of the latitude, in degrees.", change=Change.LOSES_STATE)
    lon: str = field(holds=Holds.NAME, doc="The column of the longitude, in degrees.", change=Change.LOSES_STATE)
    resolution: int = field(8, doc="How fine the cells are, from 0 to 15.", ge=0, le=15, change=Change.LOSES_STATE)
    ring: int = field(1, doc="How many cells a row reaches in each direction.", ge=0, le=20, change=Change.BOOTSTRAP)
    size: Duration = field(doc="How long a window is.", change=Change.LOSES_STATE)
    slide: Duration | None = field(
        None, doc="How far apart windows start, if they overlap; at most `size`.", change=Change.LOSES_STATE
    )
    by: tuple[str, ...] = field((), holds=Holds.NAME, doc="Further columns to group by.", change=Change.LOSES_STATE)
    values: dict[str, str] = field(
        holds=Holds.SQL,
        doc="Columns of the result, each an aggregate: `{demand: count(*)}`.",
        change=Change.BOOTSTRAP,
        min_length=1,
    )
    emit: Literal["close", "update"] = field(
        "close", doc="`close`: final rows only; `update`: the new row whenever it changes, for sinks with a key."
    )

    def state_key(self) -> tuple[str, ...]:
        return ("cell", *self.by, "window")

    @property
    def takes_replays(self) -> bool:
        return self.slide is None

    def check(self, context: CheckContext) -> Iterator[Problem]:
        yield from check_lengths(f"geo_window of '{context.node}'", self.size, self.slide)
        yield from check_values(self.values, tuple(FUNCTIONS))

    def state_after(self, before: Self) -> tuple[Change, str] | None:
        if not same_but(before, self, "values", "emit", "ring"):
            return None
        return window_state_after(before, self)

    def carried(self, inputs: Mapping[str, DataFrame], context: StepContext) -> Carried:
        from pyspark.sql import functions as F

        from penstock.kernels.geo_window import GeoWindow as GeoWindowKernel

        frame = only(inputs)
        need_columns(frame, context.node, (self.lat, self.lon, *self.by))
        refuse_floating(frame, context.node, self.by)
        written = [parse(name, text) for name, text in self.values.items()]
        arguments, aggregates = argument_columns(frame, context.node, written)
        replayed = [REPLAYED] if REPLAYED in frame.columns else []
        rows = frame.select(
            time_column(frame, context, next(iter(inputs))),
            *replayed,
            *(F.col(f"`{name}`").cast("double").alias(name) for name in (self.lat, self.lon)),
            *(key_column(frame, name) for name in self.by),
            *arguments.values(),
        )
        kept = context.late.allowed.millis * 1000
        kernel = GeoWindowKernel(
            arrow_schema(rows),
            self.by,
            aggregates,
            self.lat,
            self.lon,
            self.resolution,
            self.ring,
            context.buckets,
            size=self.size.millis * 1000,
            slide=None if self.slide is None else self.slide.millis * 1000,
            emit=self.emit,
            allowed=kept if context.late.policy == "correct" else 0,
            retained=kept if context.late.policy == "side" and self.takes_replays else 0,
        )

        def finish(result: DataFrame) -> DataFrame:
            return result.withColumn("cell", F.lower(F.hex(F.col("cell"))))

        return Carried(
            kernel,
            (KernelInput(rows, self.by),),
            finish,
            event_time="window_end",
            shift=-1,
            changes=self.emit == "update" or context.late.policy == "correct",
        )
