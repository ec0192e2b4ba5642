"""As much of a state folder as those need who plan a change of a pipeline and know nothing of the engine."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.reports.codec import read
from penstock.reports.inside import names_inside, read_inside
from penstock.reports.version import Version

IDENTITY = "pipeline.json"
HISTORY = "history"
"""The folder below it with a line for each batch, of a pipeline that no server keeps the history of."""


@dataclass(frozen=True)
class StateFacts:
    """What is known of a state: the pipeline that last ran on it, and into how many partitions it is divided."""

    version: Version
    partitions: int


@dataclass(frozen=True)
class _Noted:
    version: Version | None = None


def state_facts(state: Path) -> StateFacts | None:
    """None if nothing has been read yet, so that there is no state."""
    try:
        noted = read(_Noted, read_inside(state, IDENTITY))
        partitions = state_partitions(state / "checkpoint")
    except (OSError, ValueError, IndexError):
        return None
    return None if noted.version is None or partitions is None else StateFacts(noted.version, partitions)


def state_partitions(checkpoint: Path) -> int | None:
    """Into how many partitions the state is divided, as the newest batch has it."""
    inside = (checkpoint.name, "offsets")
    newest = max((int(name) for name in names_inside(checkpoint.parent, *inside) if name.isdigit()), default=None)
    if newest is None:
        return None
    text = read_inside(checkpoint.parent, *inside, str(newest)).decode("utf-8")
    conf = json.loads(text.splitlines()[1]).get("conf", {})
    found = conf.get("spark.sql.shuffle.partitions")
    return int(found) if found is not None else None


class StateWrites:
    """How many bytes of state each batch writes into a checkpoint. Which stores there are is found once."""

    def __init__(self, checkpoint: Path) -> None:
        self._state = checkpoint / "state"
        self._stores: tuple[str, ...] = ()

    def of(self, batch: int) -> int | None:
        """None if the batch keeps no state, or none that can be seen from here."""
        self._stores = self._stores or tuple(_stores(self._state))
        sizes = [_size(f"{store}/{batch + 1}.changelog") for store in self._stores]
        known = [size for size in sizes if size is not None]
        return sum(known) if known else None


def _stores(state: Path) -> Iterator[str]:
    """The folders below OPERATOR/PARTITION, or that folder itself, in which Spark logs changes of state."""
    for operator in _folders(str(state)):
        for partition in _folders(operator):
            named = [store for store in _folders(partition) if os.path.basename(store) not in _NO_STORES]
            yield from named or [partition]


_NO_STORES = ("SSTs", "logs", "archive", "_metadata")


def _folders(path: str) -> list[str]:
    try:
        with os.scandir(path) as found:
            return sorted(entry.path for entry in found if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


def _size(path: str) -> int | None:
    try:
        return os.stat(path, follow_symlinks=False).st_size
    except OSError:
        return None
