"""The folder of a server: where pipelines, their versions, state and runs lie.

Only names that have been checked become parts of a path.
"""

from __future__ import annotations

import datetime as dt
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from penstock.durable import make_folders, write_durably
from penstock.errors import PenstockError
from penstock.reports.savepoints import SAVEPOINTS, refuse_bad_name
from penstock.spec.pipeline import PIPELINE_NAME

RUN_ID = re.compile(r"r[0-9a-f]{12}")
OPERATION_ID = re.compile(r"o[0-9a-f]{12}")
DELETED = "deleted"
"""Where the files of deleted pipelines wait for their end."""
_KINDS = ("yaml", "sql", "py")
_WHEN = "%Y%m%dT%H%M%S%f"


@dataclass(frozen=True)
class DataFolder:
    """The folder that `penstock serve --data` names."""

    path: Path

    def pipeline(self, name: str) -> Path:
        """Raises PIPELINE_UNKNOWN for what cannot be a name."""
        if not PIPELINE_NAME.fullmatch(name):
            raise PenstockError.of("PIPELINE_UNKNOWN", name=name)
        return self.path / "pipelines" / name

    def state(self, name: str) -> Path:
        return self.pipeline(name) / "state"

    def run(self, name: str, run: str) -> Path:
        """Raises NOT_FOUND for what cannot be the id of a run."""
        if not RUN_ID.fullmatch(run):
            raise PenstockError.of("NOT_FOUND", what="run", name=run)
        return self.pipeline(name) / "runs" / run

    def operation(self, name: str, operation: str) -> Path:
        """Raises NOT_FOUND for what cannot be the id of an operation."""
        if not OPERATION_ID.fullmatch(operation):
            raise PenstockError.of("NOT_FOUND", what="operation", name=operation)
        return self.pipeline(name) / "operations" / operation

    def savepoint(self, name: str, savepoint: str) -> Path:
        """Raises SAVEPOINT_NAME for what cannot be the name of a savepoint."""
        refuse_bad_name(savepoint)
        return self.state(name) / SAVEPOINTS / savepoint

    def version(self, name: str, number: int, kind: str) -> Path:
        if kind not in _KINDS:
            raise ValueError(f"no kind of pipeline file: {kind}")
        return self.pipeline(name) / "versions" / f"{int(number)}.{kind}"

    def write_version(self, name: str, number: int, kind: str, text: str) -> Path:
        """The file of a version, with this text in it."""
        target = self.version(name, number, kind)
        if not (target.exists() and target.read_bytes() == text.encode("utf-8")):
            make_folders(target.parent)
            write_durably(target, text)
        return target

    def put_aside(self, name: str, now: dt.datetime) -> None:
        """Moves all files of a pipeline that is gone to `deleted/`, so that a new one of its name starts afresh."""
        found = self.pipeline(name)
        if found.exists():
            kept = self.path / DELETED / f"{name}-{now:{_WHEN}}"
            kept.parent.mkdir(parents=True, exist_ok=True)
            found.rename(kept)

    def deleted_before(self, time: dt.datetime) -> list[Path]:
        """The folders of pipelines that were deleted before a time, the oldest first.

        Anything else that lies there, such as a link, is not ours to remove.
        """
        found: list[tuple[dt.datetime, Path]] = []
        with suppress(FileNotFoundError), os.scandir(self.path / DELETED) as entries:
            for entry in entries:
                when = _deleted_at(entry.name)
                if when is not None and when < time and entry.is_dir(follow_symlinks=False):
                    found.append((when, Path(entry.path)))
        return [path for _, path in sorted(found)]


def _deleted_at(folder: str) -> dt.datetime | None:
    """The time in the name of such a folder; None if it is not one that was put aside."""
    name, _, when = folder.rpartition("-")
    if not PIPELINE_NAME.fullmatch(name):
        return None
    try:
        return dt.datetime.strptime(when, _WHEN).replace(tzinfo=dt.UTC)
    except ValueError:
        return None
