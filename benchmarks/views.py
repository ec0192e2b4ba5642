"""Page views as JSON lines, the same for every contender, slightly out of order."""

from __future__ import annotations

import datetime as dt
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

START = 1_700_000_000
LAST_USER = -1
SCHEMA = "ts timestamp, user bigint, item bigint, ms bigint"
_USERS = 50_000


def _write(folder: Path, rows: int, files: int, seconds: float, spread: str) -> None:
    random = np.random.default_rng(7)
    times = np.sort(random.random(rows) * seconds) + START - random.exponential(0.5, rows)
    user = _users(random, rows, spread)
    item = (random.zipf(1.1, rows * 2) % 20_000)[:rows]
    share = rows // files
    for number in range(files):
        lines = []
        for row in range(number * share, (number + 1) * share):
            time = dt.datetime.fromtimestamp(times[row], dt.UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
            lines.append(f'{{"ts":"{time}","user":{user[row]},"item":{item[row]},"ms":{row * 37 % 5000}}}\n')
        (folder / f"part-{number:04d}.json").write_text("".join(lines), "utf-8")


def _users(random: np.random.Generator, rows: int, spread: str) -> np.ndarray:
    if spread == "zipf":
        return (random.zipf(1.2, rows * 2) % _USERS)[:rows]
    user = random.integers(_USERS, size=rows)
    if spread == "third":
        # A third of the rows belong to 0.3 % of the users.
        user = np.where(random.random(rows) < 1 / 3, user % (_USERS * 3 // 1000), user)
    return user


def _last_row(seconds: float) -> bytes:
    time = dt.datetime.fromtimestamp(START + seconds, dt.UTC) + dt.timedelta(days=8)
    return f'{{"ts":"{time:%Y-%m-%d %H:%M:%S}.000","user":{LAST_USER},"item":0,"ms":0}}\n'.encode()


def _once(place: Path, fill: Callable[[Path], None]) -> Path:
    """The folder, filled if it is not there yet; never half filled."""
    if not place.exists():
        unfinished = place.with_name(f"{place.name}.tmp")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        fill(unfinished)
        unfinished.rename(place)
    return place


@dataclass(frozen=True)
class Views:
    """Rows that are made once and kept: `rows` of them over `seconds` of event time, in files of equal size."""

    rows: int
    files: int
    seconds: float
    spread: str = "zipf"
    """How rows are spread over users: `zipf`, `uniform`, or `third`: a third of them on few users."""

    def folder(self, cache: Path) -> Path:
        place = cache / f"views-{self.rows}-{self.files}-{self.seconds:.0f}-{self.spread}"
        return _once(place, lambda folder: _write(folder, self.rows, self.files, self.seconds, self.spread))

    def first(self, cache: Path, rows: int) -> Path:
        """The first `rows` rows as a folder of whole files, and after them a row of `LAST_USER`, days later.

        That row moves the watermark past all others, so that everyone closes every window.
        """
        files = sorted(self.folder(cache).glob("part-*.json"))[: rows * self.files // self.rows]
        if len(files) * self.rows // self.files != rows:
            raise ValueError(f"{rows} rows are not a number of whole files")

        def fill(folder: Path) -> None:
            for number, file in enumerate(files):
                last = _last_row(self.seconds) if number == len(files) - 1 else b""
                (folder / file.name).write_bytes(file.read_bytes() + last)
                # Spark reads files in the order of their modification times.
                os.utime(folder / file.name, (START + number, START + number))

        return _once(self.folder(cache) / f"first-{rows}", fill)

    def dealt(self, cache: Path, rows: int, readers: int = 2) -> Path:
        """The same rows dealt to as many files as there are readers, line by line, so that readers keep step."""

        def fill(folder: Path) -> None:
            files = sorted(self.first(cache, rows).iterdir())
            lines = [line for file in files for line in file.read_bytes().splitlines(keepends=True)]
            for number in range(readers):
                (folder / f"part-{number}.json").write_bytes(b"".join(lines[number::readers]))

        return _once(self.folder(cache) / f"dealt-{rows}", fill)
