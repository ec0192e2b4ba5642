"""Where the history of a pipeline is read from, and what its file says that counts for its capacity."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.capacity.fit import MeasuredBatch
from penstock.capacity.measured import of_line
from penstock.errors import PenstockError
from penstock.reports.folder import Cursor, RunFolder
from penstock.reports.inside import read_inside
from penstock.reports.state_folder import HISTORY, IDENTITY, state_partitions
from penstock.spec.units import Duration

_MOST = 100_000


@dataclass(frozen=True)
class PipelineFacts:
    """What the file of a pipeline says of its batches; None is what it does not say."""

    trigger: float
    """Seconds."""
    batch_limit: int | None = None
    """The most rows of a batch, if its only source has a limit in rows."""
    partitions: int | None = None


@dataclass(frozen=True)
class PastBatches:
    """A pipeline with its history, the oldest batch first."""

    name: str
    batches: Sequence[MeasuredBatch]
    facts: PipelineFacts


def facts_of(document: Mapping[str, Any]) -> PipelineFacts:
    """From a pipeline as it was declared, in the shape of a pipeline file."""
    spec = document.get("spec", {})
    trigger = spec.get("run", {}).get("trigger", "1 second")
    sources = list(spec.get("sources", {}).values())
    limits = [found for source in sources for found in _limits_of(source)]
    limit = limits[0] if len(sources) == 1 and len(limits) == 1 else None
    return PipelineFacts(Duration.parse(trigger).millis / 1000, limit, spec.get("state", {}).get("partitions"))


def _limits_of(source: Any) -> list[int]:
    components = source.values() if isinstance(source, Mapping) else ()
    found = [each.get("maxRowsPerBatch") for each in components if isinstance(each, Mapping)]
    return [limit for limit in found if isinstance(limit, int)]


def read_state_folder(state: Path) -> PastBatches:
    """The history that `penstock run` has kept beside the state; raises HISTORY_MISSING."""
    try:
        identity = json.loads(read_inside(state, IDENTITY))
        name, document = str(identity["name"]), (identity.get("version") or {}).get("document", {})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise PenstockError.of("HISTORY_MISSING", path=state) from None
    folder, cursor, batches = RunFolder(state / HISTORY), Cursor(), list[MeasuredBatch]()
    while True:
        lines, after = folder.read_batches(cursor)
        batches += [of_line(line) for line in lines]
        if after == cursor:
            break
        cursor = after
    if not batches:
        raise PenstockError.of("HISTORY_MISSING", path=state)
    facts, partitions = facts_of(document), None
    with suppress(OSError, ValueError, IndexError):
        partitions = state_partitions(state / "checkpoint")
    return PastBatches(name, batches[-_MOST:], replace(facts, partitions=partitions or facts.partitions))
