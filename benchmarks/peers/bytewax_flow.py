"""Rolling count and exact count of distinct items per user, as one would write it with bytewax.

Per user: rows that may still be overtaken wait in a heap; the window is a deque with a Counter of its items. The two
readers do not keep step, so a row leaves when rows of its user from both of them are ten seconds ahead of it, and at
the end of the input.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Iterable
from datetime import UTC, datetime
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import bytewax.operators as op
import orjson
from bytewax.connectors.files import DirSource
from bytewax.dataflow import Dataflow
from bytewax.inputs import StatefulSourcePartition
from bytewax.operators import StatefulBatchLogic
from bytewax.outputs import DynamicSink, StatelessSinkPartition

OVER = int(os.environ["BENCH_OVER_MS"])
DELAY = 10_000

Row = tuple[int, int, int, str]
"""Time in milliseconds, item, number of the reader, user."""


class NumberedLines(StatefulSourcePartition[tuple[int, str], int]):
    """Lines with the number of the file they are from."""

    def __init__(self, lines: StatefulSourcePartition[str, int], number: int) -> None:
        self.lines, self.number = lines, number

    def next_batch(self) -> list[tuple[int, str]]:
        return [(self.number, line) for line in self.lines.next_batch()]

    def snapshot(self) -> int:
        return self.lines.snapshot()

    def close(self) -> None:
        self.lines.close()


class NumberedFiles(DirSource):
    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> NumberedLines:
        lines = super().build_part(step_id, for_part, resume_state)
        return NumberedLines(lines, sorted(self.list_parts()).index(for_part))


def parse(lines: Iterable[tuple[int, str]]) -> list[tuple[str, Row]]:
    rows = []
    for number, line in lines:
        row = orjson.loads(line)
        time = datetime.fromisoformat(row["ts"]).replace(tzinfo=UTC).timestamp()
        user = str(row["user"])
        rows.append((user, (round(time * 1000), row["item"], number, user)))
    return rows


class Rolling(StatefulBatchLogic[Row, str, Any]):
    def __init__(self, state: Any) -> None:
        self.waiting: list[Row]
        self.window: deque[Row]
        self.items: Counter[int]
        self.newest: list[int]
        self.waiting, self.window, self.items, self.newest = state or ([], deque(), Counter(), [0, 0])

    def on_batch(self, batch: list[Row]) -> tuple[Iterable[str], bool]:
        for row in batch:
            heappush(self.waiting, row)
            if row[0] > self.newest[row[2]]:
                self.newest[row[2]] = row[0]
        return self._leave(min(self.newest) - DELAY), StatefulBatchLogic.RETAIN

    def on_eof(self) -> tuple[Iterable[str], bool]:
        return self._leave(max(self.newest)), StatefulBatchLogic.RETAIN

    def _leave(self, until: int) -> list[str]:
        waiting, window, items = self.waiting, self.window, self.items
        found: list[str] = []
        while waiting and waiting[0][0] <= until:
            time, user, peers = waiting[0][0], waiting[0][3], 0
            while waiting and waiting[0][0] == time:
                row = heappop(waiting)
                window.append(row)
                items[row[1]] += 1
                peers += 1
            while window[0][0] <= time - OVER:
                item = window.popleft()[1]
                items[item] -= 1
                if not items[item]:
                    del items[item]
            found += [f"{time},{user},{len(window)},{len(items)}"] * peers
        return found

    def snapshot(self) -> Any:
        return list(self.waiting), deque(self.window), Counter(self.items), list(self.newest)


class Lines(StatelessSinkPartition[tuple[str, str]]):
    """A worker's own file. The files sink of bytewax waits for the disk after every few rows, which no other does."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("w", encoding="utf-8", buffering=1 << 20)

    def write_batch(self, items: list[tuple[str, str]]) -> None:
        self.file.writelines([line + "\n" for _, line in items])

    def close(self) -> None:
        self.file.close()


class LinesPerWorker(DynamicSink[tuple[str, str]]):
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Lines:
        return Lines(self.folder / f"part-{worker_index}.csv")


def dataflow() -> Dataflow:
    data, out = Path(os.environ["BENCH_DATA"]), Path(os.environ["BENCH_OUT"])
    flow = Dataflow("rolling")
    lines = op.input("views", flow, NumberedFiles(data, glob_pat="part-*.json", batch_size=10_000))
    rows = op.flat_map_batch("parse", lines, parse)
    counted = op.stateful_batch("rolling", rows, Rolling)
    op.output("out", counted, LinesPerWorker(out))
    return flow
