"""What a pipeline would give: some rows of its sources, taken through the real engine up to one node.

Nothing outside is written to. Event time is moved to its end, so that windows over the sample close.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.access.limits import current
from penstock.components.base import HEARTBEAT, PLACE, RAW, Format, ReadContext, Source
from penstock.components.sinks.memory import Memory as MemorySink
from penstock.engine.frames import columns_of
from penstock.engine.jars import obtainable, sets_for
from penstock.engine.listed_files import ListedFiles, lists_files
from penstock.engine.spark_errors import runtime_problem
from penstock.errors import PenstockError, did_you_mean
from penstock.graph.nodes import Graph
from penstock.spec.location import PipelineFile
from penstock.spec.pipeline import Sink
from penstock.spec.pipeline import Source as SourceSpec
from penstock.spec.resolve import with_secrets
from penstock.testing.harness import Harness
from penstock.testing.session import shared_log, shared_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK_SECONDS = 0.05
_BEGIN_SECONDS = 45.0
"""So long may a source take until it has looked for rows once: its processes are started first."""
_SINK = "preview"
_SOURCES = 20
"""Samples of so many sources are kept."""


@dataclass(frozen=True)
class Preview:
    """Rows that leave a node, and what became of the others on the way."""

    node: str
    columns: Mapping[str, str]
    rows: list[dict[str, Any]]
    total: int
    sampled: Mapping[str, int]
    """How many rows were taken of each source."""
    dead: list[dict[str, Any]] = field(default_factory=list)
    """Rows that became dead letters, with the reason."""
    late: int = 0


class Samples:
    """Rows of sources as JSON lines, kept by what the source is, so that steps are tried on the same rows."""

    def __init__(self) -> None:
        self._kept: dict[str, list[str]] = {}

    def of(self, file: PipelineFile, source: SourceSpec, rows: int, seconds: float, *, fresh: bool) -> list[str]:
        # The same relative path in another folder names other rows, and what one may see is not for all.
        key = f"{source.component!r} {source.format!r} {rows} {file.folder} {current()!r}"
        found = None if fresh else self._kept.pop(key, None)
        self._kept[key] = found or _sample(file, source, rows, seconds)
        while len(self._kept) > _SOURCES:
            del self._kept[next(iter(self._kept))]
        return self._kept[key]


def preview(
    graph: Graph,
    node: str,
    *,
    rows: int = 100,
    seconds: float = 10.0,
    samples: Samples | None = None,
    fresh: bool = False,
) -> Preview:
    """Up to `rows` rows of a node, from as many of each source, waiting at most `seconds` for each of these."""
    part = _up_to(graph, node)
    samples = samples or Samples()
    taken = {
        source.name: samples.of(part, source, rows, seconds, fresh=fresh or _is_at_hand(source))
        for source in part.pipeline.sources
    }
    with Harness(part) as harness:
        for name, lines in taken.items():
            harness.feed(name, lines)
        harness.step()
        harness.finish()
        found = harness.rows(_SINK)
        return Preview(
            node=node,
            columns=harness.types()[_SINK],
            rows=[_plain(row) for row in found[:rows]],
            total=len(found),
            sampled={name: len(lines) for name, lines in taken.items()},
            dead=[_plain(row) for row in harness.dead_letters()[:rows]],
            late=sum(len(harness.late(step.name)) for step in part.pipeline.steps),
        )


def _is_at_hand(source: SourceSpec) -> bool:
    """Rows that are made up cost nothing, and those written in the file may have been changed."""
    return getattr(source.component, "name", "") in ("generator", "memory")


def _up_to(graph: Graph, node: str) -> PipelineFile:
    """The pipeline without what the node does not need, and with nothing but a memory at its end."""
    found = graph.nodes.get(node)
    if found is None:
        advice = did_you_mean(node, list(graph.nodes)) or "Mend what is wrong with it and before it first."
        raise PenstockError.of("USAGE", reason=f"nothing can be seen of '{node}'", advice=advice)
    watched = found.inputs[0] if found.kind == "sink" else node
    names = {watched, *graph.ancestors(watched)}
    needed = {graph.nodes[name].part_of or name for name in names}
    pipeline = graph.file.pipeline
    key = tuple(getattr(found.component, "key", ())) if found.kind == "sink" else ()
    parts = {
        "sources": tuple(source for source in pipeline.sources if source.name in needed),
        "steps": tuple(step for step in pipeline.steps if step.name in needed),
        "sinks": (Sink.model_validate({"name": _SINK, "from": watched, "component": MemorySink(key=key)}),),
        "alerts": (),
        "tests": (),
    }
    return PipelineFile(pipeline.model_copy(update=parts), graph.file.places, graph.file.path)


# --- rows of a source --------------------------------------------------------------------------------------


def _sample(file: PipelineFile, source: SourceSpec, rows: int, seconds: float) -> list[str]:
    """The first rows that a source gives, as its pipeline would read them, each as a line of JSON."""
    spark = shared_session(obtainable(sets_for(file.pipeline)))
    component = with_secrets(source.component)
    assert isinstance(component, Source)
    assert source.format is None or isinstance(source.format, Format)
    with tempfile.TemporaryDirectory(prefix="penstock-sample-") as scratch:
        spool = Path(scratch, "spool")
        spool.mkdir()
        frame = component.read(ReadContext(spark, source.name, file.folder, spool, source.format))
        checkpoint = Path(scratch, "checkpoint")
        listed = ListedFiles(checkpoint, [source.name] if lists_files(component) else [])
        return _taken(frame, rows, seconds, checkpoint, listed)[:rows]


def _taken(frame: DataFrame, wanted: int, seconds: float, checkpoint: Path, listed: ListedFiles) -> list[str]:
    """Runs the stream of a source until it has given the rows, or for so long after it has looked for them once."""
    from pyspark.sql import functions as F

    given = [name for name in columns_of(frame) if name not in (RAW, HEARTBEAT, PLACE)]
    whole = F.to_json(F.struct(*(F.col(f"`{name}`") for name in given)))
    line = F.coalesce(F.col(RAW), whole) if RAW in frame.columns else whole
    rows_only = frame.where(~F.coalesce(F.col(HEARTBEAT), F.lit(False))) if HEARTBEAT in frame.columns else frame
    lines: list[str] = []
    refused: list[PenstockError] = []

    def take(batch: DataFrame, _: int) -> None:
        try:
            listed.check()
        except PenstockError as error:
            refused.append(error)
            raise
        if len(lines) < wanted:
            lines.extend(row[0] for row in batch.limit(wanted - len(lines)).collect())

    query = rows_only.select(line.alias("line")).writeStream.foreachBatch(take)
    running = query.option("checkpointLocation", str(checkpoint)).start()
    try:
        _wait(running, lambda: len(lines) >= wanted or running.lastProgress is not None, _BEGIN_SECONDS)
        _wait(running, lambda: len(lines) >= wanted, seconds)
        if refused:
            raise refused[0]
        if (error := running.exception()) is not None:
            raise PenstockError(runtime_problem(error, batch=None, log=shared_log(), checkpoint=checkpoint))
    finally:
        running.stop()
    return lines


def _wait(running: StreamingQuery, done: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while running.isActive and not done() and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as JSON can hold it."""
    found: dict[str, Any] = json.loads(json.dumps(row, default=_text))
    return found


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()
    return str(value.isoformat()) if hasattr(value, "isoformat") else str(value)
