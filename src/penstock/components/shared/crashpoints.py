"""Named places where a run can be made to die or to stand still, so that tests can show what survives.

`PENSTOCK_CRASH_AT=point@batch` kills the process with SIGKILL the first time that point is reached in that batch, and
`point@batch@sink` the first time this sink reaches it; `PENSTOCK_CRASH_TRACE` names a file in which every point is
noted that is reached. `PENSTOCK_STOP_AT`, with a place like the first, stops the process there with SIGSTOP, once; it
goes on when it gets SIGCONT. The test kit installs a hook instead and raises inside the process.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

POINTS = (
    "batch.start",
    "sink.before_write",
    "sink.in_transaction",
    "sink.after_commit",
    "batch.after_sinks",
    "batch.after_ledger",
)
SINK_POINTS = ("sink.staged", "sink.compacting", "sink.compacted")
"""Points that only some sinks pass."""

HISTORY_POINTS = ("history.copied", "history.read")
"""Points that only a run passes which reads history first; their batch is 0."""

MEANINGS = {
    "history.copied": "the history is sorted and copied; that is not noted yet",
    "history.read": "all of the history has been read; that is not noted yet",
    "batch.start": "before anything of the batch is stored",
    "sink.before_write": "before a sink is handed its rows",
    "sink.staged": "rows are loaded beside the table; the transaction that merges them has not begun",
    "sink.in_transaction": "rows are written but not committed",
    "sink.compacting": "small files have been merged into larger ones, which nothing names yet",
    "sink.compacted": "the merged files are named; what they replace is still there",
    "sink.after_commit": "a sink has stored the batch; Spark does not know yet",
    "batch.after_sinks": "all sinks have stored it",
    "batch.after_ledger": "the ledger has its entry; Spark has not committed the batch",
}
"""Where each point lies, in words, in the order in which a run passes them."""

AT = "PENSTOCK_CRASH_AT"
STOP_AT = "PENSTOCK_STOP_AT"
TRACE = "PENSTOCK_CRASH_TRACE"

Hook = Callable[[str, int], None]
_hook: Hook | None = None
_sink = ""
_stood = False


def install(hook: Hook | None) -> None:
    """Calls `hook(point, batch)` at every point of this process; None removes it."""
    global _hook
    _hook = hook


@contextmanager
def inside(sink: str) -> Iterator[None]:
    """Points that are reached here are those of this sink."""
    global _sink
    before, _sink = _sink, sink
    try:
        yield
    finally:
        _sink = before


def reach(point: str, batch: int) -> None:
    place = f"{point}@{batch}"
    trace = os.environ.get(TRACE)
    if trace:
        with open(trace, "a", encoding="utf-8") as file:
            file.write(f"{place}@{_sink}\n")
    if _hook is not None:
        _hook(point, batch)
    wanted = os.environ.get(AT)
    if wanted and wanted in (place, f"{place}@{_sink}"):
        os.kill(os.getpid(), signal.SIGKILL)
    _stand_still(place)


def _stand_still(place: str) -> None:
    global _stood
    wanted = os.environ.get(STOP_AT)
    if wanted and not _stood and wanted in (place, f"{place}@{_sink}"):
        _stood = True
        # To this very thread: another one would take it a moment later, and this one would be further by then.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
