"""Flink SQL in streaming mode: windows by table functions, rolling values by OVER, on two task slots.

Checkpoints every ten seconds. Arguments: the job and the state backend, `hashmap` (Flink's default: state on the heap)
or `rocksdb`. Rows come in one file per reader: with more files than readers Flink would read them out of the order of
their times and drop rows as late. OVER includes its lower bound, so the window is a millisecond shorter.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

from benchmarks.contender import serve

CONF = {
    "parallelism.default": "2",
    "taskmanager.numberOfTaskSlots": "2",
    "taskmanager.memory.managed.size": "1g",
    "pipeline.object-reuse": "true",
    "execution.checkpointing.interval": "10 s",
    "execution.checkpointing.incremental": "true",
    "table.local-time-zone": "UTC",
}
SOURCE = """
CREATE TABLE page_views (
  ts TIMESTAMP(3), `user` BIGINT, item BIGINT, ms BIGINT, WATERMARK FOR ts AS ts - INTERVAL '10' SECOND
) WITH ('connector' = 'filesystem', 'path' = 'file://{data}', 'format' = 'json')
"""
WINDOWS = "window_start TIMESTAMP(3), `user` BIGINT, n BIGINT"
ROLLING = "ts TIMESTAMP(3), `user` BIGINT, n BIGINT, items BIGINT"
SINK = """
CREATE TABLE found ({columns}) WITH ('connector' = 'filesystem', 'path' = 'file://{out}', 'format' = 'csv')
"""
WINDOW = """
INSERT INTO found SELECT window_start, `user`, COUNT(*)
FROM TABLE({window}) GROUP BY window_start, window_end, `user`
"""
OVER = """
INSERT INTO found SELECT ts, `user`, COUNT(*) OVER w, COUNT(DISTINCT item) OVER w FROM page_views
WINDOW w AS (PARTITION BY `user` ORDER BY ts
             RANGE BETWEEN INTERVAL '59:59.999' MINUTE TO SECOND PRECEDING AND CURRENT ROW)
"""
TUMBLE = "TUMBLE(TABLE page_views, DESCRIPTOR(ts), INTERVAL '1' MINUTE)"
HOP = "HOP(TABLE page_views, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '1' HOUR)"
JOBS = {
    "reporting": (WINDOWS, WINDOW.format(window=TUMBLE)),
    "sliding": (WINDOWS, WINDOW.format(window=HOP)),
    "rolling": (ROLLING, OVER),
}


def prepare(job: str, backend: str) -> Callable[[Path, Path], None]:
    columns, query = JOBS[job]

    def run(data: Path, folder: Path) -> None:
        conf = Configuration()
        own = {"state.backend.type": backend, "execution.checkpointing.dir": f"file://{folder / 'checkpoints'}"}
        for key, value in (CONF | own).items():
            conf.set_string(key, value)
        settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(conf).build()
        tables = TableEnvironment.create(settings)
        tables.execute_sql(SOURCE.format(data=data))
        tables.execute_sql(SINK.format(columns=columns, out=folder / "out"))
        tables.execute_sql(query).wait()

    # The JVM starts with the first environment, as a Spark session's does.
    TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    return run


if __name__ == "__main__":
    serve(lambda: prepare(sys.argv[1], sys.argv[2]))
