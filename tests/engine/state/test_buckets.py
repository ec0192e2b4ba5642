"""Buckets and how they fall on partitions."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from penstock.engine.state.buckets import bucket_count, labels, spark_hash


@pytest.mark.parametrize(("partitions", "buckets"), [(1, 16), (2, 16), (4, 16), (5, 32), (8, 32), (100, 512)])
def test_there_are_at_least_four_buckets_for_each_partition(partitions: int, buckets: int) -> None:
    assert bucket_count(partitions) == buckets


@pytest.mark.parametrize("count", [16, 32, 128])
def test_labels_are_dealt_evenly_to_every_smaller_power_of_two(count: int) -> None:
    found = labels(count)
    assert len(set(found)) == count
    partitions = 1
    while partitions <= count:
        shares = [sum(spark_hash(label) % partitions == index for label in found) for index in range(partitions)]
        assert set(shares) == {count // partitions}
        partitions *= 2


@pytest.mark.spark
def test_the_hash_is_sparks_own(spark: SparkSession) -> None:
    numbers = [0, 1, 2, 3, 7, 42, 1000, 65_535, 2**31 - 1]
    rows = spark.createDataFrame([(number,) for number in numbers], "n int").select(F.hash("n")).collect()
    assert [row[0] for row in rows] == [spark_hash(number) for number in numbers]
