"""Writes how a run is into its folder: a status every second, and a line for each batch."""

from __future__ import annotations

import datetime as dt
import math
import os
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from penstock.engine.balance import imbalances
from penstock.engine.progress import Ended, Status
from penstock.engine.session import cores
from penstock.graph.build import build
from penstock.graph.nodes import Graph
from penstock.reports.folder import RunFolder
from penstock.reports.processes import birth
from penstock.reports.state_folder import HISTORY, StateWrites
from penstock.reports.values import BacklogReport, BatchLine, HistoryReport, LastBatch, RunOrder, RunStatus
from penstock.spec.location import PipelineFile

BEAT_SECONDS = 0.5
_MEASURE_SECONDS = 30.0
_PARTS_KEPT = 4
"""Some 25,000 batches."""
Clock = Callable[[], dt.datetime]


def utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class Reporter:
    """Give it each status; it sees to the rest in threads of its own, so that a busy run shows that it lives."""

    def __init__(self, folder: RunFolder, order: RunOrder, now: Clock = utc_now) -> None:
        self.folder = folder
        self._now = now
        self._state = Path(order.state_dir)
        self._writes = StateWrites(self._state / "checkpoint")
        self._cores = known_cores(order.master)
        self._file: PipelineFile | None = None
        self._lock = threading.Lock()
        self._over = threading.Event()
        started = birth(os.getpid()) or ""
        self._status = RunStatus(order.run, os.getpid(), started, "starting", now(), started_at=now())
        self._threads = [
            threading.Thread(target=self._repeat, args=(BEAT_SECONDS, self._write), name="heartbeat", daemon=True),
            threading.Thread(target=self._repeat, args=(_MEASURE_SECONDS, self._measure), name="sizes", daemon=True),
        ]

    def start(self) -> None:
        self._write()
        for thread in self._threads:
            thread.start()

    def know(self, file: PipelineFile) -> None:
        """What pipeline it is, once its file has been read."""
        self._file = file
        run = file.pipeline.run
        self._note(trigger_ms=run.trigger.millis, restarts_per_hour=run.restart.max_per_hour)

    def show(self, status: Status) -> None:
        for ended in status.ended:
            # A full disk must not end the run; the ledger has the batch all the same.
            with suppress(OSError):
                self.folder.add_batch(batch_line(ended, self._graph, self._cores, self._writes))
        self._note(**_changed(status), turned_at=self._now())

    def end(self, phase: str | None = None) -> None:
        """Writes the last status; nothing is written after it."""
        self._over.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
        if phase is not None:
            self._note(phase=phase)
        self._write()

    @cached_property
    def _graph(self) -> Graph:
        assert self._file is not None
        return build(self._file)

    def _note(self, **changes: object) -> None:
        with self._lock:
            self._status = replace(self._status, **changes)  # type: ignore[arg-type]

    def _write(self) -> None:
        with self._lock:
            self._status = replace(self._status, at=self._now())
            with suppress(OSError):
                self.folder.write_status(self._status)

    def _measure(self) -> None:
        with suppress(OSError):
            self._note(disk_free=shutil.disk_usage(self._state).free)
            self._note(checkpoint_bytes=folder_bytes(self._state / "checkpoint"))

    def _repeat(self, seconds: float, work: Callable[[], None]) -> None:
        work()
        while not self._over.wait(seconds):
            work()


class BatchHistory:
    """Keeps a line for each batch in the state folder, for a run of which no server keeps the history."""

    def __init__(self, file: PipelineFile, state: Path, master: str) -> None:
        self._graph = build(file)
        self._folder = RunFolder(state / HISTORY)
        self._writes = StateWrites(state / "checkpoint")
        self._cores = known_cores(master)

    def note(self, status: Status) -> None:
        for ended in status.ended:
            # A full disk must not end the run; the ledger has the batch all the same.
            with suppress(OSError):
                self._folder.path.mkdir(exist_ok=True)
                line = batch_line(ended, self._graph, self._cores, self._writes)
                self._folder.add_batch(line, _PARTS_KEPT)


def known_cores(master: str) -> int | None:
    """How many cores a run has; None if its master is a cluster, which may give it more and take them back."""
    return cores(master) if master.startswith("local") else None


def batch_line(ended: Ended, graph: Graph, cores: int | None = None, writes: StateWrites | None = None) -> BatchLine:
    """The line of a batch, from what Spark reports, what the ledger holds and what lies in the checkpoint."""
    report, entry = ended.report, ended.entry
    return BatchLine(
        batch=report.batch,
        at=report.at,
        duration_ms=report.duration_ms,
        phases_ms=report.phases_ms,
        rows_in=entry.rows_in,
        rows_out=entry.rows_out,
        late=entry.late,
        dead=entry.rows_dead,
        filtered=entry.filtered,
        watermark=_millis(report.watermark),
        state_rows=report.state_rows,
        state_bytes=report.state_bytes,
        sink_ms=report.sink_ms,
        sink_retries=report.sink_retries,
        balanced=not imbalances(graph, entry),
        epoch=entry.epoch,
        cores=cores,
        written_bytes=None if writes is None else writes.of(report.batch),
    )


def _changed(status: Status) -> dict[str, object]:
    """The part of a report that the engine knows."""
    found: dict[str, object] = {
        "phase": status.phase,
        "epoch": status.epoch,
        "started_at": status.started,
        "batches": status.batches,
        "rows_in": dict(status.rows_in),
        "rows_out": dict(status.rows_out),
        "rows_late": dict(status.late),
        "rows_dead": dict(status.rows_dead),
        "rows_filtered": dict(status.filtered),
        "earlier_rows": status.earlier_rows,
        "watermarks": dict(status.watermarks),
        "backlog": {name: BacklogReport(item.amount, item.unit) for name, item in status.backlog.items()},
        "caught_up_in": {
            name: None if math.isinf(seconds) else seconds for name, seconds in status.caught_up_in.items()
        },
        "history": None,
        "sink_retries": dict(status.sink_retries),
        "careful": status.careful,
    }
    if status.history is not None:
        found["history"] = HistoryReport(status.history.done, status.history.total, status.history.seconds_left)
    last = status.last
    if last is not None:
        ended_at = last.at + dt.timedelta(milliseconds=last.duration_ms)
        found |= {
            "last_batch": LastBatch(last.batch, last.at, last.duration_ms),
            "checkpoint_at": ended_at,
            "rows_per_second": last.rows_per_second,
            "watermark": _millis(last.watermark),
            "state_rows": last.state_rows,
            "state_bytes": last.state_bytes,
        }
    return found


def _millis(time: dt.datetime | None) -> int | None:
    return None if time is None else round(time.timestamp() * 1000)


def folder_bytes(folder: Path) -> int:
    """What the files below a folder take; files that go away meanwhile count for nothing."""
    total = 0
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return 0
    for entry in entries:
        with suppress(OSError):
            if entry.is_dir(follow_symlinks=False):
                total += folder_bytes(Path(entry.path))
            else:
                total += entry.stat(follow_symlinks=False).st_size
    return total
