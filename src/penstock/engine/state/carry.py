"""Puts a kernel into a Spark plan: packed before the shuffle, advanced bucket by bucket on the state store."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.components.base import Carried, KernelInput
from penstock.components.shared.arrow import in_arrow
from penstock.components.shared.event_time import delay_of, with_event_time
from penstock.engine.state.advance import Advance
from penstock.engine.state.carrier import Carrier
from penstock.engine.state.counters import Counters
from penstock.engine.state.pack import PACKED, packer
from penstock.kernels.base import BUCKET

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame


def carry(
    step: str, carried: Carried, inputs: Sequence[DataFrame], hold: int, buckets: int, counters: Counters | None
) -> DataFrame:
    """The rows of a stateful step. `inputs` are the frames it reads, whose event times are known.

    `hold` is by how much their rows may be older than the watermark, in microseconds.
    """
    packed = reduce(
        lambda left, right: left.unionByName(right),
        [_packed(carried, side, rows, hold, buckets, counters) for side, rows in enumerate(carried.inputs)],
    )
    processor = Carrier(Advance(carried.kernel, step, len(carried.inputs), hold, counters))
    rows = packed.groupBy("bucket").transformWithStateInPandas(
        statefulProcessor=processor,
        outputStructType=from_arrow_schema(carried.kernel.output, prefer_timestamp_ntz=True),
        outputMode="append",
        timeMode="EventTime" if carried.timed else "None",
    )
    finished = carried.finish(rows)
    if carried.event_time is None:
        return finished
    delay = max(delay_of(frame) for frame in inputs)
    return with_event_time(finished, carried.event_time, delay, carried.shift, hold + carried.hold)


def _packed(
    carried: Carried, side: int, rows: KernelInput, hold: int, buckets: int, counters: Counters | None
) -> DataFrame:
    keys = [F.col(f"`{name}`") for name in rows.keys]
    bucket = F.pmod(F.xxhash64(*keys), F.lit(buckets)).cast("int") if keys else F.lit(0)
    pack = packer(carried.kernel, side, hold, buckets, counters)
    return in_arrow(rows.rows.withColumn(BUCKET, bucket), pack, PACKED)
