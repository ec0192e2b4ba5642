"""Accepts that a sink has lost batches, so that the pipeline can run again without them."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from penstock.engine.ledger import Gap, Ledger
from penstock.engine.statedir import StateDir, read_identity, refuse_foreign
from penstock.errors import PenstockError
from penstock.spec.location import PipelineFile


def accept_gap(file: PipelineFile, path: Path, sink: str) -> tuple[Gap, ...]:
    """Accepts what the last runs have found missing in a sink of a pipeline that does not run."""
    name = file.pipeline.name
    refuse_foreign(path, name)
    if read_identity(path) is None:
        raise PenstockError.of("STATE_MISSING", path=path, name=name)
    with StateDir(path, name) as state:
        ledger, known_as = Ledger(state.ledger), state.known_as(sink)
        open_ones = [gap for gap in ledger.gaps() if gap.sink in (sink, known_as) and gap.accepted is None]
        if not open_ones:
            raise PenstockError.of("SINK_NOT_BEHIND", node=sink)
        now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        for gap in open_ones:
            ledger.accept_gap(gap, now)
        return tuple(open_ones)
