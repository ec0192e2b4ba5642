"""How each contender is started at a case, when it is ready, and what it reports of its batches."""

from __future__ import annotations

import datetime as dt
import json
import sqlite3
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from benchmarks.contender import Failed
from benchmarks.environments import python_of
from benchmarks.floor.cases import CHUNKS, Case
from benchmarks.floor.pipeline_files import pipeline_file
from penstock.reports.folder import RunFolder
from penstock.reports.values import RunOrder

CORES = 2
OUTPUT = "out.txt"
"""The file in a contender's folder with what it prints."""


@dataclass(frozen=True)
class BatchTime:
    """One batch, as the contender reports it."""

    at: dt.datetime
    """When it began."""
    ms: float
    rows: int
    number: int = 0


class Contender(ABC):
    """One system at one case, in a folder of its own."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case, self.folder = case, folder

    @abstractmethod
    def command(self) -> list[str]: ...

    def is_ready(self) -> bool:
        return (self.folder / "ready").exists()

    def batches(self) -> list[BatchTime] | None:
        """Of the whole run, once it has ended; None if it has none."""
        return None

    def has_results(self) -> bool:
        """Whether it has computed anything, once it has ended."""
        return True


class Penstock(Contender):
    """A run as the server starts one: it reports into files."""

    store: str | None = None
    """Where state is kept, if not where Penstock keeps it by default."""

    def command(self) -> list[str]:
        file, self.run = self.folder / "pipeline.yaml", RunFolder(self.folder / "run")
        file.write_text(pipeline_file(self.case, self.store), "utf-8")
        self.run.make()
        self.run.write_order(
            RunOrder("r000000000000", "floor", 1, str(file), str(self.folder), str(self.folder / "state"),
                     master=f"local[{CORES}]")
        )  # fmt: skip
        return [sys.executable, "-m", "penstock.runner.main", str(self.run.path)]

    def is_ready(self) -> bool:
        status = self.run.status
        return status is not None and status.batches > 0 and sum(status.rows_in.values()) >= self.case.history

    def batches(self) -> list[BatchTime] | None:
        return [
            BatchTime(line.at, line.duration_ms, sum(line.rows_in.values()), line.batch)
            for line in self.run.read_batches()[0]
        ]

    def has_results(self) -> bool:
        return any(rows for line in self.run.read_batches()[0] for rows in line.rows_out.values())


class PenstockChunks(Penstock):
    """The same with state in chunk files."""

    store = "chunks"


class Spark(Contender):
    def command(self) -> list[str]:
        case = json.dumps(self.case.as_dict())
        return [sys.executable, "-m", "benchmarks.peers.floor_spark", case, str(self.folder)]

    def batches(self) -> list[BatchTime] | None:
        try:
            lines = (self.folder / "batches.jsonl").read_text("utf-8").splitlines()
        except FileNotFoundError:
            raise Failed("it ended without its reports") from None
        # Spark reports again and again that there was nothing, with the number of the next batch.
        return [
            BatchTime(dt.datetime.fromisoformat(line["at"]), line["ms"], line["rows"], line["batch"])
            for line in map(json.loads, lines)
            if line["rows"]
        ]

    def has_results(self) -> bool:
        for file in self.folder.glob("out-*.db"):
            with closing(sqlite3.connect(file)) as db:
                if db.execute("SELECT count(*) FROM results").fetchone()[0] > 0:
                    return True
        return False


class Flink(Contender):
    backend = "hashmap"

    def command(self) -> list[str]:
        case = json.dumps(self.case.as_dict())
        return [python_of("flink"), "-m", "benchmarks.peers.floor_flink", case, self.backend, str(self.folder)]

    def has_results(self) -> bool:
        # What it would drop it cannot print either.
        return self.case.kind == "rolling" or "+I[" in (self.folder / OUTPUT).read_text("utf-8", "replace")


class FlinkRocksdb(Flink):
    backend = "rocksdb"


CONTENDERS: dict[str, Callable[[Case, Path], Contender]] = {
    "penstock": Penstock,
    CHUNKS: PenstockChunks,
    "spark": Spark,
    "flink hashmap": Flink,
    "flink rocksdb": FlinkRocksdb,
}
