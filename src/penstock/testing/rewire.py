"""A pipeline with its outside replaced by memory, so that it can be tested as a whole and alone."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.components.base import HEARTBEAT, PLACE, RAW, Format, ReadContext, Source
from penstock.components.sinks.memory import Memory as MemorySink
from penstock.components.sources.memory import Memory as MemorySource
from penstock.engine.frames import columns_of
from penstock.errors import PenstockError, did_you_mean
from penstock.spec.location import PipelineFile
from penstock.spec.pipeline import LatePolicy, Pipeline, Sink
from penstock.spec.pipeline import Source as SourceSpec
from penstock.spec.resolve import with_secrets
from penstock.spec.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WATCH = "watch_"


def in_memory(
    file: PipelineFile, spark: SparkSession, spool: Path, *, watch: Iterable[str], keep: Iterable[str]
) -> PipelineFile:
    """Sources read what a test feeds, sinks (but those to `keep`) collect; `watch` adds sinks to steps."""
    pipeline, keep = file.pipeline, set(keep)
    sources = tuple(
        SourceSpec(
            name=source.name,
            component=MemorySource(schema=schema_of(source, file, spark, spool)),  # type: ignore[call-arg]
            event_time=source.event_time,
        )
        for source in pipeline.sources
    )
    sinks = [sink if sink.name in keep else _collecting(sink) for sink in pipeline.sinks]
    steps = {node.name for node in pipeline.nodes() if not isinstance(node, Sink)}
    for name in watch:
        if name not in steps:
            known = sorted(steps | {sink.name for sink in sinks})
            raise PenstockError.of(
                "TEST_NODE_UNKNOWN",
                test="",
                name=name,
                part="expect",
                expected="a step or a sink",
                suggestion=did_you_mean(name, known),
            )
        sinks.append(Sink.model_validate({"name": f"{WATCH}{name}", "from": name, "component": MemorySink()}))
    parts = {"sources": sources, "sinks": tuple(sinks), "dead_letters": MemorySink()}
    changed = _with_late_rows_in_memory(pipeline).model_copy(update=parts)
    return PipelineFile(changed, file.places, file.path)


def _with_late_rows_in_memory(pipeline: Pipeline) -> Pipeline:
    """The pipeline with late rows that are kept collected in memory, those of each step too."""
    steps = tuple(
        step if step.late is None else step.model_copy(update={"late": _late_in_memory(step.late)})
        for step in pipeline.steps
    )
    return pipeline.model_copy(update={"steps": steps, "late": _late_in_memory(pipeline.late)})


def _late_in_memory(late: LatePolicy) -> LatePolicy:
    return late.model_copy(update={"sink": MemorySink()}) if late.policy == "side" else late


def _collecting(sink: Sink) -> Sink:
    """The same sink in memory; it replaces rows by the same key."""
    return sink.model_copy(update={"component": MemorySink(key=tuple(getattr(sink.component, "key", ())))})


def schema_of(source: SourceSpec, file: PipelineFile, spark: SparkSession, spool: Path) -> Schema:
    """The columns a source gives: as declared, or as the source itself knows them."""
    for holder in (source.format, source.component):
        declared = getattr(holder, "row_schema", None)
        if declared is not None:
            return Schema.parse(declared)
    component = with_secrets(source.component)
    assert isinstance(component, Source)
    assert source.format is None or isinstance(source.format, Format)
    frame = component.read(ReadContext(spark, source.name, file.folder, spool, source.format))
    given = {name: kind for name, kind in columns_of(frame).items() if name not in (RAW, HEARTBEAT, PLACE)}
    return Schema.parse(given)
