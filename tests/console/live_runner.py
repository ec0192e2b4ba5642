"""A runner without Spark whose reports look like those of a busy pipeline, an hour of history among them.

The file `mode` of the state folder says what it does: `run`, `behind`, `silent`, or `mistake`, which ends it.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import signal
import sys
import time
from pathlib import Path

from penstock.errors import PenstockError
from penstock.frontends.load import load
from penstock.graph.build import build
from penstock.graph.nodes import Graph
from penstock.reports.folder import RunFolder
from penstock.reports.processes import birth
from penstock.reports.values import BacklogReport, BatchLine, LastBatch, RunEnd, RunOrder, RunStatus
from penstock.spec.pipeline import Kind

EVERY = 0.25
KINDS: tuple[Kind, ...] = ("source", "step", "sink")
_PAST = dt.timedelta(hours=1)
_APART = dt.timedelta(seconds=20)
MARKUP = "<img src=x onerror=alert(1)><b>bold</b> & “quotes”"


def main() -> None:
    folder = RunFolder(Path(sys.argv[1]))
    order = folder.order
    assert order is not None
    stopped: list[bool] = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    reporter = Reporter(folder, order, build(load(Path(order.file))))
    reporter.tell_past()
    while not stopped:
        mode = _mode(order)
        if mode == "mistake":
            reporter.fail(PenstockError.of("SQL_SYNTAX", node="clean", reason="near FORM"))
        if mode != "silent":
            reporter.tell(behind=mode == "behind")
        time.sleep(EVERY)
    folder.write_end(RunEnd(order.run, dt.datetime.now(dt.UTC), 0, "stopped"))


class Reporter:
    """Counts as a run does, from nothing at its start."""

    def __init__(self, folder: RunFolder, order: RunOrder, graph: Graph) -> None:
        self._folder = folder
        self._order = order
        self._started = dt.datetime.now(dt.UTC)
        self._birth = birth(os.getpid()) or ""
        self._batch = 0
        self._totals: dict[str, dict[str, int]] = {}
        self._kinds = {kind: [node.name for node in graph.of_kind(kind)] for kind in KINDS}
        self._log("INFO", f"run {order.run} of '{order.pipeline}' begins")
        self._log("WARNING", f"a value looks like {MARKUP}", "as it came:\n\t" + MARKUP)
        self._log("ERROR", "sink 'store' did not answer; trying again")

    def tell_past(self) -> None:
        at = self._started - _PAST
        while at < self._started:
            self._folder.add_batch(self._line(at, _APART.total_seconds()))
            at += _APART

    def tell(self, *, behind: bool) -> None:
        now = dt.datetime.now(dt.UTC)
        line = self._line(now, EVERY)
        self._folder.add_batch(line)
        waiting = {name: BacklogReport(120_000 if behind else 0, "rows") for name in self._kinds["source"]}
        marks = {name: int(now.timestamp() * 1000) - (250_000 if behind else 900) for name in self._kinds["source"]}
        self._folder.write_status(
            RunStatus(
                self._order.run, os.getpid(), self._birth, "running", now, turned_at=now, started_at=self._started,
                epoch=1, batches=self._batch, rows_per_second=sum(line.rows_in.values()) / EVERY,
                watermarks=marks, watermark=min(marks.values()), backlog=waiting,
                caught_up_in=dict.fromkeys(waiting, 181.0 if behind else 0.0),
                last_batch=LastBatch(line.batch, now, line.duration_ms), state_rows=line.state_rows,
                state_bytes=line.state_bytes, checkpoint_bytes=48_000_000, checkpoint_at=now, disk_free=10**11,
                **{f"rows_{key}": dict(counts) for key, counts in self._totals.items()},  # type: ignore[arg-type]
            )
        )  # fmt: skip
        if self._batch % 8 == 0:
            self._log("INFO", f"batch {self._batch} took {line.duration_ms / 1000:.1f} s")

    def fail(self, error: PenstockError) -> None:
        problems = tuple(problem.as_dict() for problem in error.problems)
        self._log("ERROR", problems[0]["message"])
        self._folder.write_end(RunEnd(self._order.run, dt.datetime.now(dt.UTC), 2, "failed", problems))
        sys.exit(2)

    def _line(self, at: dt.datetime, seconds: float) -> BatchLine:
        self._batch += 1
        wave = 1 + 0.4 * math.sin(at.timestamp() / 300) + 0.05 * math.sin(at.timestamp() * 1.7)
        rows = int(12_000 * wave * seconds)
        filtered, dead, late = rows // 50, int(self._batch % 7 == 0), int(self._batch % 5 == 0)
        steps, sinks = self._kinds["step"], self._kinds["sink"]
        line = BatchLine(
            self._batch, at, int(180 * wave),
            phases_ms={"addBatch": int(130 * wave), "walCommit": 14, "queryPlanning": 9, "latestOffset": 4},
            rows_in=dict.fromkeys(self._kinds["source"], rows),
            rows_out=dict.fromkeys(sinks, rows - filtered - dead - late),
            late={steps[-1]: late} if steps else {}, dead=dict.fromkeys(self._kinds["source"], dead),
            filtered={steps[0]: filtered} if steps else {},
            watermark=int(at.timestamp() * 1000) - int(900 * wave), state_rows=int(90_000 * wave),
            state_bytes=int(31_000_000 * wave),
            sink_ms={name: int(100 * wave) // (1 + 9 * place) for place, name in enumerate(sinks)},
        )  # fmt: skip
        told = {
            "in": line.rows_in,
            "out": line.rows_out,
            "late": line.late,
            "dead": line.dead,
            "filtered": line.filtered,
        }
        for key, counts in told.items():
            total = self._totals.setdefault(key, {})
            for name, count in counts.items():
                total[name] = total.get(name, 0) + count
        return line

    def _log(self, level: str, text: str, more: str | None = None) -> None:
        at = dt.datetime.now(dt.UTC).isoformat()
        line = {"at": at, "level": level, "logger": "fake", "text": text, "more": more}
        with self._folder.lines.open("a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")


def _mode(order: RunOrder) -> str:
    try:
        return (Path(order.state_dir) / "mode").read_text("utf-8").strip()
    except FileNotFoundError:
        return "run"


if __name__ == "__main__":
    main()
