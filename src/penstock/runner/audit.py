"""Compares what sinks hold with what the ledger says was written to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from penstock.components.base import Sink, SinkContext
from penstock.components.shared.checksum import Content
from penstock.engine.ledger import BatchEntry, Ledger
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
    entries = Ledger(state / "ledger.db").entries()
    found = []
    for node in build(file).of_kind("sink"):
        assert isinstance(node.component, Sink)
        reason = _incomparable(node.component, node.name, entries)
        if reason is not None:
            found.append(Audited(node.name, "not compared", reason=reason))
            continue
        written = Content(
            sum(entry.rows_out.get(node.name, 0) for entry in entries),
            sum(entry.checksums.get(node.name, 0) for entry in entries),
        )
        session: Any = spark() if node.component.read_with_spark else None
        context = SinkContext(session, node.name, file.folder, identity.name, identity.lineage, identity.epoch, {})
        held = with_secrets(node.component).content(context, columns)
        if held is None:
            found.append(Audited(node.name, "not compared", written, reason="it cannot be read back"))
        else:
            found.append(Audited(node.name, "equal" if held == written else "differs", written, held))
    return tuple(found)


def _incomparable(sink: Sink, name: str, entries: list[BatchEntry]) -> str | None:
    """Why the sums of what was written to a sink say nothing of what it holds; None if they do."""
    if sink.accepts_updates:
        return "rows are replaced by key, so what was written is not what is there"
    unsummed = [entry for entry in entries if entry.rows_out.get(name) and name not in entry.checksums]
    if unsummed and len(unsummed) == sum(1 for entry in entries if entry.rows_out.get(name)):
        return "its rows do not have all columns of `ledger.checksum`"
    if unsummed:
        return f"{len(unsummed)} batches were written before checksums were kept"
    return None
