"""A Delta table in a local folder, on the disk: its library writes files and the log, and syncs neither.

Files that tasks wrote are synced before the log names them. What the library itself writes, the log and the files of
a merge, is synced right after; the batch counts as stored only then. A power failure in between can leave a version
whose entry in the log is cut short, which nobody can read and which is moved aside; or one whose files are not whole,
which is an error that names them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from penstock.components.shared.delta_log import LOG, Unreadable, commit_name, relative
from penstock.durable import NewFiles, rename_durably, sync_files, sync_folder, sync_folders_of
from penstock.errors import PenstockError

_CUT_SHORT = ".cut-short"


class TableOnDisk:
    """Of a table in a folder; for one in an object store there is nothing to do."""

    def __init__(self, root: str) -> None:
        self.root = Path(root)
        self._log = NewFiles(self.root / LOG)
        self._synced = -1

    def mend(self, node: str) -> None:
        """Call before the table is opened: drops the last versions that were cut short; raises SINK_FILES_LOST."""
        newest = self._newest()
        if newest < 0:
            return
        entry = self.root / commit_name(newest)
        try:
            added = [(item["path"], item["size"]) for item in _added(entry)]
        except (ValueError, KeyError, TypeError):
            rename_durably(entry, entry.with_name(entry.name + _CUT_SHORT))
            self.mend(node)
            return
        for path, size in added:
            try:
                file = self.root / relative(str(path))
            except Unreadable:
                continue
            if not file.exists() or file.stat().st_size != size:
                raise PenstockError.of("SINK_FILES_LOST", node=node, file=file, version=newest, entry=entry)
        self._synced = newest - 1

    def sync_written(self, paths: list[str]) -> None:
        """Before the log names files that tasks have written and synced."""
        sync_folders_of([self.root / path for path in paths], self.root)

    def sync(self) -> None:
        """After the library has made a version."""
        newest = self._newest()
        files = []
        for version in range(self._synced + 1, newest + 1):
            entry = self.root / commit_name(version)
            if entry.exists():
                files += [self.root / unquote(str(item["path"])) for item in _added(entry)]
        sync_files([file for file in files if self.root in file.parents and file.exists()], self.root)
        self._log.sync()
        sync_folder(self.root)
        self._synced = newest

    def _newest(self) -> int:
        folder = self.root / LOG
        names = [file.stem for file in folder.glob("*.json")] if folder.is_dir() else []
        return max((int(name) for name in names if name.isdigit()), default=-1)


def _added(entry: Path) -> Iterator[dict[str, object]]:
    """The files that a version adds; raises ValueError if it is cut short."""
    lines = [json.loads(line) for line in entry.read_text("utf-8").splitlines() if line.strip()]
    if not lines:
        raise ValueError("it is empty")
    yield from (line["add"] for line in lines if "add" in line)
