"""Batches as a run reports them and as a server answers with them, as what costs are fitted to."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from penstock.capacity.fit import MeasuredBatch
from penstock.reports.values import BatchLine

_COMMIT_PHASES = ("walCommit", "commitOffsets", "commitBatch")


def of_line(line: BatchLine, run: str | None = None) -> MeasuredBatch:
    """`run`: by which name the run is known; by default its number in the state folder."""
    return MeasuredBatch(
        run=run or str(line.epoch),
        at=line.at.timestamp(),
        seconds=line.duration_ms / 1000,
        rows=sum(line.rows_in.values()),
        rows_out=sum(line.rows_out.values()),
        state_rows=line.state_rows,
        state_bytes=line.state_bytes,
        checkpoint_bytes=line.written_bytes,
        commit_seconds=_commit(line.phases_ms),
        sink_seconds={sink: millis / 1000 for sink, millis in line.sink_ms.items()},
        cores=line.cores,
    )


def of_answer(answer: Mapping[str, Any]) -> MeasuredBatch | None:
    """A batch out of the API's history; None for a row that stands for several."""
    if answer["span"] != 1:
        return None
    details = answer["details"]
    return MeasuredBatch(
        run=answer["run"],
        at=dt.datetime.fromisoformat(answer["at"]).timestamp(),
        seconds=answer["durationMs"] / 1000,
        rows=answer["rowsIn"],
        rows_out=answer["rowsOut"],
        state_rows=answer["stateRows"],
        state_bytes=answer["stateBytes"],
        checkpoint_bytes=details.get("written_bytes"),
        commit_seconds=_commit(details.get("phases_ms", {})),
        sink_seconds={sink: millis / 1000 for sink, millis in details.get("sink_ms", {}).items()},
        cores=details.get("cores"),
    )


def _commit(phases: Mapping[str, int]) -> float:
    return sum(phases.get(phase, 0) for phase in _COMMIT_PHASES) / 1000
