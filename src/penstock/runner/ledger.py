"""Reads the ledger of a pipeline: what became of the rows of each batch, and whether it adds up."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from penstock.engine.balance import Imbalance, imbalances
from penstock.engine.checkpoint import last_committed, watermark
from penstock.engine.ledger import BatchEntry, Ledger
from penstock.engine.statedir import read_identity, refuse_foreign
from penstock.errors import PenstockError
from penstock.graph.build import build
from penstock.spec.location import PipelineFile

Verdict = Literal["sealed", "open", "unbalanced"]
COLUMNS = ("in", "dead", "filtered", "late", "corrections", "replayed", "out")


@dataclass(frozen=True)
class Judged:
    """A batch and what is to be said of it.

    It is sealed when it is committed and adds up, and open while it may still be run again.
    """

    entry: BatchEntry
    verdict: Verdict
    imbalances: tuple[Imbalance, ...]


@dataclass(frozen=True)
class JudgedWindow:
    """A window of event time and what is to be said of it.

    It is sealed when the watermark has passed its end and what became of its rows adds up, and open before.
    """

    start: dt.datetime
    entry: BatchEntry
    verdict: Verdict
    imbalances: tuple[Imbalance, ...]


@dataclass(frozen=True)
class Account:
    batches: tuple[Judged, ...]
    totals: BatchEntry

    @property
    def verdict(self) -> Verdict:
        found = {batch.verdict for batch in self.batches}
        return "unbalanced" if "unbalanced" in found else "open" if "open" in found else "sealed"


def read_windows(file: PipelineFile, state: Path) -> tuple[JudgedWindow, ...]:
    """All windows of event time of a pipeline's state, judged; raises if it counts none."""
    window = file.pipeline.ledger.window
    if window is None:
        raise PenstockError.of("LEDGER_WITHOUT_WINDOWS", name=file.pipeline.name)
    graph = build(file)
    _refuse_missing(file, state)
    passed = watermark(state / "checkpoint")
    committed = last_committed(state / "checkpoint")
    found = []
    for start, entry in Ledger(state / "ledger.db").windows().items():
        wrong = tuple(imbalances(graph, entry))
        done = start + window.millis <= passed and entry.batch <= committed
        verdict: Verdict = "unbalanced" if wrong and done else "sealed" if done else "open"
        found.append(JudgedWindow(dt.datetime.fromtimestamp(start / 1000, dt.UTC), entry, verdict, wrong))
    return tuple(found)


def _refuse_missing(file: PipelineFile, state: Path) -> None:
    refuse_foreign(state, file.pipeline.name)
    if read_identity(state) is None:
        raise PenstockError.of("STATE_MISSING", path=state, name=file.pipeline.name)


def read_ledger(file: PipelineFile, state: Path) -> Account:
    """All batches of a pipeline's state, judged; raises if there is no such state."""
    graph = build(file)
    _refuse_missing(file, state)
    ledger = Ledger(state / "ledger.db")
    committed = last_committed(state / "checkpoint")
    judged = []
    for entry in ledger.entries():
        wrong = tuple(imbalances(graph, entry))
        verdict: Verdict = "unbalanced" if wrong else "sealed" if entry.batch <= committed else "open"
        judged.append(Judged(entry, verdict, wrong))
    return Account(tuple(judged), ledger.totals())


# --- for programs ----------------------------------------------------------------------------------------------


def account_as_json(account: Account, last: int) -> dict[str, Any]:
    """The newest batches and the totals of all."""
    return {
        "verdict": account.verdict,
        "totals": _counts(account.totals),
        "batches": [
            {
                "batch": judged.entry.batch,
                "epoch": judged.entry.epoch,
                "verdict": judged.verdict,
                "problems": [str(item) for item in judged.imbalances],
                **_counts(judged.entry),
            }
            for judged in account.batches[-last:]
        ],
    }


def windows_as_json(found: Sequence[JudgedWindow]) -> list[dict[str, Any]]:
    return [
        {
            "start": window.start.isoformat().replace("+00:00", "Z"),
            "verdict": window.verdict,
            "problems": [str(item) for item in window.imbalances],
            **_counts(window.entry),
        }
        for window in found
    ]


def _counts(entry: BatchEntry) -> dict[str, Mapping[str, int]]:
    parts = (
        entry.rows_in,
        entry.rows_dead,
        entry.filtered,
        entry.late,
        entry.corrections,
        entry.replayed,
        entry.rows_out,
    )
    return dict(zip(COLUMNS, parts, strict=True))
