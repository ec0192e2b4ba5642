"""How the memory of an executor is divided: what of a container is heap, and what is left for RocksDB and Python."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.capacity.scenario import Executor

MEBIBYTE = 1024**2
RESERVED = 300 * MEBIBYTE
"""What Spark keeps of each heap for itself."""
SMALLEST_HEAP = RESERVED * 3 // 2
"""Spark does not start with less."""


@dataclass(frozen=True)
class ExecutorMemory:
    """Regions of one executor in bytes. The container holds heap, overhead, off-heap memory and Python's own part."""

    heap: int
    overhead: int
    off_heap: int
    pyspark: int
    reserved: int
    unified: int
    """Shared by execution and storage."""
    storage: int
    """The part of it that execution cannot take from cached data."""
    user: int
    rocksdb: int
    python: int
    """What Python workers take, wherever it is taken from."""
    native: int

    @property
    def container(self) -> int:
        return self.heap + self.overhead + self.off_heap + self.pyspark

    @property
    def execution(self) -> int:
        return self.unified - self.storage

    @property
    def in_overhead(self) -> int:
        """What has to find room in the overhead."""
        return self.rocksdb + self.native + (0 if self.pyspark else self.python)

    @property
    def overhead_left(self) -> int:
        """Negative if the container will be killed for taking too much."""
        return self.overhead - self.in_overhead

    @property
    def python_left(self) -> int:
        return self.pyspark - self.python if self.pyspark else 0


def executor_memory(executor: Executor) -> ExecutorMemory:
    """The regions; `heap` or `container` must be given. The heap may come out as nothing, or less."""
    heap, overhead = _heap_and_overhead(executor)
    managed = max(heap - RESERVED, 0)
    unified = int(managed * executor.fraction.value)
    return ExecutorMemory(
        heap=heap,
        overhead=overhead,
        off_heap=executor.off_heap.bytes,
        pyspark=executor.pyspark.bytes,
        reserved=min(RESERVED, max(heap, 0)),
        unified=unified,
        storage=int(unified * executor.storage_fraction.value),
        user=managed - unified,
        rocksdb=0 if executor.rocksdb is None else executor.rocksdb.bytes,
        python=executor.python_workers * executor.python_worker.bytes,
        native=executor.native.bytes,
    )


def default_overhead(heap: int, factor: float, minimum: int) -> int:
    """As Spark computes it: in whole MiB, and at least the minimum."""
    return max(int(heap / MEBIBYTE * factor) * MEBIBYTE, minimum)


def _heap_and_overhead(executor: Executor) -> tuple[int, int]:
    factor, minimum = executor.overhead_factor, executor.overhead_minimum.bytes
    if executor.heap is not None:
        heap = executor.heap.bytes
        return heap, default_overhead(heap, factor, minimum) if executor.overhead is None else executor.overhead.bytes
    assert executor.container is not None
    container, aside = executor.container.bytes, executor.off_heap.bytes + executor.pyspark.bytes
    if executor.cutoff is not None:
        heap = round(container * (1 - executor.cutoff.value))
        return heap, container - heap - aside
    if executor.overhead is not None:
        return container - aside - executor.overhead.bytes, executor.overhead.bytes
    heap = _largest_heap(container - aside, factor, minimum)
    return heap, container - aside - heap


def _largest_heap(room: int, factor: float, minimum: int) -> int:
    """The largest heap in whole MiB that leaves its own overhead free."""
    heap = min(int(room / (1 + factor)) // MEBIBYTE + 1, (room - minimum) // MEBIBYTE)
    while heap > 0 and heap * MEBIBYTE + default_overhead(heap * MEBIBYTE, factor, minimum) > room:
        heap -= 1
    return heap * MEBIBYTE
