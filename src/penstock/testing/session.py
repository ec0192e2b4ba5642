"""One Spark session for all tests of a process, started when first needed."""

from __future__ import annotations

import atexit
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.engine.session import Session, SessionOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_session: Session | None = None


def shared_session() -> SparkSession:
    """A small, quickly started session: two cores, two partitions."""
    global _session
    if _session is None or not _session.jvm.alive:
        conf = {"spark.sql.shuffle.partitions": "2", "spark.sql.streaming.noDataProgressEventInterval": "100"}
        _session = Session(SessionOptions(master="local[2]", conf=conf, driver_memory="2g", quick=True))
        atexit.register(_session.stop)
    return _session.spark


def shared_log() -> Path:
    """The log of the shared session."""
    shared_session()
    assert _session is not None
    return _session.log
