"""Deterministic synthetic streams as Arrow batches, without Spark.

Row i is a pure function of the stream's settings and i: every random number is a hash of the row number, so any
range of rows can be made anywhere, in any pieces, and again. Only operations that give the same bits for every cut
are used on whole columns (integers, single IEEE operations, table look-ups); powers and logarithms live in tables.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from statistics import NormalDist

import numpy as np
import pyarrow as pa  # noqa: TID253 - imported by the source only when it is read
import pyarrow.compute as pc  # noqa: TID253
from numpy.typing import NDArray

from penstock.components.base import RAW

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bits = NDArray[np.uint64]

MAX_ROWS = 10**12
"""Row numbers have twelve digits."""

MAX_KEYS = 10_000_000
_ROW_DIGITS = 12
_NORMAL_BITS = 12
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_TIMESTAMP = pa.timestamp("us", tz="UTC")
_COST = pa.decimal128(10, 4)

_COUNTRIES = {"US": 72, "IN": 40, "BR": 28, "DE": 24, "GB": 20, "FR": 18, "JP": 16, "ES": 14, "PL": 12, "KE": 12}
_KINDS = {"impression": 245, "click": 10, "conversion": 1}
_ARTICLES = 1000
_CREATIVES = 8
_CAMPAIGNS_PER_ADVERTISER = 5
_SITES = 20
_NEXMARK_BASE = 1000
_BID_CHANNELS = 10_000
_BID_EXTRAS = 4096


@dataclass(frozen=True)
class Synthetic:
    """A stream of one dataset. Event time of row i is start + i / rate, moved back by disorder or lateness."""

    dataset: str
    start_micros: int = 0
    rate: float = 1000.0
    seed: int = 0
    keys: int | None = None
    skew: float | None = None
    disorder_micros: int = 0
    late_share: float = 0.0
    late_micros: int = 0
    malformed_share: float = 0.0

    @property
    def schema(self) -> pa.Schema:
        """The dataset's columns, and `RAW` when rows can be malformed."""
        columns = DATASETS[self.dataset].schema
        return columns.append(pa.field(RAW, pa.string())) if self.malformed_share > 0 else columns

    def batch(self, first: int, stop: int) -> pa.RecordBatch:
        """The rows from `first` to before `stop`."""
        if not 0 <= first <= stop <= MAX_ROWS:
            raise ValueError(f"rows {first} to {stop} are not within 0 to {MAX_ROWS}")
        rows = Rows(self, np.arange(first, stop, dtype=np.int64))
        good = pa.RecordBatch.from_arrays(DATASETS[self.dataset].columns(rows), schema=DATASETS[self.dataset].schema)
        return good if self.malformed_share == 0 else self._with_malformed(rows, good)

    def _with_malformed(self, rows: Rows, good: pa.RecordBatch) -> pa.RecordBatch:
        bad = rows.chosen("malformed", self.malformed_share)
        texts = _garbled(_json_texts(rows.number[bad], good.filter(pa.array(bad))), rows.bits("garble")[bad])
        position = pa.array(np.cumsum(bad) - 1, mask=~bad)
        kept = [pc.if_else(pa.array(bad), pa.scalar(None, column.type), column) for column in good.columns]
        return pa.RecordBatch.from_arrays([*kept, texts.take(position)], schema=self.schema)


@dataclass(frozen=True)
class Rows:
    """A range of a stream's rows: their numbers, event times and independent random numbers by column name."""

    stream: Synthetic
    number: Ints

    @cached_property
    def ts(self) -> Ints:
        shift = self.below("disorder", self.stream.disorder_micros + 1)
        if self.stream.late_share > 0:
            beyond = self.stream.disorder_micros + 1 + self.below("late_by", self.stream.late_micros)
            shift = np.where(self.chosen("late", self.stream.late_share), beyond, shift)
        elapsed: Ints = np.floor(self.number * 1e6 / self.stream.rate).astype(np.int64)
        return elapsed + (self.stream.start_micros - shift)

    @cached_property
    def key(self) -> Ints:
        """Which key each row has, 0 being the most frequent one if keys are skewed."""
        if not self.stream.skew:
            return self.below("key", self.key_count)
        shares = _cumulative_zipf(self.key_count, self.stream.skew)
        return np.searchsorted(shares, self.unit("key"), side="right").astype(np.int64)

    @property
    def key_count(self) -> int:
        return self.stream.keys or DATASETS[self.stream.dataset].keys

    def bits(self, column: str) -> Bits:
        """The splitmix64 hash of the row numbers, salted by stream and column."""
        x = self.number.astype(np.uint64)
        x *= _GOLDEN
        x += _salt(self.stream.dataset, self.stream.seed, column)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            x ^= x >> np.uint64(shift)
            x *= np.uint64(factor)
        x ^= x >> np.uint64(31)
        return x

    def unit(self, column: str) -> Floats:
        """Uniform in [0, 1)."""
        return (self.bits(column) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def below(self, column: str, bound: int | Ints) -> Ints:
        """Uniform whole numbers from 0 to before `bound`."""
        if isinstance(bound, int) and bound <= 1:
            return np.zeros(len(self.number), dtype=np.int64)
        return (self.unit(column) * bound).astype(np.int64)

    def normal(self, column: str) -> Floats:
        return np.take(_normal_quantiles(), self.bits(column) >> np.uint64(64 - _NORMAL_BITS))

    def chosen(self, column: str, share: float) -> NDArray[np.bool_]:
        return self.unit(column) < share

    def ids(self, prefix: str) -> pa.Array:
        return numbered(prefix, self.number, _ROW_DIGITS)

    def times(self) -> pa.Array:
        return pa.array(self.ts).view(_TIMESTAMP)


def numbered(prefix: str, values: Ints, digits: int) -> pa.Array:
    """Strings such as `v-000123`, all of one width, written straight into an Arrow buffer four digits at a time."""
    head = prefix.encode("ascii")
    width = len(head) + digits
    text = np.empty((len(values), width), dtype=np.uint8)
    text[:, : len(head)] = np.frombuffer(head, dtype=np.uint8)
    rest, end = values, width
    while end > len(head):
        start = max(end - 4, len(head))
        rest, low = (rest // 10_000, rest % 10_000) if start > len(head) else (rest, rest)
        text[:, start:end] = _four_digits()[low].view(np.uint8).reshape(-1, 4)[:, 4 - (end - start) :]
        end = start
    offsets = np.arange(len(values) + 1, dtype=np.int32) * np.int32(width)
    return pa.Array.from_buffers(pa.string(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(text)])


def _page_views(rows: Rows) -> list[pa.Array]:
    stay = np.rint(_stay_millis()[rows.bits("ms") >> np.uint64(64 - _NORMAL_BITS)]).astype(np.int64)
    return [
        rows.ids("v-"),
        rows.times(),
        numbered("u-", rows.key, _digits(rows.key_count)),
        numbered("a-", rows.below("article", _ARTICLES), 4),
        _weighted(rows, "country", _COUNTRIES),
        pa.array(stay),
    ]


def _ad_log(rows: Rows) -> list[pa.Array]:
    digits = _digits(rows.key_count)
    kind = _slots(_KINDS)[rows.bits("kind") >> np.uint64(56)]
    # Ten-thousandths: an impression costs up to 0.02, a click 0.10 to 2.00, a conversion nothing more.
    least, spread = np.array([5, 1000, 0])[kind], np.array([196, 19_001, 1])[kind]
    cost = least + rows.below("cost", spread)
    return [
        rows.ids("e-"),
        rows.times(),
        numbered("c-", rows.key, digits),
        numbered("adv-", rows.key // _CAMPAIGNS_PER_ADVERTISER, digits),
        numbered("cr-", rows.key * _CREATIVES + rows.below("creative", _CREATIVES), digits + 1),
        _weighted(rows, "country", _COUNTRIES),
        _names(_KINDS).take(pa.array(kind)),
        _decimals(cost),
    ]


def _machine_telemetry(rows: Rows) -> list[pa.Array]:
    digits = _digits(rows.key_count)
    minute = rows.ts // 60_000_000
    load = rows.unit("load")
    warmth = 65.0 + (rows.key % 17) + 6.0 * _day_curve()[minute % 1440]
    burnt = (minute + rows.key * 37) % 1440 / 14.4
    return [
        rows.ids("t-"),
        rows.times(),
        numbered("m-", rows.key, digits),
        numbered("site-", rows.key % _SITES, 2),
        pa.array(np.round(warmth + 10.0 * load + 1.5 * rows.normal("temperature"), 2)),
        pa.array(np.round(np.abs(2.0 + 1.5 * load + 0.4 * rows.normal("vibration")), 3)),
        pa.array(900 + (load * 1500.0).astype(np.int64)),
        pa.array(np.round(100.0 - burnt, 1)),
    ]


def _bids(rows: Rows) -> list[pa.Array]:
    """Nexmark's bids: of every 50 events the first is a person, three are auctions and 46 are bids."""
    group = rows.number // 46
    channel = rows.below("channel", _BID_CHANNELS)
    popular = rows.bits("popular") >> np.uint64(61)
    source = np.where(popular < 4, _BID_CHANNELS + popular.astype(np.int64), channel)
    channels, urls = _bid_channels()
    coarse, fine = _price_powers()
    bits = rows.bits("price")
    power = coarse[bits >> np.uint64(48)] * fine[(bits >> np.uint64(32)) & np.uint64(0xFFFF)]
    return [
        pa.array(_NEXMARK_BASE + _auctions(rows, group)),
        pa.array(_NEXMARK_BASE + _bidders(rows, group)),
        pa.array(np.rint(100.0 * power).astype(np.int64)),
        channels.take(pa.array(source)),
        urls.take(pa.array(source)),
        rows.times(),
        _bid_extras().take(pa.array(rows.below("extra", _BID_EXTRAS))),
    ]


def _auctions(rows: Rows, group: Ints) -> Ints:
    """Half of the bids go to one hot auction, the others to the last hundred or ten to come; or to chosen keys."""
    if rows.stream.keys is not None or rows.stream.skew is not None:
        return rows.key
    last = 3 * group + 2
    oldest = np.maximum(last - 100, 0)
    cold = oldest + rows.below("auction", last - oldest + 11)
    return np.where(rows.chosen("hot_auction", 0.5), last // 100 * 100, cold)


def _bidders(rows: Rows, group: Ints) -> Ints:
    """Three of four bids come from one hot bidder, the others from the last thousand people or ten to come."""
    active = np.minimum(group + 1, 1000)
    cold = group + 1 - active + rows.below("bidder", active + 10)
    return np.where(rows.chosen("hot_bidder", 0.75), group // 100 * 100 + 1, cold)


@dataclass(frozen=True)
class Dataset:
    schema: pa.Schema
    keys: int
    """How many distinct keys there are unless told otherwise."""
    columns: Callable[[Rows], list[pa.Array]]


def _schema(**types: pa.DataType) -> pa.Schema:
    return pa.schema(list(types.items()))


_STRING, _LONG, _DOUBLE = pa.string(), pa.int64(), pa.float64()

DATASETS: dict[str, Dataset] = {
    "page_views": Dataset(
        _schema(id=_STRING, ts=_TIMESTAMP, user=_STRING, article=_STRING, country=_STRING, ms=_LONG),
        10_000, _page_views,
    ),
    "ad_log": Dataset(
        _schema(id=_STRING, ts=_TIMESTAMP, campaign=_STRING, advertiser=_STRING, creative=_STRING, country=_STRING,
                kind=_STRING, cost=_COST),
        500, _ad_log,
    ),
    "machine_telemetry": Dataset(
        _schema(id=_STRING, ts=_TIMESTAMP, machine=_STRING, site=_STRING, temperature=_DOUBLE, vibration=_DOUBLE,
                rpm=_LONG, fuel=_DOUBLE),
        1000, _machine_telemetry,
    ),
    "bids": Dataset(
        _schema(auction=_LONG, bidder=_LONG, price=_LONG, channel=_STRING, url=_STRING, ts=_TIMESTAMP, extra=_STRING),
        1000, _bids,
    ),
}  # fmt: skip


def _json_texts(number: Ints, rows: pa.RecordBatch) -> pa.Array:
    """Each row as JSON, its row number first."""
    parts: list[pa.Array | str] = ['{"row":', pa.array(number).cast(pa.string())]
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        quote = '"' if pa.types.is_string(column.type) or pa.types.is_timestamp(column.type) else ""
        text = column.cast(pa.string())
        if pa.types.is_timestamp(column.type):
            text = pc.replace_substring(text, " ", "T")
        parts += [f',"{name}":{quote}', text, quote]
    return pc.binary_join_element_wise(*parts, "}", "")


def _garbled(texts: pa.Array, bits: Bits) -> pa.Array:
    """Texts that are no JSON any more: cut short a little or a lot, or with their colons lost."""
    ways = [
        pc.utf8_slice_codeunits(texts, 0, stop=-1),
        pc.utf8_slice_codeunits(texts, 0, stop=-25),
        pc.replace_substring(texts, '":', '"='),
    ]
    return pc.choose(pa.array((bits % np.uint64(len(ways))).astype(np.int64)), *ways)


def _digits(count: int) -> int:
    return max(4, len(str(count - 1)))


def _decimals(units: Ints) -> pa.Array:
    """Amounts from whole numbers of the smallest unit, as the 128-bit integers Arrow stores; not below zero."""
    words = np.zeros((len(units), 2), dtype=np.int64)
    words[:, 0] = units
    return pa.Array.from_buffers(_COST, len(units), [None, pa.py_buffer(words)])


def _weighted(rows: Rows, column: str, weights: dict[str, int]) -> pa.Array:
    return _names(weights).take(pa.array(_slots(weights)[rows.bits(column) >> np.uint64(56)]))


def _names(weights: dict[str, int]) -> pa.Array:
    return pa.array(list(weights))


def _slots(weights: dict[str, int]) -> NDArray[np.int8]:
    """256 slots, as many for each name as its weight says."""
    slots = np.repeat(np.arange(len(weights), dtype=np.int8), list(weights.values()))
    if len(slots) != 256:
        raise ValueError(f"weights add up to {len(slots)}, not 256")
    return slots


@lru_cache(maxsize=1024)
def _salt(dataset: str, seed: int, column: str) -> np.uint64:
    digest = hashlib.blake2b(f"{dataset}/{seed}/{column}".encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))


@lru_cache(maxsize=4)
def _cumulative_zipf(count: int, exponent: float) -> Floats:
    shares = np.cumsum(np.arange(1, count + 1, dtype=np.float64) ** -exponent)
    shares /= shares[-1]
    return shares


@cache
def _four_digits() -> NDArray[np.uint32]:
    text = "".join(f"{number:04d}" for number in range(10_000)).encode("ascii")
    return np.frombuffer(text, dtype=np.uint32)


@cache
def _normal_quantiles() -> Floats:
    count = 1 << _NORMAL_BITS
    return np.array([NormalDist().inv_cdf((step + 0.5) / count) for step in range(count)])


@cache
def _stay_millis() -> Floats:
    """How long people stay on a page: log-normal with a median of eight seconds."""
    stay: Floats = 8000.0 * np.exp(1.1 * _normal_quantiles())
    return stay


@cache
def _day_curve() -> Floats:
    curve: Floats = np.sin(np.arange(1440) * (2 * np.pi / 1440))
    return curve


@cache
def _price_powers() -> tuple[Floats, Floats]:
    """10 ** (6 u) as the product of two table entries, for u in steps of 2 ** -32."""
    steps = np.arange(1 << 16, dtype=np.float64)
    return np.power(10.0, 6.0 * steps / 2.0**16), np.power(10.0, 6.0 * steps / 2.0**32)


@cache
def _bid_channels() -> tuple[pa.Array, pa.Array]:
    """Names and URLs of the channels, the four popular ones last; nine of ten others tell their number in the URL."""
    letters = _letters(seed=1, count=_BID_CHANNELS + 4, length=15)
    pages = [f"https://www.nexmark.com/{x[:5]}/{x[5:10]}/{x[10:]}/item.htm?query=1" for x in letters]
    named = [f"{url}&channel_id={channel}" if channel % 10 else url for channel, url in enumerate(pages)]
    names = [f"channel-{channel}" for channel in range(_BID_CHANNELS)] + ["Google", "Facebook", "Baidu", "Apple"]
    return pa.array(names), pa.array(named[:_BID_CHANNELS] + pages[_BID_CHANNELS:])


@cache
def _bid_extras() -> pa.Array:
    """Padding that brings a bid to 100 bytes, give or take 20 %."""
    return pa.array([text[: 54 + step % 28] for step, text in enumerate(_letters(2, _BID_EXTRAS, 82))])


def _letters(seed: int, count: int, length: int) -> list[str]:
    numbers = Rows(Synthetic("letters", seed=seed), np.arange(count * length)).bits("letter") % np.uint64(26)
    text = (numbers.astype(np.uint8) + ord("a")).tobytes().decode("ascii")
    return [text[start : start + length] for start in range(0, count * length, length)]
