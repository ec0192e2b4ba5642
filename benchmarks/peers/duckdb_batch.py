"""The same answers by duckdb over all rows at once: the independent check, and the limit of what two cores can do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import duckdb

from benchmarks.contender import serve

COLUMNS = "{ts: 'TIMESTAMP', user: 'BIGINT', item: 'BIGINT', ms: 'BIGINT'}"
REPORTING = """
SELECT date_trunc('minute', ts) AS window_start, "user", count(*) AS n FROM views GROUP BY ALL
"""
SLIDING = """
WITH panes AS (SELECT date_trunc('minute', ts) AS pane, "user", count(*) AS n FROM views GROUP BY ALL)
SELECT pane - to_minutes(back) AS window_start, "user", sum(n)::BIGINT AS n
FROM panes, range(60) AS steps(back) GROUP BY ALL
"""
ROLLING = """
SELECT ts, "user", count(*) OVER w AS n, count(DISTINCT item) OVER w AS items FROM views
WINDOW w AS (PARTITION BY "user" ORDER BY ts RANGE BETWEEN INTERVAL '{} milliseconds' PRECEDING AND CURRENT ROW)
"""
JOBS = {
    "reporting": REPORTING,
    "sliding": SLIDING,
    # Times are in milliseconds; the lower bound is included, and is not to be.
    "rolling": ROLLING.format(3_600_000 - 1),
    "rolling-week": ROLLING.format(7 * 86_400_000 - 1),
}


def prepare(job: str) -> Callable[[Path, Path], None]:
    def run(data: Path, folder: Path) -> None:
        (folder / "out").mkdir()
        with duckdb.connect() as database:
            database.execute("SET threads = 2")
            read = f"read_json('{data}/part-*.json', format = 'newline_delimited', columns = {COLUMNS})"
            database.execute(f"CREATE VIEW views AS SELECT * FROM {read}")
            database.execute(f"COPY ({JOBS[job]}) TO '{folder}/out/all.parquet' (FORMAT parquet)")

    return run


if __name__ == "__main__":
    serve(lambda: prepare(sys.argv[1]))
