"""Where a run stood when it ended well, so that a savepoint can be taken of a pipeline that does not run.

What sinks hold is known to who has them open; this spares the next one to open them only to ask.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.durable import write_durably
from penstock.engine.checkpoint import last_committed, last_number
from penstock.engine.savepoints.take import Moment
from penstock.engine.statedir import read_identity
from penstock.reports.codec import plain, read
from penstock.reports.savepoints import SavedSink

_FILE = "standing.json"


@dataclass(frozen=True)
class Standing:
    lineage: str
    batch: int
    sinks: tuple[SavedSink, ...] = ()
    steps: Mapping[str, str] = field(default_factory=dict)


def note_standing(state: Path, lineage: str, moment: Moment) -> None:
    steps = {str(number): step for number, step in moment.steps.items()}
    write_durably(
        state / _FILE, json.dumps(plain(Standing(lineage, moment.batch, moment.sinks, steps)), indent=1) + "\n"
    )


def standing(state: Path, lineage: str) -> Moment | None:
    """Where it stands, if the last run ended well; None if sinks may hold more than is known."""
    found = _read(state)
    if found is None:
        return None
    checkpoint = state / "checkpoint"
    committed, planned = last_committed(checkpoint), last_number(checkpoint / "offsets")
    if (found.lineage, found.batch) != (lineage, committed) or planned > committed:
        return None
    return Moment(committed, False, found.sinks, known_steps(state))


def known_steps(state: Path) -> dict[int, str]:
    """Steps by the number of the operator that keeps their state, as the last run knew them."""
    identity, found = read_identity(state), _read(state)
    known = identity.operators if identity is not None else {}
    if not known and found is not None:
        known = found.steps
    return {int(number): step for number, step in known.items()}


def forget_standing(state: Path) -> None:
    """Before other state takes the place of what is there."""
    (state / _FILE).unlink(missing_ok=True)


def _read(state: Path) -> Standing | None:
    try:
        return read(Standing, (state / _FILE).read_bytes())
    except (OSError, ValueError):
        return None
