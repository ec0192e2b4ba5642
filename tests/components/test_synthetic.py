"""Synthetic rows depend on their number alone, and keep the promises of the settings."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.components.base import RAW
from penstock.components.shared.synthetic import DATASETS, MAX_ROWS, Synthetic, numbered
from penstock.components.sources.generator import Generator

START = 1_704_067_200_000_000
KEY_COLUMNS = {"page_views": "user", "ad_log": "campaign", "machine_telemetry": "machine", "bids": "auction"}
MALFORMED_OF_20_000 = {"ad_log": 998, "bids": 1030, "machine_telemetry": 1025, "page_views": 978}
ROW_1234 = {
    "page_views": ["v-000000001234", "2024-01-01 00:00:01.234000+00:00", "u-6852", "a-0544", "US", "51618"],
    "ad_log": ["e-000000001234", "2024-01-01 00:00:01.234000+00:00", "c-0336", "adv-0067", "cr-02688", "BR",
               "impression", "0.0110"],
    "machine_telemetry": ["t-000000001234", "2024-01-01 00:00:01.234000+00:00", "m-0965", "site-05", "85.14", "2.906",
                          "1483", "20.5"],
    "bids": ["1000", "1007", "69304", "channel-7668",
             "https://www.nexmark.com/rtiuq/ctmmn/gtgks/item.htm?query=1&channel_id=7668",
             "2024-01-01 00:00:01.234000+00:00",
             "qmschzsdzvghbxeaoynvmhmhawyvrnpkfmwywyuitudndtlyzcbztmguyvwvnontspjwwupf"],
}  # fmt: skip

streams = st.builds(
    Synthetic,
    dataset=st.sampled_from(sorted(DATASETS)),
    start_micros=st.integers(0, 2 * START),
    rate=st.floats(0.01, 1e7),
    seed=st.integers(-(2**40), 2**40),
    keys=st.none() | st.integers(1, 50_000),
    skew=st.none() | st.floats(0, 3),
    disorder_micros=st.integers(0, 10**9),
    late_share=st.sampled_from([0.0, 0.1, 1.0]),
    late_micros=st.integers(0, 10**9),
    malformed_share=st.sampled_from([0.0, 0.1, 1.0]),
)


def micros(batch: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.asarray(batch["ts"].cast(pa.int64()))


def moved_back(stream: Synthetic, rows: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """By how many microseconds each row's event time is before its place in the stream."""
    step = 10**6 // int(stream.rate)
    return stream.start_micros + np.arange(rows) * step - micros(stream.batch(0, rows))


@settings(max_examples=150, deadline=None)
@given(stream=streams, first=st.integers(0, 10**11), cuts=st.lists(st.integers(0, 300), max_size=8))
def test_any_cut_of_a_range_gives_the_same_rows(stream: Synthetic, first: int, cuts: list[int]) -> None:
    whole = stream.batch(first, first + 300)
    pieces = [stream.batch(first + low, first + high) for low, high in pairwise(sorted({0, 300, *cuts}))]
    whole.validate(full=True)
    assert pa.Table.from_batches(pieces).combine_chunks() == pa.Table.from_batches([whole])
    assert whole.schema == stream.schema


@pytest.mark.parametrize("dataset", sorted(DATASETS))
def test_rows_stay_the_same_from_release_to_release(dataset: str) -> None:
    row = Synthetic(dataset, START).batch(1234, 1235).to_pylist()[0]
    assert [str(value) for value in row.values()] == ROW_1234[dataset]


def test_another_seed_gives_other_rows() -> None:
    one, other = (Synthetic("page_views", seed=seed).batch(0, 1000) for seed in (1, 2))
    same = pc.sum(pc.equal(one["user"], other["user"])).as_py()
    assert same < 5


def test_ids_are_unique_and_tell_the_row_number() -> None:
    assert Synthetic("page_views").batch(99_999, 100_001)["id"].to_pylist() == ["v-000000099999", "v-000000100000"]


@given(st.lists(st.integers(0, 10**7 - 1)), st.integers(7, 13))
def test_numbered_strings_equal_formatted_ones(values: list[int], digits: int) -> None:
    assert numbered("x-", np.array(values, dtype=np.int64), digits).to_pylist() == [
        f"x-{value:0{digits}d}" for value in values
    ]


def test_event_time_follows_the_rate() -> None:
    batch = Synthetic("bids", start_micros=START, rate=4).batch(0, 5)
    assert (micros(batch) - START).tolist() == [0, 250_000, 500_000, 750_000, 1_000_000]


def test_disorder_moves_rows_back_within_its_bound() -> None:
    shift = moved_back(Synthetic("page_views", START, disorder_micros=5000), 20_000)
    assert (shift.min(), shift.max()) == (0, 5000)
    assert abs(shift.mean() - 2500) < 50


def test_late_rows_are_beyond_the_disorder_and_within_late_by() -> None:
    stream = Synthetic("ad_log", START, disorder_micros=5000, late_share=0.02, late_micros=70_000)
    shift = moved_back(stream, 50_000)
    late = shift > 5000
    assert late.sum() == 1012
    assert shift.min() >= 0
    assert shift[late].min() > 5000
    assert 70_000 < shift[late].max() <= 75_000


@pytest.mark.parametrize("dataset", sorted(DATASETS))
def test_malformed_rows_are_broken_json_and_nothing_else(dataset: str) -> None:
    good = Synthetic(dataset, START).batch(0, 20_000)
    broken = Synthetic(dataset, START, malformed_share=0.05).batch(0, 20_000)
    raw = broken[RAW].to_pylist()
    bad = np.array([text is not None for text in raw])
    assert bad.sum() == MALFORMED_OF_20_000[dataset]
    assert broken.drop_columns([RAW]).filter(pa.array(~bad)) == good.filter(pa.array(~bad))
    assert all(column.filter(pa.array(bad)).null_count == bad.sum() for column in broken.columns[:-1])
    for number in np.flatnonzero(bad):
        with pytest.raises(json.JSONDecodeError):
            json.loads(raw[number])
        assert raw[number].startswith((f'{{"row":{number},', f'{{"row"={number},'))


def test_there_is_a_raw_column_only_when_rows_can_be_malformed() -> None:
    assert RAW not in Synthetic("bids").schema.names
    assert Synthetic("bids", malformed_share=0.1).schema.names[-1] == RAW


@pytest.mark.parametrize(("dataset", "key"), KEY_COLUMNS.items())
def test_more_skew_gives_the_top_key_a_larger_share(dataset: str, key: str) -> None:
    shares = []
    for skew in (0.0, 0.5, 1.0, 2.0):
        batch = Synthetic(dataset, keys=100, skew=skew).batch(0, 50_000)
        shares.append(Counter(batch[key].to_pylist()).most_common(1)[0][1] / 50_000)
    # The exact shares of 1 / k^skew among 100 keys, within four standard deviations; equal ones are about 1 % each.
    assert shares == pytest.approx([0.0107, 0.0538, 0.1928, 0.6116], abs=0.009)


@pytest.mark.parametrize(("dataset", "key"), KEY_COLUMNS.items())
def test_there_are_as_many_keys_as_asked_for(dataset: str, key: str) -> None:
    assert len(Synthetic(dataset, keys=37).batch(0, 5000)[key].unique()) == 37


def test_bids_have_nexmarks_hot_keys_and_channels() -> None:
    batch = Synthetic("bids").batch(1_000_000, 1_004_600)
    hot_auctions = int((np.asarray(batch["auction"]) % 100 == 0).sum())
    hot_bidders = int((np.asarray(batch["bidder"]) % 100 == 1).sum())
    popular = pc.sum(pc.is_in(batch["channel"], pa.array(["Google", "Facebook", "Baidu", "Apple"]))).as_py()
    numbered_urls = pc.sum(pc.match_substring(batch["url"], "&channel_id=")).as_py()
    # Of 4,600 about 1/2 and 1 % of the rest, 3/4 and 1 % of the rest, 1/2, and 9/10 of the other half.
    assert (hot_auctions, hot_bidders, popular, numbered_urls) == (2337, 3447, 2317, 2066)
    assert 54 <= pc.min(pc.utf8_length(batch["extra"])).as_py() <= pc.max(pc.utf8_length(batch["extra"])).as_py() <= 81
    assert 100 <= pc.min(batch["price"]).as_py() < 110
    assert 10**8 * 0.95 < pc.max(batch["price"]).as_py() <= 10**8


def test_ad_log_has_a_funnel_and_exact_costs() -> None:
    batch = Synthetic("ad_log").batch(0, 100_000)
    counts = Counter(batch["kind"].to_pylist())
    assert counts == {"impression": 95_637, "click": 3955, "conversion": 408}
    costs = batch["cost"].filter(pc.equal(batch["kind"], "impression"))
    assert [str(bound) for bound in pc.min_max(costs).as_py().values()] == ["0.0005", "0.0200"]
    assert pc.min_max(batch["cost"].filter(pc.equal(batch["kind"], "conversion"))).as_py()["max"] == 0


def test_row_numbers_beyond_the_last_are_refused() -> None:
    with pytest.raises(ValueError):
        Synthetic("bids").batch(MAX_ROWS, MAX_ROWS + 1)


def test_the_source_offers_every_dataset() -> None:
    assert set(get_args(Generator.model_fields["dataset"].annotation)) == set(DATASETS) == set(KEY_COLUMNS)
