"""Page views as JSON lines, the same for every contender: skewed users, slightly out of order."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import numpy as np

START = 1_700_000_000
SCHEMA = "ts timestamp, user bigint, item bigint, ms bigint"
COLUMNS = {"ts": "timestamp", "user": "bigint", "item": "bigint", "ms": "bigint"}


def write_views(folder: Path, rows: int, files: int, seconds: float = 7200.0, users: int = 50_000) -> None:
    """Writes `files` files; does nothing if they are there."""
    if len(list(folder.glob("part-*.json"))) == files:
        return
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(7)
    times = np.sort(random.random(rows) * seconds) + START - random.exponential(0.5, rows)
    user = (random.zipf(1.2, rows * 2) % users)[:rows]
    item = (random.zipf(1.1, rows * 2) % 20_000)[:rows]
    share = rows // files
    for number in range(files):
        lines = []
        for row in range(number * share, (number + 1) * share):
            time = dt.datetime.fromtimestamp(times[row], dt.UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
            lines.append(f'{{"ts":"{time}","user":{user[row]},"item":{item[row]},"ms":{row * 37 % 5000}}}\n')
        (folder / f"part-{number:04d}.json").write_text("".join(lines), "utf-8")
