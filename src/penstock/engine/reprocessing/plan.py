"""A pipeline that computes a range of event time again, made from one that runs for ever. Pure: nothing is read.

A result belongs to the range by its own event time, which for a window is the moment before its end. Rows are read from
so far before the range, and so far after it, that every result in it is complete.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from penstock.components.base import Component, Source
from penstock.components.registry import components
from penstock.errors import PenstockError, did_you_mean
from penstock.graph.nodes import Graph
from penstock.spec import pipeline as spec
from penstock.spec.dump import fingerprint
from penstock.spec.fields import Config
from penstock.spec.pipeline import Pipeline
from penstock.spec.units import Duration

MILLISECOND = dt.timedelta(milliseconds=1)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_NAME = 40


@dataclass(frozen=True)
class Wanted:
    """What is to be computed again, and where it goes."""

    since: dt.datetime
    until: dt.datetime
    """The first moment that is not in the range."""
    sinks: tuple[str, ...] = ()
    """Only these; all, if none is named."""
    into: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By sink, fields that have another value than in the file."""
    warm_up: Duration | None = None
    """How far before the range rows are read; default: as far as results depend on them."""
    savepoint: str | None = None
    """The savepoint whose state it starts with, as it is known."""


@dataclass(frozen=True)
class Reading:
    """The rows to be read, by their event time; None: from the first one on."""

    since: dt.datetime | None
    until: dt.datetime


Reach = tuple[int | None, int]
"""How far before and after its own time a result depends on rows, in microseconds; None: without end."""


def reach_of(graph: Graph, steps: Mapping[str, Reach], sinks: Iterable[str]) -> Reach:
    """How far results in sinks reach; `steps` are the steps that remember anything."""
    found: dict[str, Reach] = {}
    for node in graph.nodes.values():
        below = [found[name] for name in node.inputs if name in found]
        own = steps.get(node.name, (0, 0))
        found[node.name] = _sum(_widest(below), own)
    return _widest([found[name] for name in sinks])


def _widest(reaches: Sequence[Reach]) -> Reach:
    backs = [back for back, _ in reaches]
    known = [back for back in backs if back is not None]
    return None if len(known) < len(backs) else max(known, default=0), max((ahead for _, ahead in reaches), default=0)


def _sum(one: Reach, other: Reach) -> Reach:
    back = None if one[0] is None or other[0] is None else one[0] + other[0]
    return back, one[1] + other[1]


def gives_early(graph: Graph, waiting: Collection[str], sink: str) -> bool:
    """Whether rows can come to a sink before the watermark has passed them; `waiting` are steps that hold them back."""
    node = graph.nodes[sink]
    if node.kind == "source":
        return True
    return sink not in waiting and any(gives_early(graph, waiting, name) for name in node.inputs)


def reading(wanted: Wanted, reach: Reach) -> Reading:
    """The rows that results in the range depend on. Watermarks are in whole milliseconds, and so are its bounds."""
    back, ahead = reach
    if wanted.warm_up is not None:
        back = wanted.warm_up.millis * 1000
    since = None if back is None else _earlier(wanted.since, -(-back // 1000))
    return Reading(since, wanted.until + -(-ahead // 1000) * MILLISECOND)


def _earlier(time: dt.datetime, millis: int) -> dt.datetime | None:
    try:
        return time - millis * MILLISECOND
    except OverflowError:
        return None


def condition(column: str, *, is_window: bool, shift: int, wanted: Wanted) -> str:
    """The SQL condition that a result belongs to the range. The column is its event time, or Spark's own window."""
    quoted = f"`{column.replace('`', '``')}`"
    time = f"unix_micros({quoted}.`end`) - 1" if is_window else f"unix_micros({quoted})"
    moved = f"{time} + ({shift})" if shift else time
    return f"{moved} >= {_micros(wanted.since)} AND {moved} < {_micros(wanted.until)}"


def _micros(time: dt.datetime) -> int:
    return (time - _EPOCH) // dt.timedelta(microseconds=1)


# --- the pipeline ------------------------------------------------------------------------------------------------


def name_of(pipeline: Pipeline, wanted: Wanted) -> str:
    """Its own name: the same for the same range of the same pipeline into the same places, so that it can go on."""
    text = json.dumps(
        [
            fingerprint(pipeline), wanted.since.isoformat(), wanted.until.isoformat(), sorted(wanted.sinks),
            {name: dict(fields) for name, fields in sorted(wanted.into.items())},
            None if wanted.warm_up is None else wanted.warm_up.millis, wanted.savepoint,
        ]
    )  # fmt: skip
    return f"{pipeline.name[:_NAME]}-again-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def bounded(pipeline: Pipeline, wanted: Wanted) -> Pipeline:
    """The pipeline under a name of its own, with the sinks that are wanted; what it sets aside stays with its state."""
    sinks = _sinks(pipeline, wanted)
    late = pipeline.late.model_copy(update={"sink": None})
    steps = [
        step if step.late is None else step.model_copy(update={"late": step.late.model_copy(update={"sink": None})})
        for step in pipeline.steps
    ]
    return pipeline.model_copy(
        update={
            "name": name_of(pipeline, wanted),
            "sources": tuple(_again(source) for source in pipeline.sources),
            "steps": tuple(steps),
            "sinks": sinks,
            "late": late,
            "dead_letters": None,
            "savepoints": spec.SavepointSettings(),
            "alerts": (),
            "tests": (),
        }
    )


def _again(source: spec.Source) -> spec.Source:
    """A source that is its own history; one with an archive keeps that, as it is read together with it."""
    found = source.component
    assert isinstance(found, Source)
    if source.event_time is None:
        advice = "Reprocessing takes rows by their event time; declare `eventTime`."
        raise PenstockError.of("REPROCESS_NO_TIME", node=source.name, reason="it has no event time", advice=advice)
    if type(found).read_all is Source.read_all and source.bootstrap is None:
        raise PenstockError.of("REPROCESS_NO_HISTORY", node=source.name, component=found.name)
    history = source.bootstrap or spec.Bootstrap(component=found, format=source.format)
    return source.model_copy(update={"bootstrap": history})


def _sinks(pipeline: Pipeline, wanted: Wanted) -> tuple[spec.Sink, ...]:
    known = [sink.name for sink in pipeline.sinks if sink.input]
    for name in (*wanted.sinks, *wanted.into):
        if name not in known:
            hint = did_you_mean(name, known)
            raise PenstockError.of("USAGE", reason=f"there is no sink called '{name}'", advice=hint)
    chosen = [sink for sink in pipeline.sinks if sink.name in (wanted.sinks or known)]
    return tuple(
        sink.model_copy(update={"component": _changed(sink.name, sink.component, wanted.into[sink.name])})
        if sink.name in wanted.into
        else sink
        for sink in chosen
    )


def _changed(node: str, found: Config, fields: Mapping[str, str]) -> Config:
    assert isinstance(found, Component)
    by_alias = {item.alias or name: name for name, item in type(found).model_fields.items()}
    for name in fields:
        if name not in by_alias:
            reason = f"sink '{node}' ({found.name}) has no '{name}'"
            raise PenstockError.of("USAGE", reason=reason, advice=did_you_mean(name, by_alias))
    values = {alias: getattr(found, name) for alias, name in by_alias.items() if name in found.model_fields_set}
    try:
        return components("sink")[found.name].model_validate({**values, **fields})
    except ValidationError as error:
        first = error.errors()[0]
        reason = f"{'.'.join(map(str, (node, *first['loc'])))}: {first['msg']}"
        raise PenstockError.of("USAGE", reason=reason, advice="It is written as in the pipeline file.") from None


def cut(pipeline: Pipeline, conditions: Mapping[str, str]) -> Pipeline:
    """The pipeline with a filter before each sink, which lets through only what belongs to the range."""
    taken = {node.name for node in pipeline.nodes()}
    steps, sinks = [*pipeline.steps], []
    kind = components("step")["filter"]
    for sink in pipeline.sinks:
        name = f"{sink.name[:50]}_in_range"
        while name in taken:
            name += "_"
        taken.add(name)
        within = kind.model_validate({"where": conditions[sink.name]})
        steps.append(spec.Step.model_validate({"name": name, "from": (sink.input,), "component": within}))
        sinks.append(sink.model_copy(update={"input": name}))
    return pipeline.model_copy(update={"steps": tuple(steps), "sinks": tuple(sinks)})
