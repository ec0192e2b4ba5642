"""Pipelines in Python: the builder behind `import penstock as ps`.

It collects the same document as a pipeline file holds, so that both give equal pipelines and equal errors.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from penstock.components.base import Format, Sink, Source, Step
from penstock.errors import Location, PenstockError
from penstock.frontends.assemble import assemble
from penstock.frontends.caller import calling_place
from penstock.frontends.findings import describe
from penstock.frontends.namespace import build_config
from penstock.spec import pipeline as spec
from penstock.spec.alerts import Alert, AlertSeverity
from penstock.spec.conditions import Condition
from penstock.spec.fields import Config
from penstock.spec.location import Path_, PipelineFile, Places
from penstock.spec.scale import ScaleSettings
from penstock.spec.units import Duration

Rows = Sequence[Mapping[str, Any]]
LateRows = spec.LatePolicy | spec.LateChoice
"""What becomes of late rows: `ps.Late(...)`, or just the policy."""


def EventTime(
    column: str,
    max_delay: str | Duration | None = None,
    *,
    idle_after: str | Duration | None = None,
    max_ahead: str | Duration | None = "1 day",
) -> spec.EventTime:
    """Which column says when a row happened, and how far rows may lag behind the newest one (10 seconds).

    After `idle_after` without rows the source no longer holds the watermark back. Rows further ahead of the clock
    than `max_ahead` are set aside as dead letters; None turns that off.
    """
    arguments: dict[str, Any] = {"column": column, "idle_after": idle_after, "max_ahead": max_ahead}
    if max_delay is not None:
        arguments["max_delay"] = max_delay
    return cast(spec.EventTime, build_config(spec.EventTime, arguments))


def Late(
    policy: spec.LateChoice, *, allowed: str | Duration | None = None, sink: Sink | None = None
) -> spec.LatePolicy:
    """What becomes of rows that come too late: `drop`, `side` or `correct`.

    `allowed` is how long after its end a window can still be corrected (1 hour), `sink` where late rows are kept
    with `side`.
    """
    arguments: dict[str, Any] = {"policy": policy}
    if allowed is not None:
        arguments["allowed"] = allowed
    if sink is not None:
        arguments["sink"] = _of_kind_sink(sink)
    return cast(spec.LatePolicy, build_config(spec.LatePolicy, arguments))


def Bootstrap(
    component: Source, *, format: Format | None = None, until: str | datetime.datetime | None = None
) -> spec.Bootstrap:
    """A history to be read before a source, in the order of event time.

    With `until`, rows before that event time are taken from the history and all others from the source.
    """
    arguments = {"component": component, "format": format, "until": until}
    return cast(spec.Bootstrap, build_config(spec.Bootstrap, arguments))


def Throttle(rows_per_second: int | None = None, *, adaptive: bool = False) -> spec.Throttle:
    """How much of a source is let in: at most so many rows a second, and with `adaptive` as much as sinks take."""
    return cast(spec.Throttle, build_config(spec.Throttle, {"rows_per_second": rows_per_second, "adaptive": adaptive}))


def Ledger(*, window: str | Duration | None = None, checksum: Sequence[str] = ()) -> spec.LedgerSettings:
    """What the ledger keeps: rows by windows of event time, and checksums of columns for `penstock ledger --audit`."""
    arguments = {"window": window, "checksum": tuple(checksum)}
    return cast(spec.LedgerSettings, build_config(spec.LedgerSettings, arguments))


def Savepoints(*, every: str | Duration | None = None, keep: int | None = None) -> spec.SavepointSettings:
    """Savepoints that the pipeline takes by itself: how often, and how many of them it keeps."""
    arguments = {"every": every} if keep is None else {"every": every, "keep": keep}
    return cast(spec.SavepointSettings, build_config(spec.SavepointSettings, arguments))


def Scale(
    *,
    min: int,
    max: int,
    utilisation: float | None = None,
    catch_up: str | Duration | None = None,
    stabilisation: str | Duration | None = None,
    down_after: str | Duration | None = None,
    max_per_day: int | None = None,
    excluded: Sequence[str] | None = None,
) -> ScaleSettings:
    """Between how many cores a pipeline may be scaled, and by which rules."""
    rules = {
        "utilisation": utilisation,
        "catch_up": catch_up,
        "stabilisation": stabilisation,
        "down_after": down_after,
        "max_per_day": max_per_day,
        "excluded": None if excluded is None else tuple(excluded),
    }
    given = {key: value for key, value in rules.items() if value is not None}
    return cast(ScaleSettings, build_config(ScaleSettings, {"min": min, "max": max, **given}))


class Node:
    """A source or step of a pipeline under construction; its methods add what reads from it."""

    def __init__(self, pipeline: Pipeline, name: str) -> None:
        self._pipeline = pipeline
        self.name = name

    def sql(self, name: str, query: str, *, late: LateRows | None = None, renamed_from: str | None = None) -> Node:
        """Adds a step that runs a Spark SQL query; the table is called as this node is."""
        return self._pipeline.sql(name, query, inputs=[self], late=late, renamed_from=renamed_from)

    def step(
        self, name: str, component: Step, *, late: LateRows | None = None, renamed_from: str | None = None
    ) -> Node:
        """Adds a step that reads this node."""
        return self._pipeline.step(name, component, inputs=[self], late=late, renamed_from=renamed_from)

    def to(self, name: str, component: Sink, *, renamed_from: str | None = None) -> Node:
        """Adds a sink that stores the rows of this node; gives back this node, so that it can feed several."""
        self._pipeline._add("sinks", name, {"from": self.name, **_named(component), "renamedFrom": renamed_from})
        return self

    def __repr__(self) -> str:
        return f"Node({self.name!r})"


class Pipeline:
    """A pipeline under construction.

    `build()` gives the finished, frozen specification and raises everything that is wrong with it at once; mistakes
    in a single call are raised by that call.
    """

    def __init__(
        self,
        name: str,
        *,
        labels: Mapping[str, str] | None = None,
        trigger: str | Duration | None = None,
        restarts_per_hour: int | None = None,
        partitions: int | None = None,
        dead_letters: Sink | None = None,
        late: LateRows | None = None,
        ledger: spec.LedgerSettings | None = None,
        savepoints: spec.SavepointSettings | None = None,
        scale: ScaleSettings | None = None,
    ) -> None:
        place = calling_place()
        metadata: dict[str, Any] = {"name": name}
        self._spec: dict[str, Any] = {"sources": {}, "steps": {}, "sinks": {}, "alerts": [], "tests": []}
        self._document = {
            "apiVersion": spec.API_VERSION, "kind": "Pipeline", "metadata": metadata, "spec": self._spec,
        }  # fmt: skip
        self._places = Places(place.file, values={(): place})
        if labels is not None:
            metadata["labels"] = dict(labels)
        run = {
            **({} if trigger is None else {"trigger": trigger}),
            **({} if restarts_per_hour is None else {"restart": {"maxPerHour": restarts_per_hour}}),
        }
        if run:
            self._spec["run"] = run
        if partitions is not None:
            self._spec["state"] = {"partitions": partitions}
        if dead_letters is not None:
            self._spec["deadLetters"] = _named(dead_letters)
        if late is not None:
            self._spec["late"] = late
        if ledger is not None:
            self._spec["ledger"] = ledger
        if savepoints is not None:
            self._spec["savepoints"] = savepoints
        if scale is not None:
            self._spec["scale"] = scale

    def source(
        self,
        name: str,
        component: Source,
        *,
        format: Format | None = None,
        event_time: spec.EventTime | None = None,
        bootstrap: spec.Bootstrap | None = None,
        throttle: spec.Throttle | None = None,
        renamed_from: str | None = None,
    ) -> Node:
        """Adds a source."""
        content: dict[str, Any] = _named(component)
        if format is not None:
            content["format"] = _named(format)
        if event_time is not None:
            content["eventTime"] = event_time
        if bootstrap is not None:
            content["bootstrap"] = bootstrap
        if throttle is not None:
            content["throttle"] = throttle
        if renamed_from is not None:
            content["renamedFrom"] = renamed_from
        return self._add("sources", name, content)

    def step(
        self,
        name: str,
        component: Step,
        *,
        inputs: Iterable[Node | str],
        late: LateRows | None = None,
        renamed_from: str | None = None,
    ) -> Node:
        """Adds a step that reads one or several nodes."""
        content = {"from": self._names(inputs), **_named(component), "late": late, "renamedFrom": renamed_from}
        return self._add("steps", name, content)

    def sql(
        self,
        name: str,
        query: str,
        *,
        inputs: Iterable[Node | str],
        late: LateRows | None = None,
        renamed_from: str | None = None,
    ) -> Node:
        """Adds a step that runs a Spark SQL query over nodes, each a table under its own name."""
        content = {"from": self._names(inputs), "sql": query, "late": late, "renamedFrom": renamed_from}
        return self._add("steps", name, content)

    def test(self, name: str, *, given: Mapping[Node | str, Rows], expect: Mapping[Node | str, Rows]) -> None:
        """Adds a test: rows for sources, and rows that must leave a step or reach a sink. Times become texts."""
        index = len(self._spec["tests"])
        self._spec["tests"].append({"name": name, "given": _rows(given), "expect": _rows(expect)})
        self._mark(("spec", "tests", index), calling_place())

    def alert(
        self,
        when: str | Condition | None = None,
        *,
        for_: str | Duration | None = None,
        severity: AlertSeverity = "warn",
        name: str | None = None,
        notify: Sequence[str] = (),
        off: bool = False,
    ) -> None:
        """Adds an alert: a condition such as `watermark_lag > 5 minutes`, and how long it must hold before it fires.

        One of the same name as an alert that every pipeline has replaces it; `off` with its name turns it off.
        """
        arguments = {"name": name, "off": off, "when": when, "severity": severity, "notify": tuple(notify)}
        alert = build_config(Alert, arguments if for_ is None else {**arguments, "for_": for_})
        index = len(self._spec["alerts"])
        self._spec["alerts"].append(alert)
        self._mark(("spec", "alerts", index), calling_place())

    def build(self) -> spec.Pipeline:
        """The finished pipeline; raises one error with everything that is wrong."""
        return assemble(self._document, self._places)

    def file(self, path: Path | None = None) -> PipelineFile:
        """The finished pipeline with the places of the calls that made it; paths in it are relative to that file."""
        return PipelineFile(self.build(), self._places, path or Path(self._places.file))

    def _names(self, inputs: Iterable[Node | str]) -> list[str]:
        names = []
        for item in [inputs] if isinstance(inputs, str | Node) else inputs:
            if isinstance(item, Node) and item._pipeline is not self:
                reason = f"'{item.name}' belongs to another pipeline"
                raise PenstockError.of("SPEC_BAD_VALUE", calling_place(), where="inputs", reason=reason)
            names.append(item.name if isinstance(item, Node) else item)
        return names

    def _add(self, section: str, name: str, content: dict[str, Any]) -> Node:
        place = calling_place()
        path: Path_ = ("spec", section, name)
        for other in ("sources", "steps", "sinks"):
            if name in self._spec[other]:
                first = self._places.of_key("spec", other, name)
                raise PenstockError.of("SPEC_DUPLICATE_NAME", place, name=name, first=first)
        self._spec[section][name] = content
        self._mark(path, place)
        return Node(self, name)

    def _mark(self, path: Path_, place: Location) -> None:
        self._places.keys[path] = self._places.values[path] = place


def _named(component: object) -> dict[str, Any]:
    """A component as it stands in a document: under its name."""
    name = getattr(type(component), "name", None)
    if not isinstance(component, Config) or not isinstance(name, str):
        expected = "a component such as ps.sources.Files(...)"
        params: dict[str, Any] = {"where": "the component", "expected": expected, "found": repr(component)}
        raise PenstockError.of("SPEC_WRONG_TYPE", calling_place(), **params)
    return {name: component}


def _of_kind_sink(component: object) -> Sink:
    if isinstance(component, Sink):
        return component
    params: dict[str, Any] = {
        "where": "`sink`",
        "expected": "a sink such as ps.sinks.Files(...)",
        "found": describe(component),
    }
    raise PenstockError.of("SPEC_WRONG_TYPE", calling_place(), **params)


def _rows(by_node: Mapping[Node | str, Rows]) -> dict[str, list[dict[str, Any]]]:
    return {
        node.name if isinstance(node, Node) else node: [
            {column: _as_written(value) for column, value in row.items()} for row in rows
        ]
        for node, rows in by_node.items()
    }


def _as_written(value: Any) -> Any:
    """Times as a pipeline file would write them."""
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat().replace("+00:00", "Z")
    return value
