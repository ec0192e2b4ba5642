"""Histories of batches whose costs are known, with the noise of a busy machine."""

from __future__ import annotations

import datetime as dt
import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.capacity.fit import MeasuredBatch
from penstock.reports.folder import RunFolder
from penstock.reports.values import BatchLine

TODAY = 1_800_000_000.0


@dataclass(frozen=True)
class TrueCosts:
    """Seconds."""

    batch: float = 0.4
    row: float = 20e-6
    row_out: float = 0.0
    state_row: float = 0.0
    checkpoint_byte: float = 0.0


USUAL = TrueCosts()


def diurnal(at: float) -> float:
    """Rows in a second: quiet and busy in turns of a quarter of an hour."""
    return 8000 + 6000 * math.sin(at / 900 * 2 * math.pi)


def history(
    costs: TrueCosts = USUAL,
    *,
    seed: int = 0,
    batches: int = 600,
    trigger: float = 2.0,
    noise: float = 0.08,
    outliers: float = 0.03,
    rate: Callable[[float], float] = diurnal,
    out_ratio: Callable[[random.Random, int], float] = lambda chance, batch: 0.0,
    state: Callable[[int], int] = lambda batch: 0,
    bytes_per_row: Callable[[random.Random], float] | None = None,
    cores: int | None = 2,
) -> list[MeasuredBatch]:
    """Batches as they come one after the other; one that takes longer than the trigger is followed at once."""
    chance, at, found = random.Random(seed), 0.0, []
    since = -trigger
    for number in range(batches):
        rows = round(rate(at) * (at - since))
        out = round(rows * out_ratio(chance, number))
        written = None if bytes_per_row is None else round(rows * bytes_per_row(chance))
        seconds = (
            costs.batch
            + costs.row * rows
            + costs.row_out * out
            + costs.state_row * state(number)
            + costs.checkpoint_byte * (written or 0)
        ) * chance.lognormvariate(0, noise)
        if chance.random() < outliers:
            seconds *= 3
        found.append(
            MeasuredBatch(
                "r1", TODAY + at, seconds, rows, out, state_rows=state(number), checkpoint_bytes=written, cores=cores
            )
        )
        since, at = at, at + max(seconds, trigger)
    return found


def line_of(number: int, batch: MeasuredBatch) -> BatchLine:
    """The line that a run reports of a batch."""
    at, millis = dt.datetime.fromtimestamp(batch.at, dt.UTC), round(batch.seconds * 1000)
    return BatchLine(number, at, millis, {"commitOffsets": 20}, {"in": batch.rows}, {}, epoch=1, cores=batch.cores)


def state_folder(folder: Path, batches: Sequence[MeasuredBatch]) -> Path:
    """The state folder that `penstock run` leaves of the pipeline `clicks`."""
    state = folder / ".penstock" / "clicks"
    (state / "history").mkdir(parents=True)
    document = {"spec": {"sources": {"in": {}}, "run": {"trigger": "2 seconds"}}}
    (state / "pipeline.json").write_text(json.dumps({"name": "clicks", "version": {"document": document}}), "utf-8")
    for number, batch in enumerate(batches):
        RunFolder(state / "history").add_batch(line_of(number, batch))
    return state
