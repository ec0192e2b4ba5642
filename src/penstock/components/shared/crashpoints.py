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
from contextvars import ContextVar

POINTS = (
    "batch.start",
    "sink.before_write",
    "sink.in_transaction",
    "sink.after_commit",
    "batch.after_sinks",
    "batch.after_ledger",
)
SINK_POINTS = ("sink.staged", "sink.compacting", "sink.compacted", "sink.piece_stored")
"""Points that only some sinks pass."""

STATE_POINTS = ("state.written", "state.indexed")
"""Points that only a pipeline passes whose state is in chunk files."""

REWIND_POINTS = ("sink.rewinding",)
"""Points that only a run passes which goes back to a savepoint; their batch is the one that it goes back to."""

HISTORY_POINTS = ("history.copied", "history.read")
"""Points that only a run passes which reads history first; their batch is 0."""

SAVEPOINT_POINTS = ("savepoint.linked", "savepoint.before_rename", "savepoint.after_rename")
RESTORE_POINTS = ("restore.built", "restore.swapped", "restore.rewound")
"""Points of taking a savepoint, and of going back to one; their batch is 0."""
RESCALE_POINTS = ("rescale.copied", "rescale.repartitioned", "restore.built", "restore.swapped")
GRAFT_POINTS = ("graft.copied", "graft.grafted", "restore.built", "restore.swapped")
"""Points of dividing state anew, and of carrying it over to another version; their batch is 0."""
CUTOVER_POINTS = (
    "cutover.saved",
    "cutover.forked",
    "cutover.prepared",
    "cutover.planned",
    "cutover.stopped",
    "cutover.caught_up",
    "cutover.built",
    "restore.built",
    "restore.swapped",
    "cutover.taken",
)
"""Points of a cut-over; their batch is 0."""

MEANINGS = {
    "restore.built": "a savepoint lies ready beside the state; nothing has been replaced",
    "restore.swapped": "the state is that of the savepoint; sinks have not gone back yet",
    "restore.rewound": "sinks have gone back too; that is not noted yet",
    "rescale.copied": "state that is to be divided anew has been copied",
    "rescale.repartitioned": "the copy is divided anew and compared; it has not taken the place of what was there",
    "graft.copied": "state that is to be carried over to another version of the pipeline has been copied",
    "graft.grafted": "the copy is as the other version wants it; it has not taken the place of what was there",
    "cutover.saved": "the savepoint is taken from which a new version is to begin",
    "cutover.forked": "the new version has a state of its own, as the savepoint has it",
    "cutover.prepared": "the new version can begin to follow; that is not noted yet",
    "cutover.planned": "a batch of the new version is planned, as the pipeline read it",
    "cutover.stopped": "the pipeline has stopped, so that the new version can take over",
    "cutover.caught_up": "the new version has read all that the pipeline has",
    "cutover.built": "the state of the new version lies ready; it has not taken the place of what was there",
    "cutover.taken": "the new version has taken over; what it was prepared with is still there",
    "savepoint.linked": "the files of a savepoint are linked; batches go on",
    "savepoint.before_rename": "a savepoint is complete, but has no name yet",
    "savepoint.after_rename": "a savepoint is there; who asked for it does not know yet",
    "history.copied": "the history is sorted and copied; that is not noted yet",
    "history.read": "all of the history has been read; that is not noted yet",
    "sink.rewinding": "a sink goes back to what it held after the batch, and is in the middle of it",
    "batch.start": "before anything of the batch is stored",
    "state.written": "the chunks of the batch are on the disk; no index names them",
    "state.indexed": "the index names them; no sink has a row of the batch",
    "sink.before_write": "before a sink is handed its rows",
    "sink.staged": "rows are loaded beside the table; the transaction that merges them has not begun",
    "sink.in_transaction": "rows are written but not committed",
    "sink.piece_stored": "a part of a large batch is in the table; the rest is not, nor the number of the batch",
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
_sink: ContextVar[str] = ContextVar("sink", default="")
_stood = False


def install(hook: Hook | None) -> None:
    """Calls `hook(point, batch)` at every point of this process; None removes it."""
    global _hook
    _hook = hook


@contextmanager
def inside(sink: str) -> Iterator[None]:
    """Points that are reached here are those of this sink."""
    before = _sink.set(sink)
    try:
        yield
    finally:
        _sink.reset(before)


def current_sink() -> str:
    """The sink whose points are reached here."""
    return _sink.get()


def reach(point: str, batch: int) -> None:
    place, sink = f"{point}@{batch}", _sink.get()
    trace = os.environ.get(TRACE)
    if trace:
        with open(trace, "a", encoding="utf-8") as file:
            file.write(f"{place}@{sink}\n")
    if _hook is not None:
        _hook(point, batch)
    wanted = os.environ.get(AT)
    if wanted and wanted in (place, f"{place}@{sink}"):
        os.kill(os.getpid(), signal.SIGKILL)
    _stand_still(place)


def _stand_still(place: str) -> None:
    global _stood
    wanted = os.environ.get(STOP_AT)
    if wanted and not _stood and wanted in (place, f"{place}@{_sink.get()}"):
        _stood = True
        # To this very thread: another one would take it a moment later, and this one would be further by then.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
