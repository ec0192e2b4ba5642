"""What rules look at: the graph of a pipeline, questions that several rules ask of it, and its state folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import urlsplit

from penstock.components import base
from penstock.components.sources.cdc import Cdc
from penstock.components.sources.files import Files
from penstock.components.sources.generator import Generator
from penstock.components.sources.kafka import Kafka
from penstock.components.sources.memory import Memory
from penstock.components.steps.join import Join
from penstock.components.steps.sql import Sql
from penstock.doctor.sql_shape import SqlShape, shape_of
from penstock.doctor.state_folder import StateFolder
from penstock.graph.nodes import Graph, Node
from penstock.spec.fields import Config, Holds, held_by
from penstock.spec.location import Path_
from penstock.spec.pipeline import LatePolicy, Pipeline, Source, Step

_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1", "0.0.0.0")


@dataclass(frozen=True)
class PlacedSink:
    """A sink wherever the file names one: under `sinks`, `deadLetters` or `late`."""

    name: str
    component: base.Sink
    path: Path_
    """Of its settings."""


@dataclass(frozen=True)
class Text:
    """A text in the settings of a component."""

    path: Path_
    text: str
    holds: Holds | None


@dataclass(frozen=True)
class Checkup:
    """One pipeline that is looked at."""

    graph: Graph
    state: StateFolder | None = None
    """The state folder, if it was named."""

    @property
    def pipeline(self) -> Pipeline:
        return self.graph.file.pipeline

    @cached_property
    def production(self) -> bool:
        """Whether it reads more than made-up rows and files beside it, which only serve to try something."""
        return any(_is_real(source.component) for source in self.pipeline.sources)

    # --- sources ---

    def kafka_sources(self) -> Iterator[tuple[Node, Kafka, Path_]]:
        """Sources that read Kafka, also below `cdc`, with where their settings stand."""
        for node in self.graph.of_kind("source"):
            if isinstance(node.component, Kafka):
                yield node, node.component, (*node.path, "kafka")
            elif isinstance(node.component, Cdc) and node.component.kafka is not None:
                yield node, node.component.kafka, (*node.path, "cdc", "kafka")

    def file_sources(self) -> Iterator[tuple[Node, Files, Path_]]:
        """Sources that read files, also below `cdc`, with where their settings stand."""
        for node in self.graph.of_kind("source"):
            if isinstance(node.component, Files):
                yield node, node.component, (*node.path, "files")
            elif isinstance(node.component, Cdc) and node.component.files is not None:
                yield node, node.component.files, (*node.path, "cdc", "files")

    def sources_of(self, name: str) -> list[Source]:
        """The sources whose rows reach a node."""
        return [source for source in self.pipeline.sources if source.name in self.graph.ancestors(name)]

    # --- steps ---

    def steps(self) -> Iterator[tuple[Node, Step]]:
        for node in self.graph.of_kind("step"):
            if node.part_of is None and isinstance(node.spec, Step):
                yield node, node.spec

    def sql_shape(self, node: Node) -> SqlShape | None:
        """What a SQL step asks of state; None for other steps."""
        if not isinstance(node.component, Sql):
            return None
        times = {source.event_time.column for source in self.sources_of(node.name) if source.event_time}
        return shape_of(node.component.query, node.inputs, frozenset(times))

    def stateful(self) -> Iterator[tuple[Node, Step]]:
        """Steps that keep state between batches."""
        for node, spec in self.steps():
            if self.keeps_state(node):
                yield node, spec

    def keeps_state(self, node: Node) -> bool:
        shape = self.sql_shape(node)
        joins = isinstance(node.component, Join) and node.component.other is not None
        return isinstance(node.component, base.KernelStep) or joins or (shape is not None and shape.stateful)

    def by_event_time(self) -> Iterator[tuple[Node, Step]]:
        """Steps whose answer or state depends on the watermark."""
        for node, spec in self.stateful():
            shape = self.sql_shape(node)
            needs = isinstance(node.component, base.Step) and node.component.needs_event_time
            windows = shape is not None and ((shape.groups and shape.by_time) or bool(shape.joined))
            if needs or windows or isinstance(node.component, Join):
                yield node, spec

    def late_policies(self) -> Iterator[tuple[Path_, LatePolicy]]:
        """Every `late` of the file, with where it stands."""
        if self.pipeline.late.model_fields_set:
            yield ("spec", "late"), self.pipeline.late
        for node, spec in self.steps():
            if spec.late is not None:
                yield (*node.path, "late"), spec.late

    # --- sinks ---

    def sinks(self) -> Iterator[PlacedSink]:
        """The sinks that store results."""
        for node in self.graph.of_kind("sink"):
            if isinstance(node.component, base.Sink):
                yield PlacedSink(node.name, node.component, (*node.path, node.component.name))

    def dead_letter_sink(self) -> PlacedSink | None:
        sink = self.pipeline.dead_letters
        if not isinstance(sink, base.Sink):
            return None
        return PlacedSink("deadLetters", sink, ("spec", "deadLetters", sink.name))

    def late_sinks(self) -> Iterator[PlacedSink]:
        """The sinks of late rows; one that is an entry of `sinks` stands there."""
        seen: list[base.Sink] = []
        for path, policy in self.late_policies():
            sink = policy.sink
            if isinstance(sink, base.Sink) and sink not in seen:
                seen.append(sink)
                yield PlacedSink("late", sink, self._path_of_late_sink(sink, (*path, "sink", sink.name)))

    def _path_of_late_sink(self, sink: base.Sink, inside: Path_) -> Path_:
        """Where its settings stand: under `late`, or as an entry of `sinks` that no step feeds."""
        keys = self.graph.file.places.keys
        entries = [path for path in keys if len(path) == 4 and path[:2] == ("spec", "sinks") and path[3] == sink.name]
        unfed = [path for path in entries if path[2] not in self.graph.nodes]
        return inside if inside in keys or len(unfed) != 1 else unfed[0]

    def all_sinks(self) -> Iterator[PlacedSink]:
        yield from self.sinks()
        dead = self.dead_letter_sink()
        if dead is not None:
            yield dead
        yield from self.late_sinks()

    # --- texts ---

    def texts(self) -> Iterator[Text]:
        """Every text in the settings of components."""
        for node in self.graph.nodes.values():
            if node.part_of is not None:
                continue
            yield from texts_of(node.component, (*node.path, node.component.name))
            if isinstance(node.spec, Source):
                yield from self._texts_of_source(node, node.spec)
        for sink in (self.dead_letter_sink(), *self.late_sinks()):
            if sink is not None:
                yield from texts_of(sink.component, sink.path)

    @staticmethod
    def _texts_of_source(node: Node, source: Source) -> Iterator[Text]:
        if isinstance(source.format, base.Format):
            yield from texts_of(source.format, (*node.path, "format", source.format.name))
        history = source.bootstrap
        if history is not None and isinstance(history.component, base.Source):
            yield from texts_of(history.component, (*node.path, "bootstrap", history.component.name))
        if history is not None and isinstance(history.format, base.Format):
            yield from texts_of(history.format, (*node.path, "bootstrap", "format", history.format.name))


def texts_of(config: Config, path: Path_) -> Iterator[Text]:
    """Every text in a configuration, with what its field holds."""
    for name, info in type(config).model_fields.items():
        inner = (*path, info.alias or name)
        yield from _texts_in(getattr(config, name), inner, held_by(type(config), name))


def _texts_in(value: object, path: Path_, holds: Holds | None) -> Iterator[Text]:
    if isinstance(value, Config):
        yield from texts_of(value, path)
    elif isinstance(value, str):
        yield Text(path, value, holds)
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _texts_in(inner, (*path, str(key)), holds)
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _texts_in(inner, (*path, index), holds)


def _is_real(component: Config) -> bool:
    if isinstance(component, Generator | Memory):
        return False
    if isinstance(component, Cdc) and component.files is not None:
        return _is_real(component.files)
    if isinstance(component, Files):
        return "://" in component.path or component.path.startswith("/")
    return True


def host_of(address: str) -> str | None:
    """The host that a URL or `host:port` names; None if it cannot be told."""
    try:
        return urlsplit(address if "://" in address else f"//{address.strip()}").hostname
    except ValueError:
        return None


def is_this_machine(address: str) -> bool:
    """Whether an address can only mean the machine that reads it."""
    return host_of(address) in _LOCAL_HOSTS
