"""How long a savepoint keeps a pipeline waiting, and how long it takes."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.contender import Failed
from penstock.engine.ledger import BatchEntry, Ledger
from penstock.engine.savepoints.take import Moment, Taken, Wish, take
from penstock.engine.savepoints.verify import verify
from penstock.engine.statedir import Identity
from penstock.frontends.yaml import parse_yaml

_WARM = 8
"""Batches until Java has compiled what matters."""
_PIPELINE = """
apiVersion: penstock/v1
kind: Pipeline
metadata: {name: saved}
spec:
  sources: {views: {memory: {schema: {id: string}}}}
  sinks: {out: {from: views, memory: {}}}
"""


@dataclass(frozen=True)
class Size:
    """A state: files of so many bytes, and those that come between the first savepoint and the next."""

    files: int
    each: int
    new: int


FULL = (Size(250, 2_000_000, 25), Size(1_000, 2_000_000, 25), Size(20_000, 20_000, 500))
QUICK = (Size(20, 20_000, 2), Size(80, 20_000, 2), Size(500, 2_000, 10))


class Saving:
    """What a savepoint costs: of a pipeline that runs, and by itself with states of several sizes."""

    turns = 3

    def __init__(self, folder: Path, sizes: tuple[Size, ...], batches: int, rows: int) -> None:
        self.folder, self.sizes, self.batches, self.rows = folder, sizes, batches, rows
        self.held: dict[Size, list[float]] = {size: [] for size in sizes}
        self.first: dict[Size, list[float]] = {size: [] for size in sizes}
        self.again: dict[Size, list[float]] = {size: [] for size in sizes}
        self.live: dict[str, Any] = {}
        self.right = True

    def play(self, turns: int) -> Iterator[str]:
        for turn in range(turns):
            for size in self.sizes:
                yield f"savepoint: turn {turn + 1}, {size.files:,} files"
                self._files(self.folder / f"{turn}-{size.files}", size)
        yield "savepoint: a pipeline that runs"
        command = [sys.executable, "-m", "benchmarks.saving_live", self.folder / "live", self.batches, self.rows]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        if done.returncode != 0:
            raise Failed(done.stderr[-2000:])
        self.live = _live(json.loads(done.stdout.splitlines()[-1]))

    def _files(self, state: Path, size: Size) -> None:
        self._state(state, size)
        self._timed(state, "one", self.first[size])
        for number in range(size.files, size.files + size.new):
            _write(state, number, size.each)
        self.held[size].append(self._timed(state, "two", self.again[size]))
        shutil.rmtree(state)

    def _timed(self, state: Path, name: str, seconds: list[float]) -> float:
        began = time.monotonic()
        taken = self._take(state, name)
        seconds.append(time.monotonic() - began)
        self.right = self.right and verify(taken.folder, taken.savepoint) == []
        return taken.held_seconds

    def _state(self, state: Path, size: Size) -> None:
        checkpoint = state / "checkpoint"
        for name in ("offsets", "commits", "state/0/0"):
            (checkpoint / name).mkdir(parents=True)
        (checkpoint / "metadata").write_text(json.dumps({"id": "1"}), "utf-8")
        (checkpoint / "offsets" / "0").write_text('v2\n{"conf":{}}\nviews:{"row":1}', "utf-8")
        (checkpoint / "commits" / "0").write_text('v1\n{"nextBatchWatermarkMs":0}', "utf-8")
        for number in range(size.files):
            _write(state, number, size.each)
        Ledger(state / "ledger.db").record(BatchEntry(0, 1, {"views": 1}))
        (state / "pipeline.json").write_text(json.dumps(asdict(Identity("saved", "l", 1))), "utf-8")

    def _take(self, state: Path, name: str) -> Taken:
        file = parse_yaml(_PIPELINE, state / "saved.yaml")
        identity = Identity("saved", "l", 1)
        return take(state, identity, file, lambda: nullcontext(Moment(0)), Wish(name), clock=_now)

    def figures(self) -> dict[str, Any]:
        sizes = [
            {
                "files": size.files,
                "bytes": size.files * size.each,
                "new_bytes": size.new * size.each,
                "held_seconds": statistics.median(self.held[size]),
                "first_seconds": statistics.median(self.first[size]),
                "again_seconds": statistics.median(self.again[size]),
            }
            for size in self.sizes
        ]
        return {"workload": "savepoint", "equal": self.right, "sizes": sizes, "live": self.live}

    def show(self, console: Console) -> None:
        found = self.figures()
        table = Table(title=f"savepoint · whole: {self.right}")
        for column in ("files", "MB", "new MB", "first one", "next one", "batches wait"):
            table.add_column(column, justify="right")
        for size in found["sizes"]:
            seconds = (f"{size[key]:,.3f} s" for key in ("first_seconds", "again_seconds", "held_seconds"))
            amounts = (f"{size[key] / 1e6:,.0f}" for key in ("bytes", "new_bytes"))
            table.add_row(f"{size['files']:,}", *amounts, *seconds)
        console.print(table)
        live = Table(title="savepoint: of a pipeline that runs")
        for name in self.live:
            live.add_column(name.replace("_", " "), justify="right")
        live.add_row(*(f"{value:,.3f}" if isinstance(value, float) else f"{value:,}" for value in self.live.values()))
        console.print(live)


def _write(state: Path, number: int, count: int) -> None:
    (state / "checkpoint" / "state" / "0" / "0" / f"{number}.part").write_bytes(os.urandom(count))


def _live(told: dict[str, Any]) -> dict[str, Any]:
    """Batches beside which a savepoint was taken, against the others; the first ones warm up and do not count."""
    took = {int(batch): millis / 1000 for batch, millis in told["batches"].items()}
    savepoints = [one for one in told["savepoints"] if one["batch"] >= _WARM]
    # It is asked for in one batch, and taken between that and the next.
    beside = {one["batch"] + 1 for one in savepoints}
    alone = [seconds for batch, seconds in took.items() if batch >= _WARM and batch not in beside]
    return {
        "savepoints": len(savepoints),
        "batch_seconds": statistics.median(alone),
        "batch_seconds_beside": statistics.median(took[batch] for batch in beside if batch in took),
        "held_seconds": statistics.median(one["held_seconds"] for one in savepoints),
        "longest_held_seconds": max(one["held_seconds"] for one in savepoints),
        "bytes": savepoints[-1]["bytes"],
        "new_bytes": savepoints[-1]["new_bytes"],
    }


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
