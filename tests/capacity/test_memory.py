"""The memory of an executor: Spark's regions, and what has to fit beside the heap."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.capacity.memory import MEBIBYTE, RESERVED, ExecutorMemory, default_overhead, executor_memory
from penstock.capacity.scenario import Executor

GIB = 1024 * MEBIBYTE


def memory(**parts: Any) -> ExecutorMemory:
    return executor_memory(Executor.model_validate(parts, by_alias=True, by_name=False))


def test_a_large_heap_has_a_tenth_of_it_beside_it() -> None:
    found = memory(heap="8 GiB")

    # Spark: 8192 MiB + max(0.1 * 8192, 384) MiB.
    assert (found.heap, found.overhead, found.container) == (8 * GIB, 819 * MEBIBYTE, 9011 * MEBIBYTE)
    assert found.reserved == 300 * MEBIBYTE
    assert found.unified == int((8 * GIB - 300 * MEBIBYTE) * 0.6)
    assert found.storage == found.unified // 2
    assert found.storage + found.execution == found.unified
    assert found.reserved + found.unified + found.user == found.heap


def test_a_small_heap_has_the_minimum_beside_it() -> None:
    found = memory(heap="1 GiB")

    assert (found.overhead, found.container) == (384 * MEBIBYTE, 1408 * MEBIBYTE)
    assert memory(heap="1 GiB", overheadMinimum="1 GiB").overhead == GIB
    assert memory(heap="4 GiB", overheadFactor=0.4).overhead == 1638 * MEBIBYTE
    assert memory(heap="4 GiB", overhead="2 GiB").overhead == 2 * GIB


def test_a_container_is_divided_as_the_guide_divides_it() -> None:
    found = memory(container="2000 MB", cutoff="25%", native="64 MB")

    assert (found.heap, found.overhead, found.overhead_left) == (1_500_000_000, 500_000_000, 436_000_000)


def test_what_spark_takes_by_itself_leaves_less_of_a_small_container() -> None:
    found = memory(container="2000 MB")

    # 1907 MiB less the minimum of 384 MiB.
    assert (found.heap, found.container) == (1523 * MEBIBYTE, 2_000_000_000)


def test_off_heap_memory_and_pythons_own_part_belong_to_the_container() -> None:
    found = memory(heap="4 GiB", offHeap="1 GiB", pyspark="2 GiB", pythonWorkers=4, pythonWorker="600 MiB")

    assert found.container == 4 * GIB + 409 * MEBIBYTE + 1 * GIB + 2 * GIB
    assert found.python_left == 2 * GIB - 2400 * MEBIBYTE < 0
    assert found.in_overhead == 0


def test_rocksdb_and_python_workers_take_from_the_overhead() -> None:
    found = memory(heap="4 GiB", rocksdb="500 MB", pythonWorkers=4, pythonWorker="200 MB")

    assert found.in_overhead == 1_300_000_000
    assert found.overhead_left == 409 * MEBIBYTE - 1_300_000_000 < 0


@given(
    st.integers(1, 64 * 1024),
    st.floats(0.001, 1),
    st.integers(0, 2048),
    st.integers(0, 4096),
)
def test_a_heap_computed_from_its_container_is_the_largest_that_fits(
    heap: int, factor: float, minimum: int, off_heap: int
) -> None:
    settings = {"overheadFactor": factor, "overheadMinimum": f"{minimum} MiB", "offHeap": f"{off_heap} MiB"}
    container = memory(heap=f"{heap} MiB", **settings).container
    found = memory(container=f"{container} B", **settings)

    assert found.container == container
    assert found.heap >= heap * MEBIBYTE
    room = container - off_heap * MEBIBYTE
    larger = found.heap + MEBIBYTE
    assert found.heap + default_overhead(found.heap, factor, minimum * MEBIBYTE) <= room
    assert larger + default_overhead(larger, factor, minimum * MEBIBYTE) > room


@given(st.integers(1, 2**40), st.floats(0, 1), st.floats(0, 1))
def test_regions_of_a_heap_add_up(heap: int, fraction: float, storage: float) -> None:
    found = memory(heap=f"{heap} B", fraction=fraction, storageFraction=storage)

    assert found.reserved + found.unified + found.user == max(heap, found.reserved)
    assert found.reserved == min(heap, RESERVED)
    assert found.execution + found.storage == found.unified
    assert min(found.unified, found.storage, found.execution, found.user) >= 0


@pytest.mark.parametrize("heap", [0, 1, 384])
def test_a_container_smaller_than_its_overhead_leaves_no_heap(heap: int) -> None:
    assert memory(container=f"{max(heap, 1)} MiB").heap <= 0
