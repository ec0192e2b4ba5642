"""A runner without Spark: reports batches and takes savepoints as a real one does, and ends as its order tells it.

The mode stands in `spark.fake.mode` of the order, or in the file `mode` of the state folder, which tests may change.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import sys
import time
from pathlib import Path

from tests.control.supervisor.fake_savepoints import put_savepoint

from penstock.errors import PenstockError
from penstock.reports.folder import RunFolder
from penstock.reports.processes import birth
from penstock.reports.savepoint_requests import Answer, Requests
from penstock.reports.values import BatchLine, LastBatch, Outcome, RunEnd, RunOrder, RunStatus

EVERY = 0.05


def main() -> None:
    folder = RunFolder(Path(sys.argv[1]))
    order = folder.order
    assert order is not None
    stopped = []
    mode = _mode(order)
    signal.signal(signal.SIGTERM, signal.SIG_IGN if mode == "deaf" else lambda *_: stopped.append(True))
    started, batch = birth(os.getpid()) or "", 0
    _log(folder, "INFO", f"run {order.run} of '{order.pipeline}' begins")
    while True:
        mode = _mode(order)
        if mode != "silent":
            now = dt.datetime.now(dt.UTC)
            last = LastBatch(batch, now, 10)
            budget = int(order.conf.get("spark.fake.budget", "6"))
            folder.add_batch(BatchLine(batch, now, 10, rows_in={"views": 1}, rows_out={"store": 1}))
            folder.write_status(
                RunStatus(order.run, os.getpid(), started, "running", now, epoch=1, batches=batch + 1,
                          last_batch=last, restarts_per_hour=budget)
            )  # fmt: skip
            batch += 1
        if mode not in ("deaf", "die"):
            _take_savepoints(Path(order.state_dir), batch)
        if stopped:
            _end(folder, order, 0, "stopped")
        if mode == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if mode == "mistake":
            _end(folder, order, 2, "failed", PenstockError.of("SQL_SYNTAX", node="clean", reason="near FORM"))
        if mode == "outage":
            _end(
                folder, order, 1, "failed", PenstockError.of("SINK_UNREACHABLE", node="store", server="db", reason="no")
            )
        time.sleep(EVERY)


def _take_savepoints(state: Path, batch: int) -> None:
    requests = Requests(state)
    for number in requests.waiting():
        asked = requests.asked(number)
        assert asked is not None
        if asked.name == "bad":
            requests.refuse(number, PenstockError.of("SAVEPOINT_NOTHING", name="a"))
        else:
            name = asked.name or f"s{number[:6]}"
            requests.answer(number, Answer(str(put_savepoint(state, name, batch=batch, note=asked.note)), 0.01))


def _log(folder: RunFolder, level: str, text: str, more: str | None = None) -> None:
    line = {"at": dt.datetime.now(dt.UTC).isoformat(), "level": level, "logger": "fake", "text": text, "more": more}
    with folder.lines.open("a", encoding="utf-8") as log:
        log.write(json.dumps(line) + "\n")


def _mode(order: RunOrder) -> str:
    try:
        return (Path(order.state_dir) / "mode").read_text("utf-8").strip()
    except FileNotFoundError:
        return order.conf.get("spark.fake.mode", "run")


def _end(folder: RunFolder, order: RunOrder, code: int, outcome: Outcome, error: PenstockError | None = None) -> None:
    problems = () if error is None else tuple(problem.as_dict() for problem in error.problems)
    for problem in problems:
        _log(folder, "ERROR", problem["message"], "org.apache.spark.Something: it went wrong\n\tat somewhere")
    folder.write_end(RunEnd(order.run, dt.datetime.now(dt.UTC), code, outcome, problems))
    sys.exit(code)


if __name__ == "__main__":
    main()
