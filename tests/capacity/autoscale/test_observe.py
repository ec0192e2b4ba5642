"""What is seen of a pipeline: load, lag and capacity, also where batches take very long."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.capacity.autoscale.observe import Backlog, Observed, observe
from penstock.capacity.fit import MeasuredBatch


def batches(
    rows: int, seconds: float, every: float, count: int = 30, cores: int = 2, start: float = 0.0
) -> list[MeasuredBatch]:
    return [MeasuredBatch("r", start + number * every, seconds, rows, cores=cores) for number in range(count)]


def seen(past: list[MeasuredBatch], backlogs: list[Backlog] | None = None, fixed: float = 0.0) -> Observed:
    end = past[-1].at + past[-1].seconds
    found = observe(past, backlogs or [], now=end, window=300.0, cores=2, fixed=fixed)
    assert found is not None
    return found


def test_the_load_is_what_was_read_between_two_batches() -> None:
    found = seen(batches(20_000, 2.0, 10.0))

    assert found.load == pytest.approx(2000)
    assert found.capacity == pytest.approx(10_000)


def test_a_fixed_part_that_is_known_is_no_work_of_rows() -> None:
    found = seen(batches(1000, 1.1, 10.0), fixed=1.0)

    # 0.1 s for 1,000 rows; by the busy time alone it would be 909 rows/s.
    assert found.capacity == pytest.approx(10_000)
    assert found.cost.fixed == pytest.approx(1.0)


def test_a_fixed_part_never_makes_rows_free() -> None:
    assert seen(batches(1000, 1.1, 10.0), fixed=5.0).capacity == pytest.approx(1000 / 0.055)


@settings(max_examples=50)
@given(st.floats(100, 10_000), st.floats(0.1, 0.9))
def test_rows_that_wait_count_as_load(load: float, processed: float) -> None:
    """After five minutes more waits than the two batches that may wait of a pipeline which keeps up."""
    past = batches(round(load * processed * 10), 10.0, 10.0)
    backlogs = [Backlog(at, load * (1 - processed) * at) for at in range(0, 301, 60)]

    found = seen(past, backlogs)

    assert found.load == pytest.approx(load, rel=0.05)
    assert found.lag == pytest.approx(load * (1 - processed) * 300)


def test_a_load_that_has_just_risen_counts_at_once() -> None:
    calm, busy = batches(10_000, 2.0, 10.0, 20), batches(30_000, 6.0, 10.0, 10, start=200.0)

    assert seen([*calm, *busy]).load == pytest.approx(3000)


def test_a_load_that_has_just_fallen_counts_later() -> None:
    busy, calm = batches(30_000, 6.0, 10.0, 20), batches(10_000, 2.0, 10.0, 10, start=200.0)

    assert seen([*busy, *calm]).load > 2000


def test_batches_longer_than_the_window_are_judged_too() -> None:
    past = batches(3_000_000, 900.0, 900.0, count=4)
    backlogs = [Backlog(at, 4000.0 * at) for at in range(0, 3601, 60)]

    found = seen(past, backlogs)

    assert found.capacity == pytest.approx(3_000_000 / 900)
    assert found.load == pytest.approx(4000 + 3_000_000 / 900, rel=0.3)


def test_batches_of_other_cores_do_not_count() -> None:
    past = [*batches(20_000, 8.0, 10.0, cores=1), *batches(20_000, 2.0, 10.0, 5, start=300.0)]

    assert seen(past).capacity == pytest.approx(10_000)


def test_too_few_batches_are_not_judged() -> None:
    past = batches(20_000, 2.0, 10.0, 2)

    assert observe(past, [], now=20.0, window=300.0, cores=2) is None
    assert observe([], [], now=20.0, window=300.0, cores=2) is None
    assert observe(batches(0, 2.0, 10.0), [], now=300.0, window=300.0, cores=2) is None
