"""What each step must give, batch by batch, told by the plain oracles that the kernels are tested against."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import h3  # type: ignore[import-untyped]
from tests.kernels import rolling_oracle
from tests.kernels.join_oracle import ChangelogJoinOracle, IntervalJoinOracle
from tests.kernels.small_oracles import DedupeOracle, LatestOracle, TopNOracle
from tests.kernels.window_oracle import SessionOracle, WindowOracle
from tests.oracle.streams import NEVER, Judge, Moment, Row, Verdict

from penstock.kernels.aggregate import Aggregate


def rows_of(moment: Moment) -> Sequence[Row]:
    """The rows of the only source."""
    (rows,) = moment.rows.values()
    return rows


@dataclass
class Windows:
    """Windows of any kind: what is closed, changed or corrected."""

    oracle: WindowOracle | SessionOracle

    def batch(self, moment: Moment) -> Verdict:
        known = len(self.oracle.missed)
        main, corrections = self.oracle.batch(rows_of(moment), moment.before, moment.watermark)
        return Verdict(main + corrections, sum(missed for _, missed in self.oracle.missed[known:]))


@dataclass
class Cells:
    """Windows by the cells around each row's place. `plain` is the same without cells, and tells what is late."""

    oracle: WindowOracle
    plain: WindowOracle
    resolution: int
    ring: int

    def batch(self, moment: Moment) -> Verdict:
        rows = [row for row in rows_of(moment) if _is_somewhere(row)]
        late = Windows(self.plain).batch(Moment(moment.number, {"": rows}, moment.before, moment.watermark)).late
        spread = [{**row, "cell": cell} for row in rows for cell in self._around(row)]
        main, corrections = self.oracle.batch(spread, moment.before, moment.watermark)
        return Verdict(main + corrections, late, len(rows_of(moment)) - len(rows))

    def _around(self, row: Row) -> list[str]:
        return list(h3.grid_disk(h3.latlng_to_cell(row["lat"], row["lon"], self.resolution), self.ring))


def _is_somewhere(row: Row) -> bool:
    return row["lat"] is not None and row["lon"] is not None and abs(row["lat"]) <= 90 and abs(row["lon"]) <= 180


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

    def batch(self, moment: Moment) -> Verdict:
        timely = [row for row in rows_of(moment) if row["_time"] > moment.before]
        self.seen += timely
        due = timely
        if not self.at_once:
            due = [row for row in self.seen if self.reached < row["_time"] <= moment.watermark]
            self.reached = max(self.reached, moment.watermark)
        rows = [
            rolling_oracle.enriched(row, self.seen, self.keys, self.aggregates, self.over, self.passed) for row in due
        ]
        return Verdict(rows, len(rows_of(moment)) - len(timely))


@dataclass
class Dedupe:
    """First rows: when the watermark has passed them, or at once. Rows are known by their `id`."""

    oracle: DedupeOracle
    at_once: bool
    given: int = 0

    def batch(self, moment: Moment) -> Verdict:
        known = len(self.oracle.late)
        self.oracle.clock.before = moment.before
        rows = self.oracle.batch(rows_of(moment))
        if not self.at_once:
            times = {row["id"]: row["_time"] for row in self.oracle.timely}
            # Rows after the watermark may still be replaced by others; those up to it are settled.
            settled = [row for row in self.oracle.exact() if times[row["id"]] <= moment.watermark]
            rows, self.given = settled[self.given :], len(settled)
        return Verdict(rows, len(self.oracle.late) - known)


@dataclass
class Latest:
    """The last row of each key whenever it is another one."""

    oracle: LatestOracle

    def batch(self, moment: Moment) -> Verdict:
        known = len(self.oracle.late)
        self.oracle.clock.before, self.oracle.clock.now = moment.before, moment.watermark
        rows = self.oracle.batch(rows_of(moment))
        return Verdict(rows, len(self.oracle.late) - known)


@dataclass
class TopN:
    """The greatest rows of each window, and again when a late row changes them."""

    oracle: TopNOracle

    def batch(self, moment: Moment) -> Verdict:
        oracle = self.oracle
        main, corrected, late = len(oracle.main), len(oracle.corrections), len(oracle.late)
        oracle.clock.before, oracle.clock.now = moment.before, moment.watermark
        oracle.batch(rows_of(moment))
        return Verdict(oracle.main[main:] + oracle.corrections[corrected:], len(oracle.late) - late)


@dataclass
class Join:
    """Pairs, and rows without a partner; `key` has one name on both sides and leaves once."""

    oracle: IntervalJoinOracle
    sources: tuple[str, str]
    key: str

    def batch(self, moment: Moment) -> Verdict:
        known = len(self.oracle.late)
        self.oracle.before, self.oracle.watermark = moment.before, moment.watermark
        left, right = (moment.rows[source] for source in self.sources)
        rows = [self._merged(row) for row in self.oracle.batch(left, right)]
        return Verdict(rows, len(self.oracle.late) - known)

    def _merged(self, row: Row) -> Row:
        other = row.pop(f"_other_{self.key}")
        return {**row, self.key: other if row[self.key] is None else row[self.key]}


@dataclass
class ChangelogJoin:
    """Changes of the joined table; nothing is late."""

    oracle: ChangelogJoinOracle
    sources: tuple[str, str]

    def batch(self, moment: Moment) -> Verdict:
        left, right = (moment.rows[source] for source in self.sources)
        return Verdict(self.oracle.batch(moment.watermark, left, right), 0)


@dataclass
class Chained:
    """A step after another one: it gets what that one gives, in the batch in which it gives it.

    `time` says when such a row happened; `hold` is by how much the first one's rows may be behind the watermark.
    """

    first: Judge
    second: Judge
    time: Callable[[Row], int]
    hold: int = 0

    def batch(self, moment: Moment) -> Verdict:
        given = [{**row, "_time": self.time(row)} for row in self.first.batch(moment).rows]
        before, watermark = (mark if mark == NEVER else mark - self.hold for mark in (moment.before, moment.watermark))
        verdict = self.second.batch(Moment(moment.number, {"": given}, before, watermark))
        assert verdict.late == 0, "what a step gives must not be late for the next"
        return verdict
