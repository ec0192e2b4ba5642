"""Which savepoints pipelines have: looked up in their state folders whenever something has changed there."""

from __future__ import annotations

import datetime as dt
import time
from pathlib import Path

from penstock.control.supervisor.ports import Changes, Folders, FoundSavepoint
from penstock.reports.inside import changed_inside, is_folder_inside, names_inside, read_inside
from penstock.reports.savepoints import MANIFEST, SAVEPOINTS, from_json, is_name

_FRESH_NS = 2_000_000_000
"""A folder that has just changed may change again without its time telling."""


class SavepointWatch:
    """Remembers what it has seen of each pipeline, so that looking again costs a glance."""

    def __init__(self, folders: Folders) -> None:
        self._folders = folders
        self._seen: dict[str, int] = {}
        self._known: dict[str, dict[str, tuple[int, FoundSavepoint]]] = {}

    def look(self, changes: Changes, pipeline: str) -> None:
        """Adds all savepoints of a pipeline to the changes, if they may be others than before."""
        # A process of the pipeline writes in there, so no link is followed.
        state = self._folders.state(pipeline)
        changed = changed_inside(state, SAVEPOINTS)
        if self._seen.get(pipeline, -1) == changed:
            return
        known = self._known.get(pipeline, {})
        names = (name for name in names_inside(state, SAVEPOINTS) if is_name(name))
        found = [name for name in names if is_folder_inside(state, SAVEPOINTS, name)]
        now = {name: _read(state, name, known.get(name)) for name in found}
        first = pipeline not in self._known
        if first or {name: at for name, (at, _) in now.items()} != {name: at for name, (at, _) in known.items()}:
            changes.savepoints[pipeline] = tuple(found for _, found in now.values())
        self._known[pipeline] = now
        # Where the clock was set back, a time to come is long past.
        if abs(time.time_ns() - changed) > _FRESH_NS:
            self._seen[pipeline] = changed

    def forget(self) -> None:
        """Another server may have noted something else meanwhile."""
        self._seen, self._known = {}, {}


def _read(state: Path, name: str, known: tuple[int, FoundSavepoint] | None) -> tuple[int, FoundSavepoint]:
    written = changed_inside(state, SAVEPOINTS, name, MANIFEST)
    if known is not None and known[0] == written:
        return known
    try:
        saved = from_json(read_inside(state, SAVEPOINTS, name, MANIFEST).decode("utf-8"))
    except (OSError, ValueError):
        at = dt.datetime.fromtimestamp(changed_inside(state, SAVEPOINTS, name) / 1e9, dt.UTC)
        return written, FoundSavepoint(name, at, note="it cannot be read")
    return written, FoundSavepoint(
        name,
        saved.created_at,
        saved.batch,
        saved.bytes,
        saved.state_bytes,
        saved.watermark or None,
        saved.partitions,
        saved.note,
        saved.automatic,
        saved.document,
    )
