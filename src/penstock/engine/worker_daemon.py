"""Run by Spark instead of its own daemon: forks the Python workers, which find what nearly all of them need loaded.

Loading pandas, pyarrow and the kernels takes a worker more than a second of processor time, and a pipeline with
several stateful steps needs several workers. After each task a worker also looks through all it has loaded for
garbage; what was loaded before the fork it does not look through.
"""

from __future__ import annotations

import gc
import importlib
import os
from contextlib import suppress

MODULES = (
    "numpy",
    "pandas",
    "pyarrow",
    "pyarrow.compute",
    "pyspark.worker",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.streaming.stateful_processor_api_client",
    "penstock.components.shared.arrow",
    "penstock.engine.state.advance",
    "penstock.engine.state.pack",
    "penstock.kernels.catalog",
)


def main() -> None:
    # Threads do not survive a fork, and a task has one core.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for name in MODULES:
        # Whoever needs what is missing says so in a task, where it is told.
        with suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
