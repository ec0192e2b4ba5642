"""The pipeline as written: sources, steps, sinks and settings. Typed, frozen, without Spark and without I/O."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import SerializeAsAny

from penstock.spec.fields import Change, Config, field
from penstock.spec.units import Duration

API_VERSION = "penstock/v1"
NODE_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
PIPELINE_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")

Kind = Literal["source", "step", "sink"]
Row = Mapping[str, Any]


class EventTime(Config):
    """Which column says when a row happened, and how late rows may come."""

    column: str = field(doc="The timestamp column that says when the row happened.", change=Change.LOSES_STATE)
    max_delay: Duration = field(
        Duration(10_000),
        doc="How far rows may lag behind the newest one; the watermark trails the newest event time by this much.",
    )


class Source(Config):
    """A named source: its component, the format of its rows, and their event time."""

    name: str = field(doc="Unique name; steps and sinks refer to it.", change=Change.LOSES_STATE)
    component: SerializeAsAny[Config] = field(doc="Where the rows come from.")
    format: SerializeAsAny[Config] | None = field(
        None, doc="How the rows are encoded, for sources that read bytes or files."
    )
    event_time: EventTime | None = field(
        None, doc="Event time and its tolerated delay; needed by windows and other steps that reason about time."
    )


class Step(Config):
    """A named step over the rows of its inputs."""

    name: str = field(doc="Unique name; in SQL it is the table's name.", change=Change.LOSES_STATE)
    inputs: tuple[str, ...] = field(alias="from", doc="The source or step it reads, or a list of them.")
    component: SerializeAsAny[Config] = field(doc="What the step does.")


class Sink(Config):
    """A named sink and the source or step whose rows it stores."""

    name: str = field(doc="Unique name.", change=Change.LOSES_STATE)
    input: str = field(alias="from", doc="The source or step whose rows it stores.")
    component: SerializeAsAny[Config] = field(doc="Where the rows go.")


class StateSettings(Config):
    """How the state of stateful steps is kept."""

    partitions: int | None = field(
        None, ge=1, le=4096, change=Change.RESCALE,
        doc="Into how many partitions state is divided; fixed by the first run. Default: the number of cores.",
    )  # fmt: skip


class RunSettings(Config):
    """How the pipeline is driven."""

    trigger: Duration = field(
        Duration(1000), doc="How often a batch is started; a batch that takes longer is followed at once by the next."
    )


class TestCase(Config):
    """Rows to feed and rows to expect; run by `penstock test`."""

    __test__ = False

    name: str = field(doc="What the test shows.", change=Change.NOTHING)
    given: dict[str, tuple[dict[str, Any], ...]] = field(doc="Rows for each source, as a list.", change=Change.NOTHING)
    expect: dict[str, tuple[dict[str, Any], ...]] = field(
        doc="Rows that must leave a step or reach a sink, in any order; only the columns named are compared.",
        change=Change.NOTHING,
    )


class Pipeline(Config):
    """A whole pipeline."""

    name: str = field(doc="The pipeline's name.", change=Change.LOSES_STATE)
    labels: dict[str, str] = field(default={}, doc="Labels for finding and grouping pipelines.", change=Change.NOTHING)
    sources: tuple[Source, ...] = field(doc="Where rows come from.")
    steps: tuple[Step, ...] = field((), doc="What is done with them.")
    sinks: tuple[Sink, ...] = field(doc="Where they go.")
    dead_letters: SerializeAsAny[Config] | None = field(
        None, doc="The sink for rows that cannot be read. Default: `dead/` in the state folder."
    )
    state: StateSettings = field(StateSettings(), doc="How state is kept.")
    run: RunSettings = field(RunSettings(), doc="How the pipeline is driven.", change=Change.RESTART)
    tests: tuple[TestCase, ...] = field((), doc="Tests of this pipeline.", change=Change.NOTHING)

    def nodes(self) -> Iterator[Source | Step | Sink]:
        yield from self.sources
        yield from self.steps
        yield from self.sinks

    def source(self, name: str) -> Source:
        return next(source for source in self.sources if source.name == name)

    def sink(self, name: str) -> Sink:
        return next(sink for sink in self.sinks if sink.name == name)
