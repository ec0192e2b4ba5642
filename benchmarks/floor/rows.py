"""Rows in files, for the cases that read files: those that are there at the start, and those that come each second."""

from __future__ import annotations

import datetime as dt
import json
import random
import threading
from pathlib import Path
from typing import Self

_HOUR = dt.timedelta(hours=1)


def write_rows(folder: Path, name: str, times: list[dt.datetime], *, keys: int, seed: int) -> None:
    """One file of page views at these times; it appears whole."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(seed)
    hidden = folder / f".{name}"
    with hidden.open("w", encoding="utf-8") as file:
        for time in times:
            row = {"ts": in_utc(time), "user": f"user{chance.randrange(keys)}",
                   "article": f"article{chance.randrange(1000)}", "ms": chance.randrange(1000)}  # fmt: skip
            file.write(json.dumps(row) + "\n")
    hidden.rename(folder / name)


def in_utc(time: dt.datetime) -> str:
    """As everyone reads it, Flink too."""
    return time.astimezone(dt.UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def times_of_last_hour(rows: int, now: dt.datetime) -> list[dt.datetime]:
    return [now - _HOUR + _HOUR * number / rows for number in range(rows)]


class Feeder:
    """Writes a file of new rows each second, while inside `with`."""

    def __init__(self, folder: Path, rate: int, *, keys: int) -> None:
        self.folder, self.rate, self.keys = folder, rate, keys
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._feed, daemon=True)

    def _feed(self) -> None:
        number = 0
        while not self._end.wait(1):
            number += 1
            times = [dt.datetime.now(dt.UTC)] * self.rate
            write_rows(self.folder, f"live-{number:06d}.json", times, keys=self.keys, seed=number)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
