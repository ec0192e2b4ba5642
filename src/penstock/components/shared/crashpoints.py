"""Named places where a run can be made to die, so that tests can show what survives.

`PENSTOCK_CRASH_AT=point@batch` kills the process with SIGKILL the first time that point is reached in that
batch; the test kit installs a hook instead and raises inside the process.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

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

Hook = Callable[[str, int], None]
_hook: Hook | None = None


def install(hook: Hook | None) -> None:
    """Calls `hook(point, batch)` at every point of this process; None removes it."""
    global _hook
    _hook = hook


def reach(point: str, batch: int) -> None:
    if _hook is not None:
        _hook(point, batch)
    wanted = os.environ.get("PENSTOCK_CRASH_AT")
    if wanted and wanted == f"{point}@{batch}":
        os.kill(os.getpid(), signal.SIGKILL)
