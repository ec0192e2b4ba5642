"""Python workers are forked with all that they need loaded."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from penstock.engine.worker_daemon import MODULES

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession


def test_all_that_is_loaded_beforehand_is_there() -> None:
    assert [importlib.import_module(name).__name__ for name in MODULES] == [*MODULES]


@pytest.mark.spark
def test_a_worker_finds_it_loaded_before_its_first_row(spark: SparkSession) -> None:
    wanted = [*MODULES]

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import gc
        import sys

        import pyarrow as pa

        for _ in batches:
            missing = [name for name in wanted if name not in sys.modules]
            yield pa.RecordBatch.from_pydict({"missing": [missing], "frozen": [gc.get_freeze_count()]})

    rows: list[Any] = spark.range(1, numPartitions=1).mapInArrow(look, "missing array<string>, frozen bigint").collect()
    assert [row["missing"] for row in rows] == [[]]
    assert rows[0]["frozen"] > 10_000


def test_the_carrier_of_a_kernel_loads_nothing_by_itself() -> None:
    """Spark starts a process for it with each stateful step, only to hear which state it keeps."""
    heavy = ("numpy", "pandas", "pyarrow")
    code = f"import penstock.engine.state.carrier, sys; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
