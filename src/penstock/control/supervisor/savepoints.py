"""Which savepoints pipelines have: looked up in their state folders whenever something has changed there."""

from __future__ import annotations

import datetime as dt
import os
import time
from pathlib import Path

from penstock.control.supervisor.ports import Changes, Folders, FoundSavepoint
from penstock.reports.savepoints import MANIFEST, SAVEPOINTS, from_json, names_in

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
        folder = self._folders.state(pipeline) / SAVEPOINTS
        changed = _changed_at(folder)
        if self._seen.get(pipeline, -1) == changed:
            return
        known = self._known.get(pipeline, {})
        now = {name: _read(folder / name, known.get(name)) for name in names_in(folder)}
        first = pipeline not in self._known
        if first or {name: at for name, (at, _) in now.items()} != {name: at for name, (at, _) in known.items()}:
            changes.savepoints[pipeline] = tuple(found for _, found in now.values())
        self._known[pipeline] = now
        if time.time_ns() - changed > _FRESH_NS:
            self._seen[pipeline] = changed

    def forget(self) -> None:
        """Another server may have noted something else meanwhile."""
        self._seen, self._known = {}, {}


def _changed_at(folder: Path) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return 0


def _read(folder: Path, known: tuple[int, FoundSavepoint] | None) -> tuple[int, FoundSavepoint]:
    file = folder / MANIFEST
    written = _changed_at(file)
    if known is not None and known[0] == written:
        return known
    try:
        saved = from_json(file.read_text("utf-8"))
    except (OSError, ValueError):
        at = dt.datetime.fromtimestamp(_changed_at(folder) / 1e9, dt.UTC)
        return written, FoundSavepoint(folder.name, at, note="it cannot be read")
    return written, FoundSavepoint(
        folder.name,
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
