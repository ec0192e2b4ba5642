"""What each step must give, batch by batch, told by the plain oracles that the kernels are tested against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.kernels import rolling_oracle
from tests.kernels.join_oracle import ChangelogJoinOracle, IntervalJoinOracle
from tests.kernels.small_oracles import DedupeOracle, LatestOracle, TopNOracle
from tests.kernels.window_oracle import SessionOracle, WindowOracle
from tests.oracle.streams import NEVER, Moment, Row

from penstock.kernels.aggregate import Aggregate


def rows_of(moment: Moment) -> Sequence[Row]:
    """The rows of the only source."""
    (rows,) = moment.rows.values()
    return rows


@dataclass
class Windows:
    """Windows of any kind: what is closed, changed or corrected."""

    oracle: WindowOracle | SessionOracle

    def batch(self, moment: Moment) -> tuple[list[Row], int]:
        known = len(self.oracle.missed)
        main, corrections = self.oracle.batch(rows_of(moment), moment.before, moment.watermark)
        return main + corrections, sum(missed for _, missed in self.oracle.missed[known:])


@dataclass
class Rolling:
    """Each row with what its key did before it: when the watermark has passed it, or at once."""

    keys: Sequence[str]
    aggregates: Sequence[Aggregate]
    over: int
    passed: Sequence[str]
    at_once: bool
    seen: list[Row] = field(default_factory=list)
    reached: int = NEVER

    def batch(self, moment: Moment) -> tuple[list[Row], int]:
        timely = [row for row in rows_of(moment) if row["_time"] > moment.before]
        self.seen += timely
        due = timely
        if not self.at_once:
            due = [row for row in self.seen if self.reached < row["_time"] <= moment.watermark]
            self.reached = max(self.reached, moment.watermark)
        rows = [
            rolling_oracle.enriched(row, self.seen, self.keys, self.aggregates, self.over, self.passed) for row in due
        ]
        return rows, len(rows_of(moment)) - len(timely)


@dataclass
class Dedupe:
    """First rows: when the watermark has passed them, or at once. `passed` has the time as `ts`."""

    oracle: DedupeOracle
    at_once: bool
    given: int = 0

    def batch(self, moment: Moment) -> tuple[list[Row], int]:
        known = len(self.oracle.late)
        self.oracle.clock.before = moment.before
        rows = self.oracle.batch(rows_of(moment))
        if not self.at_once:
            everything = self.oracle.exact()
            # Rows after the watermark may still be replaced by others; those up to it are settled.
            rows = [row for row in everything if self._micros(row) <= moment.watermark][self.given :]
            self.given += len(rows)
        return rows, len(self.oracle.late) - known

    def _micros(self, row: Row) -> int:
        return next(int(one["_time"]) for one in self.oracle.timely if one["id"] == row["id"])


@dataclass
class Latest:
    """The last row of each key whenever it is another one."""

    oracle: LatestOracle

    def batch(self, moment: Moment) -> tuple[list[Row], int]:
        known = len(self.oracle.late)
        self.oracle.clock.before, self.oracle.clock.now = moment.before, moment.watermark
        return self.oracle.batch(rows_of(moment)), len(self.oracle.late) - known


@dataclass
class TopN:
    """The greatest rows of each window, and again when a late row changes them."""

    oracle: TopNOracle

    def batch(self, moment: Moment) -> tuple[list[Row], int]:
        oracle = self.oracle
        main, corrected, late = len(oracle.main), len(oracle.corrections), len(oracle.late)
        oracle.clock.before, oracle.clock.now = moment.before, moment.watermark
        oracle.batch(rows_of(moment))
        return oracle.main[main:] + oracle.corrections[corrected:], len(oracle.late) - late


@dataclass
class Join:
    """Pairs, and rows without a partner; `key` is in both sides under one name and leaves once."""

    oracle: IntervalJoinOracle
    sources: tuple[str, str]
    key: str

    def batch(self, moment: Moment) -> tuple[list[Row], int]:
        known = len(self.oracle.late)
        self.oracle.before, self.oracle.watermark = moment.before, moment.watermark
        left, right = (moment.rows[source] for source in self.sources)
        rows = [self._merged(row) for row in self.oracle.batch(left, right)]
        return rows, len(self.oracle.late) - known

    def _merged(self, row: Row) -> Row:
        other = row.pop(f"_other_{self.key}")
        return {**row, self.key: other if row[self.key] is None else row[self.key]}


@dataclass
class ChangelogJoin:
    """Changes of the joined table; nothing is late."""

    oracle: ChangelogJoinOracle
    sources: tuple[str, str]

    def batch(self, moment: Moment) -> tuple[list[Row], int]:
        left, right = (moment.rows[source] for source in self.sources)
        return self.oracle.batch(moment.watermark, left, right), 0
