"""As much of a state folder as those need who plan a change of a pipeline and know nothing of the engine."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from penstock.reports.codec import read
from penstock.reports.inside import names_inside, read_inside
from penstock.reports.version import Version

IDENTITY = "pipeline.json"


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
