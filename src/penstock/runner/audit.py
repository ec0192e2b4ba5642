"""Compares what sinks hold with what the ledger says was written to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from penstock.components.base import Sink, SinkContext
from penstock.components.shared.checksum import Change, Content, NotSummed
from penstock.engine.ledger import BatchEntry, Gap, Ledger
from penstock.engine.statedir import read_identity, refuse_foreign
from penstock.errors import PenstockError
from penstock.graph.build import build
from penstock.spec.location import PipelineFile
from penstock.spec.resolve import with_secrets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Audited:
    """A sink, what was written to it, and what it holds."""

    sink: str
    verdict: Literal["equal", "differs", "not compared"]
    written: Content | None = None
    held: Content | None = None
    reason: str = ""
    """Why it was not compared."""


def audit(file: PipelineFile, state: Path, spark: Callable[[], SparkSession]) -> tuple[Audited, ...]:
    """All sinks of a pipeline; `spark` is asked for a session if a sink needs one."""
    columns = file.pipeline.ledger.checksum
    if not columns:
        raise PenstockError.of("LEDGER_WITHOUT_CHECKSUM", name=file.pipeline.name)
    refuse_foreign(state, file.pipeline.name)
    identity = read_identity(state)
    if identity is None:
        raise PenstockError.of("STATE_MISSING", path=state, name=file.pipeline.name)
    ledger = Ledger(state / "ledger.db")
    entries, changes = ledger.entries(), ledger.changed()
    gaps = [gap for gap in ledger.gaps() if gap.accepted is not None]
    names = {} if identity.version is None else identity.version.sinks
    found = []
    for node in build(file).of_kind("sink"):
        sink, known_as = node.component, names.get(node.name, node.name)
        assert isinstance(sink, Sink)
        lost = [gap for gap in gaps if gap.sink == known_as]
        expected = (
            after_changes(changes.get(known_as, {}), lost)
            if sink.replaces_rows
            else after_rows(node.name, entries, lost)
        )
        if isinstance(expected, str):
            found.append(Audited(node.name, "not compared", reason=expected))
            continue
        session: Any = spark() if sink.read_with_spark else None
        context = SinkContext(session, known_as, file.folder, identity.name, identity.lineage, identity.epoch, {})
        try:
            held = with_secrets(sink).content(context, summed_columns(changes.get(known_as, {})) or columns)
        except NotSummed as unknown:
            found.append(Audited(node.name, "not compared", expected, reason=str(unknown)))
            continue
        if held is None:
            found.append(Audited(node.name, "not compared", expected, reason="it cannot be read back"))
        else:
            found.append(Audited(node.name, "equal" if held == expected else "differs", expected, held))
    return tuple(found)


def after_changes(changes: Mapping[int, Change], lost: Sequence[Gap]) -> Content | str:
    """What a sink should hold that replaces rows: what it held once, and every change since. Or why nobody knows."""
    rows = checksum = 0
    known = False
    for batch, change in sorted(changes.items()):
        if any(gap.covers(batch) for gap in lost):
            continue
        if change.whole:
            rows = checksum = 0
            known = True
        rows, checksum = rows + change.rows, checksum + change.checksum
    return Content(rows, checksum) if known else "no batch has been stored in it since its content is summed up"


def summed_columns(changes: Mapping[int, Change]) -> Sequence[str]:
    """The columns that the changes of a sink are sums of."""
    return next((change.columns for _, change in sorted(changes.items(), reverse=True) if change.whole), ())


def after_rows(name: str, entries: Sequence[BatchEntry], lost: Sequence[Gap]) -> Content | str:
    """What a sink should hold that keeps all rows: the sums of what was written to it. Or why they say nothing."""
    kept = [entry for entry in entries if not any(gap.covers(entry.batch) for gap in lost)]
    written = [entry for entry in kept if entry.rows_out.get(name)]
    unsummed = [entry for entry in written if name not in entry.checksums]
    if unsummed and len(unsummed) == len(written):
        return "its rows do not have all columns of `ledger.checksum`"
    if unsummed:
        return f"{len(unsummed)} batches were written before checksums were kept"
    return Content(
        sum(entry.rows_out.get(name, 0) for entry in kept), sum(entry.checksums.get(name, 0) for entry in kept)
    )
