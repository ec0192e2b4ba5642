"""Synthetic rows, for trying pipelines and measuring them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import field_validator

from penstock.components.base import RAW, Backlog, ReadContext, Source
from penstock.spec.fields import Change, field
from penstock.spec.units import Duration

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from penstock.components.shared.synthetic_stream import Plan

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FINITE_START = datetime(2024, 1, 1, tzinfo=UTC)


class Generator(Source):
    """Makes rows up: the same settings always give the same rows, whatever the batches and restarts.

    An endless stream (no `rows`) appears at `rate` by the wall clock from its first start on; after a pause it catches
    up. A finite one is there at once. The event time of row *i* is `start` + *i* / `rate`, in the column `ts`.

    | `dataset` | key column | other columns |
    |---|---|---|
    | `page_views` | `user` | `id`, `article`, `country`, `ms` |
    | `ad_log` | `campaign` | `id`, `advertiser`, `creative`, `country`, `kind`, `cost` |
    | `machine_telemetry` | `machine` | `id`, `site`, `temperature`, `vibration`, `rpm`, `fuel` |
    | `bids` | `auction` | `bidder`, `price`, `channel`, `url`, `extra` |
    """

    name: ClassVar[str] = "generator"
    reads_ranges: ClassVar[bool] = True
    batch_limit = "max_rows_per_batch"
    example: ClassVar[str] = """\
generator: {dataset: page_views, rows: 100000, seed: 7, skew: 1.1, disorder: 5 seconds}
eventTime: {column: ts, maxDelay: 5 seconds}
"""

    dataset: Literal["page_views", "ad_log", "machine_telemetry", "bids"] = field(
        doc="Which rows are made.", change=Change.BOOTSTRAP
    )
    rows: int | None = field(None, ge=0, le=10**12, doc="How many rows there are in all; endless if not given.")
    rate: float = field(
        1000.0, gt=0, le=1e9, allow_inf_nan=False, change=Change.BOOTSTRAP,
        doc="Rows per second of event time; of an endless stream also per second of the wall clock.",
    )  # fmt: skip
    seed: int = field(0, doc="Another seed gives other rows.", change=Change.BOOTSTRAP)
    skew: float | None = field(
        None, ge=0, le=10, change=Change.BOOTSTRAP,
        doc="How uneven the keys are: the k-th most frequent one has a share in proportion to 1 / k^skew, so 0 makes "
        "all alike. By default 0; for `bids`, unless `keys` is given, Nexmark's hot auctions that move on with time.",
    )  # fmt: skip
    keys: int | None = field(
        None, ge=1, le=10_000_000, change=Change.BOOTSTRAP,
        doc="How many distinct keys there are. By default 10,000 users, 500 campaigns, 1,000 machines or, if `skew` "
        "is given, 1,000 auctions.",
    )  # fmt: skip
    disorder: Duration = field(
        Duration(0),
        change=Change.BOOTSTRAP,
        doc="Event times are moved back by up to this much, so rows are disordered.",
    )
    late_share: float = field(
        0.0, ge=0, le=1, change=Change.BOOTSTRAP, doc="Share of rows that come even later than `disorder` allows."
    )
    late_by: Duration = field(
        Duration(60_000),
        change=Change.BOOTSTRAP,
        doc="How much later, at most: late rows are moved back by more than `disorder`, up to both.",
    )
    malformed_share: float = field(
        0.0, ge=0, le=1, change=Change.BOOTSTRAP, doc="Share of rows that arrive as broken JSON that nobody can read."
    )
    start: datetime | None = field(
        None, change=Change.BOOTSTRAP,
        doc="Event time of the first row, UTC unless it says otherwise. By default 2024-01-01T00:00:00Z if `rows` is "
        "given, else the moment of the first start.",
    )  # fmt: skip
    max_rows_per_batch: int | None = field(1_000_000, ge=1, doc="The most rows one batch reads.")
    partitions: int = field(2, ge=1, le=10_000, doc="In how many tasks a batch is made, if it is not small.")

    @field_validator("start")
    @classmethod
    def _utc(cls, value: datetime | None) -> datetime | None:
        return value.replace(tzinfo=UTC) if value is not None and value.tzinfo is None else value

    def read(self, context: ReadContext) -> DataFrame:
        from penstock.components.shared.synthetic_stream import FORMAT, SyntheticSource

        context.spark.dataSource.register(SyntheticSource)
        reader = context.spark.readStream.name(context.stream).format(FORMAT)
        return reader.option("plan", self.plan().to_json()).load()

    def plan(self) -> Plan:
        from penstock.components.shared.synthetic import Synthetic
        from penstock.components.shared.synthetic_stream import Plan

        stream = Synthetic(
            dataset=self.dataset,
            start_micros=_micros(self.start or _FINITE_START),
            rate=self.rate,
            seed=self.seed,
            keys=self.keys,
            skew=self.skew,
            disorder_micros=self.disorder.millis * 1000,
            late_share=self.late_share,
            late_micros=self.late_by.millis * 1000,
            malformed_share=self.malformed_share,
        )
        return Plan(
            stream=stream,
            rows=self.rows,
            from_first_start=self.start is None and self.rows is None,
            max_rows_per_batch=self.max_rows_per_batch,
            partitions=self.partitions,
        )

    def place(self) -> Column | None:
        """The row number of a malformed row, which its text begins with."""
        from pyspark.sql import functions as F

        if self.malformed_share == 0:
            return None
        number = F.regexp_extract(F.col(RAW), r'^\{"row".(\d+)', 1)
        return F.when(F.col(RAW).isNotNull(), F.concat(F.lit("row "), number))

    def explain_malformed(self, context: ReadContext) -> Column:
        from pyspark.sql import functions as F

        return F.lit("not JSON: broken on purpose by malformedShare")

    def backlog(self, context: ReadContext, progress: Mapping[str, object]) -> Backlog | None:
        latest, end = progress.get("latestOffset"), progress.get("endOffset")
        if not (isinstance(latest, dict) and isinstance(end, dict)):
            return None
        return Backlog(max(latest["row"] - end["row"], 0), "rows")


def _micros(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)
