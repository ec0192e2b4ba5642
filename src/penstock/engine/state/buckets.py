"""Buckets: into how many parts the keys of a stateful step are divided, and how they fall on Spark's partitions.

Rows with equal keys meet in one bucket, and a bucket's state is what a kernel sees at a time. The number of buckets
is fixed when a pipeline's state is made; the number of partitions may change later, so buckets outnumber them.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.engine.statedir import StateDir

_LEAST = 16
_SEED = 42


def bucket_count(partitions: int) -> int:
    """A power of two, at least four for each partition, so that rescaling has room and shares stay even."""
    count = _LEAST
    while count < 4 * partitions:
        count *= 2
    return count


def buckets_of(spark: SparkSession, state: StateDir) -> int:
    """The number of buckets of a state, settled by the first run."""
    return state.settle_buckets(bucket_count(int(spark.conf.get("spark.sql.shuffle.partitions") or 2)))


@cache
def labels(count: int) -> tuple[int, ...]:
    """A number for each bucket, such that Spark deals the buckets evenly to any power of two of partitions.

    Spark places a group by the hash of its key; with numbers 0, 1, 2, ... some partitions would get several buckets
    and others none. Bucket i gets the least number whose hash leaves i when divided by the number of buckets.
    """
    found: dict[int, int] = {}
    number = 0
    while len(found) < count:
        found.setdefault(spark_hash(number) % count, number)
        number += 1
    return tuple(found[index] for index in range(count))


def spark_hash(number: int) -> int:
    """Spark's hash of an INT: Murmur3 with seed 42."""
    mixed = _SEED ^ _rotate(number * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF
    mixed = _rotate(mixed, 13) * 5 + 0xE6546B64 & 0xFFFFFFFF
    mixed ^= 4
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    mixed ^= mixed >> 16
    return mixed - (1 << 32) if mixed >= 1 << 31 else mixed


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & 0xFFFFFFFF
