"""What the supervisor remembers of the runs it watches, and how they are as people are told."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.control.supervisor import decide
from penstock.control.supervisor.health import STOPS, Health, Trail
from penstock.control.supervisor.operating import AtWork
from penstock.control.supervisor.ports import Run
from penstock.reports.folder import Cursor
from penstock.reports.values import RunStatus

CALM = dt.timedelta(seconds=5)
"""How long a run must be in another healthy state before that is said."""
_NEVER = dt.datetime.min.replace(tzinfo=dt.UTC)
_WELL = ("RUNNING", "IDLE", "CATCHING_UP", "DEGRADED")


@dataclass(frozen=True)
class Live:
    """What is known of a pipeline now."""

    pipeline: str
    health: Health
    run: Run | None
    status: RunStatus | None
    operations: Sequence[AtWork] = ()
    """What is done to its state, or waits to be."""


@dataclass
class Watched:
    """What the supervisor remembers of an open run between ticks."""

    trail: Trail
    cursor: Cursor
    adopted: bool
    looked: dt.datetime = _NEVER
    """When it was last seen not to have ended."""
    well_since: dt.datetime | None = None
    status: RunStatus | None = None
    found: Health = field(default_factory=lambda: Health("STARTING", "its process starts"))
    """How it was judged in the latest tick."""
    shown: Health | None = None
    other_since: dt.datetime | None = None
    """Since when it is in another state than the one that is shown."""
    noted_at: dt.datetime = _NEVER
    """When it was last noted in the run's folder up to where its batches have been read."""


def lasted(watched: Watched, now: dt.datetime) -> bool:
    """Whether it has been well for so long that its start counts as one."""
    if watched.found.state not in _WELL:
        watched.well_since = None
        return False
    watched.well_since = watched.well_since or now
    return now - watched.well_since >= decide.LASTED


def calm(watched: Watched, now: dt.datetime, *, stopping: bool) -> Health:
    """How a run is; a healthy one that changes its state for a moment only keeps the one it has."""
    found = STOPS if stopping else watched.found
    shown = watched.shown
    if shown is None or found.state == shown.state or not {found.state, shown.state} <= {*_WELL}:
        watched.shown, watched.other_since = found, None
        return found
    watched.other_since = watched.other_since or now
    if now - watched.other_since >= CALM:
        watched.shown, watched.other_since = found, None
        return found
    return shown
