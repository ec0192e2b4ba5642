"""Reads the ledger of a pipeline: what became of the rows of each batch, and whether it adds up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from penstock.engine.balance import Imbalance, imbalances
from penstock.engine.checkpoint import last_committed
from penstock.engine.ledger import BatchEntry, Ledger
from penstock.engine.statedir import read_identity, refuse_foreign
from penstock.errors import PenstockError
from penstock.graph.build import build
from penstock.spec.location import PipelineFile

Verdict = Literal["sealed", "open", "unbalanced"]


@dataclass(frozen=True)
class Judged:
    """A batch and what is to be said of it.

    It is sealed when it is committed and adds up, and open while it may still be run again.
    """

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


def read_ledger(file: PipelineFile, state: Path) -> Account:
    """All batches of a pipeline's state, judged; raises if there is no such state."""
    graph = build(file)
    refuse_foreign(state, file.pipeline.name)
    if read_identity(state) is None:
        raise PenstockError.of("STATE_MISSING", path=state, name=file.pipeline.name)
    ledger = Ledger(state / "ledger.db")
    committed = last_committed(state / "checkpoint")
    judged = []
    for entry in ledger.entries():
        wrong = tuple(imbalances(graph, entry))
        verdict: Verdict = "unbalanced" if wrong else "sealed" if entry.batch <= committed else "open"
        judged.append(Judged(entry, verdict, wrong))
    return Account(tuple(judged), ledger.totals())
