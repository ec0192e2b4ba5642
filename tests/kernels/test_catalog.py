"""Kernels as JSON values: what is written is understood, and every kernel there is can be."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from penstock.kernels import catalog
from penstock.kernels.aggregate import Aggregate
from penstock.kernels.base import NO_WATERMARK, TIME, Kernel
from penstock.kernels.catalog import understood, written
from penstock.kernels.changelog_join import ChangelogJoin
from penstock.kernels.dedupe import Dedupe
from penstock.kernels.geo_window import GeoWindow
from penstock.kernels.interval_join import IntervalJoin
from penstock.kernels.latest import Latest
from penstock.kernels.rolling import Rolling
from penstock.kernels.session import Session
from penstock.kernels.top_n import TopN
from penstock.kernels.window import Window

SCHEMA = pa.schema(
    [
        (TIME, pa.int64()), ("key", pa.string()), ("price", pa.decimal128(20, 3)), ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.struct([("name", pa.string())]))), ("lat", pa.float64()), ("gone", pa.bool_()),
    ]
)  # fmt: skip
VALUES = (Aggregate("n", "count"), Aggregate("p", "percentile", "price", 0.95))
KERNELS: list[Kernel] = [
    Window(SCHEMA, ("key",), VALUES, 10, 5, "update", 3, 2),
    GeoWindow(SCHEMA, (), VALUES, "lat", "lat", 8, 1, 16, 10),
    Session(SCHEMA, ("key",), VALUES, 7),
    Rolling(SCHEMA, ("key",), (VALUES[0],), 7, ("key", "at"), True),
    Latest(SCHEMA, ("key",), ("price",), order=("at",), forget=9, deleted="gone"),
    Dedupe(SCHEMA, ("key",), 5, ("key",), False),
    TopN(SCHEMA, ("key",), 3, (("price", True),), 10, ("price",), 4),
    IntervalJoin(SCHEMA, SCHEMA, ("key",), ("key",), "full", -3, 5, (("key", "key"),), (("price", "cost"),)),
    ChangelogJoin(
        SCHEMA, SCHEMA, ("key",), ("key",), (("key", "key"),), "left", (("key", "key"),), (("price", "cost"),),
        deleted=("gone", None), tombstones=8,
    ),
]  # fmt: skip


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: type(kernel).__name__)
def test_a_kernel_comes_back_as_it_was(kernel: Kernel) -> None:
    found = understood(json.loads(json.dumps(written(kernel))))
    assert found == kernel
    assert found.shown({}, NO_WATERMARK).schema == kernel.shown({}, NO_WATERMARK).schema


def test_every_kernel_is_in_the_catalog() -> None:
    ours = {kind for kind in Kernel.__subclasses__() if kind.__module__.startswith("penstock.kernels")}
    assert ours == set(catalog._KERNELS.values()) == {type(kernel) for kernel in KERNELS}


def test_what_is_not_known_is_told() -> None:
    by_chance = type("Window", (Latest,), {})
    assert written(by_chance(SCHEMA, ("key",), ("price",))) is None
    for wrong in ({"kernel": "Latest"}, {"kernel": "Wondow"}, {"kernel": "Latest", "fields": {"new": 1}}, {}):
        with pytest.raises(ValueError, match=r"Latest|Wondow|None"):
            understood(wrong)
