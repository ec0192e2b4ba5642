"""The cases of `floor` in Flink SQL; several windows are one job with one source, as a statement set makes it.

usage: floor_flink.py CASE BACKEND FOLDER, with the case as JSON; or `start-up FOLDER`. It keeps its checkpoints on the
disk, one a second. Results are printed, or dropped where every row gives one, so it pays less for its sinks than the
others do. Writes FOLDER/ready once the job runs.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

from benchmarks.floor.cases import WINDOWS, Case, case_from

CONF = {
    "parallelism.default": "2",
    "taskmanager.numberOfTaskSlots": "2",
    "pipeline.object-reuse": "true",
    "execution.checkpointing.interval": "1 s",
    "execution.checkpointing.incremental": "true",
    "table.local-time-zone": "UTC",
}
GENERATED = """
CREATE TABLE page_views (
  `user` INT, article INT, ms INT, ts AS CURRENT_TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH (
  'connector' = 'datagen', 'rows-per-second' = '{rate}',
  'fields.user.min' = '0', 'fields.user.max' = '{last_key}', 'fields.article.min' = '0', 'fields.article.max' = '999',
  'fields.ms.min' = '0', 'fields.ms.max' = '999'
)
"""
FILES = """
CREATE TABLE page_views (
  `user` STRING, article STRING, ms BIGINT, ts TIMESTAMP_LTZ(3), WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH (
  'connector' = 'filesystem', 'path' = 'file://{folder}/in', 'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'{monitor}
)
"""
WINDOW = """
INSERT INTO results_{number}
SELECT CAST(window_start AS STRING), CAST(`{key}` AS STRING), CAST({aggregate} AS STRING)
FROM TABLE(TUMBLE(TABLE page_views, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, `{key}`
"""
FILTER = """
INSERT INTO results_0 SELECT CAST(ts AS STRING), CAST(`user` AS STRING), CAST(ms AS STRING)
FROM page_views WHERE ms > 100
"""
ROLLING = """
INSERT INTO results_0 SELECT CAST(ts AS STRING), CAST(`user` AS STRING),
  CAST(COUNT(*) OVER w AS STRING) || ' ' || CAST(COUNT(DISTINCT article) OVER w AS STRING) FROM page_views
WINDOW w AS (PARTITION BY `user` ORDER BY ts
             RANGE BETWEEN INTERVAL '59:59.999' MINUTE TO SECOND PRECEDING AND CURRENT ROW)
"""
SINK = "CREATE TABLE results_{number} (a STRING, b STRING, c STRING) WITH ({connector})"


def environment(folder: Path, backend: str) -> Any:
    conf = Configuration()
    own = {"state.backend.type": backend, "execution.checkpointing.dir": f"file://{folder / 'checkpoints'}"}
    for key, value in (CONF | own).items():
        conf.set_string(key, value)
    return TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(conf).build()
    )


def statements(case: Case) -> list[str]:
    if case.kind == "stateless":
        return [FILTER]
    if case.kind == "rolling":
        return [ROLLING]
    return [
        WINDOW.format(number=number, key=key, aggregate=aggregate)
        for number, (key, aggregate) in enumerate(WINDOWS[: case.windows])
    ]


def run(case: Case, backend: str, folder: Path) -> None:
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    tables = environment(folder, backend)
    if case.kind == "idle":
        tables.execute_sql(FILES.format(folder=folder, monitor=", 'source.monitor-interval' = '1 s'"))
    else:
        tables.execute_sql(GENERATED.format(rate=case.rate, last_key=case.keys - 1))
    connector = "'connector' = 'blackhole'" if case.kind == "rolling" else "'connector' = 'print'"
    together = tables.create_statement_set()
    for number, statement in enumerate(statements(case)):
        tables.execute_sql(SINK.format(number=number, connector=connector))
        together.add_insert_sql(statement)
    job = together.execute().get_job_client()
    while "RUNNING" not in str(job.get_job_status().result()) and not stopped.is_set():
        stopped.wait(0.5)
    (folder / "ready").touch()
    stopped.wait()
    job.cancel().result()


def start_up(folder: Path) -> None:
    tables = environment(folder, "hashmap")
    tables.execute_sql(FILES.format(folder=folder, monitor=""))
    tables.execute_sql(
        SINK.format(number=0, connector=f"'connector' = 'filesystem', 'path' = 'file://{folder}/out', 'format' = 'csv'")
    )
    tables.execute_sql(FILTER).wait()


if __name__ == "__main__":
    if sys.argv[1] == "start-up":
        start_up(Path(sys.argv[2]))
    else:
        run(case_from(json.loads(sys.argv[1])), sys.argv[2], Path(sys.argv[3]))
