"""An operation without Spark: tells how far it is as a real one does, and ends as `worker` in the state folder says.

`work` does what was asked, `fail` refuses it, `die` ends without a word, `hang` goes on for ever, and `die once` dies
the first time and then works. A new version follows until it is given up or takes over.
"""

from __future__ import annotations

import datetime as dt
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from tests.control.supervisor.fake_savepoints import put_savepoint

from penstock.engine.cutover import note
from penstock.engine.cutover.note import Cutover
from penstock.errors import PenstockError
from penstock.reports.folder import OperationFolder
from penstock.reports.processes import birth
from penstock.reports.values import FOLLOWS, OperationEnd, OperationOrder, OperationStatus

_RESULTS: dict[str, dict[str, Any]] = {
    "verify": {"files": 1, "bytes": 2, "damages": []},
    "restore": {"batch": 7},
    "fork": {"batch": 7, "of": "another"},
    "rescale": {"rescaled": {"before": 2, "after": 8, "batch": 7, "rows": 9}},
    "compare": {
        "stands": 7,
        "committed": 7,
        "behind": 0,
        "sinks": [
            {
                "sink": "store",
                "how": "time",
                "reason": "",
                "new_columns": ["longest"],
                "gone_columns": [],
                "compared": {
                    "equal": 1204,
                    "different": 1,
                    "only_old": 0,
                    "only_new": 0,
                    "samples": [{"old": {"article": "a7", "views": 4}, "new": {"article": "a7", "views": 2}}],
                },
            },
            {"sink": "raw", "how": "not compared", "reason": "only the new version has it", "compared": None},
        ],
    },
    "takeover": {"batch": 7, "seconds": 1.5},
    "abandon": {},
    "upgrade": {"rescaled": None, "grafted": {"kept": {"daily": 9}, "begun": [], "bootstrapped": []}},
}


def main() -> None:
    folder = OperationFolder(Path(sys.argv[1]))
    order = folder.order
    assert order is not None
    state = Path(order.state_dir)
    now = dt.datetime.now(dt.UTC)
    started = birth(os.getpid()) or ""
    folder.write_status(OperationStatus(order.operation, os.getpid(), started, "at work", now, 1, 4))
    mode = _mode(state)
    if mode == "die once":
        (state / "worker").write_text("work", "utf-8")
    if mode.startswith("die"):
        os.kill(os.getpid(), signal.SIGKILL)
    while mode == "hang":
        time.sleep(0.02)
        mode = _mode(state)
    if mode == "fail":
        problem = PenstockError.of("SINK_CANNOT_REWIND", node="out", reason="no").problems[0]
        folder.write_end(OperationEnd(order.operation, now, "failed", {}, (problem.as_dict(),)))
        return
    if order.kind == "cutover":
        _follow(folder, order, started)
    if order.kind in ("takeover", "abandon"):
        note.remove(state)
    name = str(order.asked.get("savepoint") or order.asked.get("name") or "taken")
    if order.kind == "savepoint":
        put_savepoint(state, name)
    folder.write_end(OperationEnd(order.operation, now, "done", {"savepoint": name, **_RESULTS.get(order.kind, {})}))


def _follow(folder: OperationFolder, order: OperationOrder, started: str) -> None:
    state, now = Path(order.state_dir), dt.datetime.now(dt.UTC)
    begun = Cutover(order.pipeline, order.asked["file"], "f", "b", "taken", now.isoformat(), "following", 7, "q",
                    kept={"articles": 420}, begun=("newest",))  # fmt: skip
    note.write(state, begun)
    told = f"{FOLLOWS} and stands after batch 7"
    folder.write_status(OperationStatus(order.operation, os.getpid(), started, told, now))
    while note.find(state) is not None:
        time.sleep(0.02)


def _mode(state: Path) -> str:
    try:
        return (state / "worker").read_text("utf-8").strip()
    except FileNotFoundError:
        return "work"


if __name__ == "__main__":
    main()
