"""From a plain document to a pipeline: the one way in for YAML, SQL and Python.

Everything that is wrong is collected, each mistake at its place, and raised together.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from penstock.components.base import Component, ComponentKind, Format, Source
from penstock.components.registry import all_components, components
from penstock.errors import PenstockError, Problem, did_you_mean
from penstock.frontends.alerts import check_alerts
from penstock.frontends.configs import aliases, note_unknown_key, read_config
from penstock.frontends.findings import Findings, describe, place_in_words
from penstock.spec import pipeline as spec
from penstock.spec.alerts import Alert
from penstock.spec.fields import Config
from penstock.spec.location import Path_, PipelineFile, Places
from penstock.spec.scale import ScaleSettings
from penstock.spec.secrets import references, texts

TOP_KEYS = ("apiVersion", "kind", "metadata", "spec")
METADATA_KEYS = ("name", "labels")
SPEC_KEYS = (
    "sources",
    "steps",
    "sinks",
    "deadLetters",
    "late",
    "state",
    "run",
    "ledger",
    "savepoints",
    "scale",
    "alerts",
    "tests",
)
NODE_SECTIONS = ("sources", "steps", "sinks")
MOST_NODES = 500
"""Checks compare nodes with each other, and Spark plans all of them as one query."""
ENVELOPES: dict[spec.Kind, tuple[str, ...]] = {
    "source": ("format", "eventTime", "bootstrap", "throttle", "renamedFrom"),
    "step": ("from", "late", "renamedFrom"),
    "sink": ("from", "renamedFrom"),
}  # fmt: skip
"""Keys of a source, step or sink that do not name its component."""
HISTORY_KEYS = ("format", "until")
"""Keys of `bootstrap` that do not name its component."""
_NEAR = 0.75
_C = TypeVar("_C", bound=Config)
_N = TypeVar("_N", spec.Source, spec.Step, spec.Sink)
_Entry = tuple[str, Mapping[str, Any], Path_]
"""A source, step or sink as written: its name, its content and where it stands."""


def assemble(document: Mapping[str, Any], places: Places, problems: Iterable[Problem] = ()) -> spec.Pipeline:
    """The pipeline a document describes; raises one error with all problems, those handed over included.

    Besides plain data the document may hold ready configurations, as Python code makes them.
    """
    findings = Findings(places, problems)
    assembly = _Assembly(findings)
    pipeline = assembly.pipeline(document)
    if findings.problems or pipeline is None:
        sound = PipelineFile(pipeline, places, Path(places.file)) if pipeline is not None else None
        raise InvalidPipeline(findings.in_order(), sound, frozenset(assembly.broken))
    return pipeline


class InvalidPipeline(PenstockError):
    """What is wrong with a document, together with what is sound in it, so that more can be looked at."""

    def __init__(self, problems: Iterable[Problem], sound: PipelineFile | None, broken: frozenset[str]) -> None:
        super().__init__(problems)
        self.sound = sound
        self.broken = broken
        """Names of sources, steps and sinks that are there but could not be read."""


class _Assembly:
    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self.names: dict[str, Path_] = {}
        self.broken: set[str] = set()
        self.renamed: dict[str, str] = {}
        """Names of before, with the name of who had them."""
        self.sinks: dict[str, Any] = {}
        """All entries of `sinks`."""
        self.late_sinks: dict[str, Component | None] = {}
        """Those that `late` names and that are there for late rows only; None if one cannot be read."""

    def pipeline(self, document: Mapping[str, Any]) -> spec.Pipeline | None:
        self._check_secret_syntax(document)
        self._check_head(document)
        name, labels = self._metadata(document)
        body = self._body(document)
        if body is None:
            return None
        sources, steps = self._nodes("source", body), self._nodes("step", body)
        sinks = self._without_late_sinks(self._nodes("sink", body), body, steps)
        parts: dict[str, Any] = {
            "sources": self._sound(self._source, sources),
            "steps": self._sound(self._step, steps),
            "sinks": self._sound(self._sink, sinks),
            "dead_letters": self._dead_letters(body),
            "late": self._late(body, ("spec",)) or spec.LatePolicy(),
            "state": self._settings(spec.StateSettings, body, "state") or spec.StateSettings(),
            "run": self._settings(spec.RunSettings, body, "run") or spec.RunSettings(),
            "ledger": self._settings(spec.LedgerSettings, body, "ledger") or spec.LedgerSettings(),
            "savepoints": self._settings(spec.SavepointSettings, body, "savepoints") or spec.SavepointSettings(),
            "scale": None if body.get("scale") is None else self._settings(ScaleSettings, body, "scale"),
            "alerts": self._alerts(body),
            "tests": tuple(self._listed(spec.TestCase, body, "tests", "Start each test with `- name:`.").values()),
        }
        return spec.Pipeline(name=name, labels=labels, **parts)

    def _sound(
        self,
        read: Callable[[str, Mapping[str, Any], Path_], _N | None],
        entries: list[_Entry],
    ) -> tuple[_N, ...]:
        """The entries nothing is wrong with; the others are noted as broken."""
        sound: dict[str, _N] = {}
        for name, content, path in entries:
            before = len(self.findings.problems)
            node = read(name, content, path)
            if node is None or len(self.findings.problems) > before:
                self.broken.add(name)
            else:
                sound.setdefault(name, node)
        return tuple(sound.values())

    # --- the frame of the document ---

    def _check_secret_syntax(self, document: Mapping[str, Any]) -> None:
        for path, text in texts(_plain(document)):
            try:
                references(text)
            except PenstockError as error:
                self.findings.take(error, path)

    def _check_head(self, document: Mapping[str, Any]) -> None:
        for key in document:
            if key in TOP_KEYS:
                continue
            inside = "spec" if key in SPEC_KEYS else "metadata" if key in METADATA_KEYS else None
            suggestion = f"`{key}` belongs under `{inside}`." if inside else did_you_mean(key, TOP_KEYS)
            where = place_in_words(())
            self.findings.at_key("SPEC_UNKNOWN_KEY", (key,), key=key, where=where, suggestion=suggestion)
        version, kind = document.get("apiVersion"), document.get("kind")
        if "apiVersion" not in document:
            self._missing((), "apiVersion", f"Start the file with `apiVersion: {spec.API_VERSION}`.")
        elif version != spec.API_VERSION:
            self.findings.at_value("SPEC_VERSION", ("apiVersion",), found=version)
        if "kind" not in document:
            self._missing((), "kind", "Write `kind: Pipeline`.")
        elif kind != "Pipeline":
            reason = f"{describe(kind)} is not a kind of file Penstock knows"
            self.findings.at_value(
                "SPEC_BAD_VALUE", ("kind",), where="`kind`", reason=reason, advice="Write `kind: Pipeline`."
            )

    def _metadata(self, document: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
        advice = "Write `metadata: {name: my_pipeline}`."
        if "metadata" not in document:
            self._missing((), "metadata", advice)
            return "", {}
        metadata = self._mapping(document["metadata"], ("metadata",), advice)
        if metadata is None:
            return "", {}
        self._refuse_unknown(metadata, METADATA_KEYS, ("metadata",))
        labels: dict[str, str] = {}
        written = {} if metadata.get("labels") is None else metadata["labels"]
        for key, value in (self._mapping(written, ("metadata", "labels")) or {}).items():
            if self._is_text(value, ("metadata", "labels", key), "Put it in quotes."):
                labels[key] = value
        if metadata.get("name") is None:
            self._missing(("metadata",), "name", advice)
            return "", labels
        name = metadata["name"]
        if not self._is_text(name, ("metadata", "name")):
            return "", labels
        if not spec.PIPELINE_NAME.fullmatch(name):
            self.findings.at_value("SPEC_BAD_NAME", ("metadata", "name"), name=name, kind="pipeline")
        return name, labels

    def _body(self, document: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if "spec" not in document:
            self._missing((), "spec", "It holds `sources`, `steps` and `sinks`.")
            return None
        body = self._mapping(document["spec"], ("spec",), "It holds `sources`, `steps` and `sinks`.")
        if body is not None:
            self._refuse_unknown(body, SPEC_KEYS, ("spec",))
            count = sum(len(part) for part in map(body.get, NODE_SECTIONS) if isinstance(part, Mapping))
            if count > MOST_NODES:
                self.findings.at_key("PIPELINE_TOO_LARGE", ("spec",), count=count, most=MOST_NODES)
                return None
        return body

    # --- sources, steps and sinks ---

    def _nodes(self, kind: spec.Kind, body: Mapping[str, Any]) -> list[_Entry]:
        """The well-formed entries of a section, with their names checked."""
        section = f"{kind}s"
        path: Path_ = ("spec", section)
        found = []
        written = {} if body.get(section) is None else body[section]
        entries = self._mapping(written, path, f"Write each {kind} as `name: {{...}}`, not as a list.")
        for name, value in (entries or {}).items():
            self._check_name(kind, name, (*path, name))
            content = self._mapping(value, (*path, name), f"Name its component: `{self._a_component(kind)}: {{...}}`.")
            if content is None:
                self.broken.add(name)
            else:
                found.append((name, content, (*path, name)))
        if entries is not None and not entries and kind != "step":
            self.findings.at_key("PIPELINE_EMPTY", path if section in body else ("spec",), kind=section)
        return found

    def _check_name(self, kind: spec.Kind, name: str, path: Path_) -> None:
        if not spec.NODE_NAME.fullmatch(name):
            self.findings.at_key("SPEC_BAD_NAME", path, name=name, kind=kind)
        if name in self.names:
            first = self.findings.places.of_key(*self.names[name])
            self.findings.at_key("SPEC_DUPLICATE_NAME", path, name=name, first=first)
        self.names.setdefault(name, path)

    def _source(self, name: str, content: Mapping[str, Any], path: Path_) -> spec.Source | None:
        component = self._component("source", content, path, ENVELOPES["source"])
        format_ = self._format(name, content, path)
        event_time = None
        if content.get("eventTime") is not None:
            event_time = read_config(spec.EventTime, content["eventTime"], (*path, "eventTime"), self.findings)
        bootstrap = self._bootstrap(name, content, path)
        throttle = read_config(spec.Throttle, content.get("throttle"), (*path, "throttle"), self.findings)
        if component is None:
            return None
        assert isinstance(component, Source)
        if throttle not in (None, spec.Throttle()) and component.read_through.batch_limit is None:
            self.findings.at_key("THROTTLE_UNSUPPORTED", (*path, "throttle"), node=name, component=component.name)
        return spec.Source(
            name=name,
            component=component,
            format=format_,
            event_time=event_time,
            bootstrap=bootstrap,
            throttle=throttle or spec.Throttle(),
            renamed_from=self._renamed_from(name, content, path),
        )

    def _bootstrap(self, name: str, content: Mapping[str, Any], around: Path_) -> spec.Bootstrap | None:
        value, path = content.get("bootstrap"), (*around, "bootstrap")
        if value is None or isinstance(value, spec.Bootstrap):
            return value
        written = self._mapping(value, path, "Name the source of the history: `bootstrap: {files: {path: ./old}}`.")
        if written is None:
            return None
        component = self._component("source", written, path, HISTORY_KEYS)
        if component is None:
            return None
        assert isinstance(component, Source)
        if not component.bounded:
            bounded = [each for each, cls in components("source").items() if cast(type[Source], cls).bounded]
            self.findings.at_key("HISTORY_UNBOUNDED", (*path, component.name), node=name, component=component.name,
                                 known=", ".join(bounded))  # fmt: skip
        if content.get("eventTime") is None:
            self.findings.at_key("HISTORY_WITHOUT_TIME", path, node=name)
        as_source = written.get("format") is None and content.get("format") is not None and component.takes_format
        format_ = None if as_source else self._format(name, written, path)
        parts = {"component": component, "format": format_, "until": written.get("until")}
        return read_config(spec.Bootstrap, parts, path, self.findings)

    def _format(self, name: str, content: Mapping[str, Any], path: Path_) -> Component | None:
        chosen = [components("source")[key] for key in content if key in components("source")]
        takes_format = all(cast(type[Source], cls).takes_format for cls in chosen)
        if content.get("format") is None:
            if chosen and takes_format:
                self.findings.at_key("FORMAT_MISSING", path, name=name, component=chosen[0].name)
            return None
        if not takes_format:
            self.findings.at_key("FORMAT_NOT_USED", (*path, "format"), name=name, component=chosen[0].name)
        advice = "Write `format: {json: {schema: {...}}}`."
        inside = self._mapping(content["format"], (*path, "format"), advice)
        found = None if inside is None else self._component("format", inside, (*path, "format"), ())
        if isinstance(found, Format):
            for source in chosen:
                of_messages = cast(type[Source], source).takes_messages
                if not (found.messages if of_messages else found.files):
                    code = "FORMAT_NOT_FOR_MESSAGES" if of_messages else "FORMAT_NOT_FOR_FILES"
                    params = {"name": name, "component": source.name, "format": found.name}
                    self.findings.at_key(code, (*path, "format"), **params)
        return found

    def _step(self, name: str, content: Mapping[str, Any], path: Path_) -> spec.Step | None:
        inputs = self._inputs(content, path)
        component = self._component("step", content, path, ENVELOPES["step"])
        late = self._late(content, path)
        if component is None or not inputs:
            return None
        renamed = self._renamed_from(name, content, path)
        return spec.Step.model_validate(
            {"name": name, "from": inputs, "component": component, "late": late, "renamed_from": renamed}
        )

    def _renamed_from(self, name: str, content: Mapping[str, Any], path: Path_) -> str | None:
        """What it was called before: a name that nothing has any more, and that only one had."""
        before, inner = content.get("renamedFrom"), (*path, "renamedFrom")
        if before is None or not self._is_text(before, inner):
            return None
        assert isinstance(before, str)
        reason = None
        if before == name:
            reason = "that is its name"
        elif before in self.names:
            reason = f"there is a {str(self.names[before][1]).removesuffix('s')} of that name"
        elif before in self.renamed:
            reason = f"'{self.renamed[before]}' says so too"
        elif not spec.NODE_NAME.fullmatch(before):
            reason = "nothing can have had that name"
        self.renamed.setdefault(before, name)
        if reason is not None:
            self.findings.at_value("RENAMED_FROM", inner, node=name, name=before, reason=reason)
        return before

    def _inputs(self, content: Mapping[str, Any], path: Path_) -> tuple[str, ...]:
        value = content.get("from")
        if value is None:
            self._missing(path, "from", "Name the source or step it reads.")
            return ()
        listed = value if isinstance(value, list | tuple) else [value]
        if not listed:
            self.findings.at_value(
                "SPEC_BAD_VALUE", (*path, "from"), where=place_in_words((*path, "from")), reason="names nothing to read"
            )
        inner: Path_ = (*path, "from")
        advice = "Name a source or step, or list several: `from: [a, b]`."
        are_texts = [
            self._is_text(name, (*inner, index) if listed is value else inner, advice)
            for index, name in enumerate(listed)
        ]
        return tuple(listed) if all(are_texts) else ()

    def _sink(self, name: str, content: Mapping[str, Any], path: Path_) -> spec.Sink | None:
        component = self._component("sink", content, path, ENVELOPES["sink"])
        value = content.get("from")
        if value is None:
            self._missing(path, "from", "Name the source or step whose rows it stores.")
        elif self._is_text(value, (*path, "from"), "A sink reads one source or step.") and component is not None:
            renamed = self._renamed_from(name, content, path)
            return spec.Sink.model_validate(
                {"name": name, "from": value, "component": component, "renamed_from": renamed}
            )
        return None

    def _component(
        self, kind: ComponentKind, content: Mapping[str, Any], path: Path_, envelope: tuple[str, ...]
    ) -> Component | None:
        """The one component that a mapping names beside its envelope."""
        registered = components(kind)
        candidates = [key for key in content if key not in envelope]
        known = [key for key in candidates if key in registered]
        unknown = [key for key in candidates if key not in registered]
        if len(known) > 1:
            params = {"where": place_in_words(path), "found": ", ".join(known), "kind": kind}
            self.findings.at_key("COMPONENT_AMBIGUOUS", (*path, known[1]), **params)
        if not known:
            self._no_component(kind, unknown, path, envelope)
            return None
        for key in unknown:
            self._stray_key(key, registered[known[0]], path, envelope)
        cls, value, inner = registered[known[0]], content[known[0]], (*path, known[0])
        if isinstance(value, Config) and not isinstance(value, cls):
            params = {"where": place_in_words(path), "expected": f"a {kind}", "found": describe(value)}
            self.findings.at_value("SPEC_WRONG_TYPE", inner, **params)
            return None
        return read_config(cls, value, inner, self.findings)

    def _no_component(self, kind: ComponentKind, keys: list[str], path: Path_, envelope: tuple[str, ...]) -> None:
        misspelt = [key for key in keys if _nearer(key, envelope, components(kind))]
        for key in misspelt:
            note_unknown_key(path, key, envelope, self.findings)
        others = [key for key in keys if key not in misspelt]
        if not others:
            known = ", ".join(components(kind))
            self.findings.at_key("COMPONENT_MISSING", path, where=place_in_words(path), known=known)
        for key in others:
            elsewhere = [cls.kind for cls in all_components() if cls.name == key]
            known_as = f"'{key}' is a {' and a '.join(elsewhere)}. " if elsewhere else ""
            suggestion = known_as + did_you_mean(key, components(kind))
            self.findings.at_key("COMPONENT_UNKNOWN", (*path, key), kind=kind, name=key, suggestion=suggestion)

    def _stray_key(self, key: str, cls: type[Component], path: Path_, envelope: tuple[str, ...]) -> None:
        if key in aliases(cls):
            suggestion = f"`{key}` belongs inside `{cls.name}`."
            where = place_in_words(path)
            self.findings.at_key("SPEC_UNKNOWN_KEY", (*path, key), key=key, where=where, suggestion=suggestion)
        else:
            note_unknown_key(path, key, (*envelope, cls.name), self.findings)

    # --- late rows ---

    def _without_late_sinks(self, sinks: list[_Entry], body: Mapping[str, Any], steps: list[_Entry]) -> list[_Entry]:
        """The sinks but those that `late` names and nothing else feeds; these are read here, each once."""
        self.sinks = dict(body["sinks"]) if isinstance(body.get("sinks"), Mapping) else {}
        named = {_late_sink_name(content.get("late")) for content in (body, *(step[1] for step in steps))}
        fed = []
        for name, content, path in sinks:
            if name not in named or content.get("from") is not None:
                fed.append((name, content, path))
                continue
            self.late_sinks[name] = self._component("sink", content, path, ENVELOPES["sink"])
            if self.late_sinks[name] is None:
                self.broken.add(name)
        if self.late_sinks and self.late_sinks.keys() == self.sinks.keys():
            self.findings.at_key("PIPELINE_EMPTY", ("spec", "sinks"), kind="sinks")
        return fed

    def _late(self, content: Mapping[str, Any], around: Path_) -> spec.LatePolicy | None:
        value, path = content.get("late"), (*around, "late")
        if value is None:
            return None
        if isinstance(value, Mapping) and value.get("sink") is not None:
            value = {**value, "sink": self._late_sink(value["sink"], (*path, "sink"))}
        return read_config(spec.LatePolicy, value, path, self.findings)

    def _late_sink(self, value: Any, path: Path_) -> Component | None:
        """A sink that is written in place, or the entry of `sinks` that a text names."""
        if isinstance(value, str):
            return self._named_late_sink(value, path)
        advice = "Write `sink: {files: {path: ./late}}`, or the name of a sink without `from`."
        content = self._mapping(value, path, advice)
        return None if content is None else self._component("sink", content, path, ())

    def _named_late_sink(self, name: str, path: Path_) -> Component | None:
        where, entry = place_in_words(path), self.sinks.get(name)
        if name in self.late_sinks:
            component, places = self.late_sinks[name], self.findings.places
            if component is not None:
                places.take_over(places, ("spec", "sinks", name, component.name), (*path, component.name))
            return component
        if isinstance(entry, Mapping):
            reason = f"sink '{name}' stores the rows of {_in_words(entry.get('from'))}"
            advice = "Late rows have other columns: name a sink without `from`."
            self.findings.at_value("SPEC_BAD_VALUE", path, where=where, reason=reason, advice=advice)
        elif name not in self.sinks:
            unfed = (other for other, entry in self.sinks.items() if isinstance(entry, Mapping) and "from" not in entry)
            suggestion = did_you_mean(name, unfed) or f"Add it under `sinks`: `{name}: {{files: {{path: ./late}}}}`."
            self.findings.at_value("LATE_SINK_UNKNOWN", path, where=where, name=name, suggestion=suggestion)
        return None

    # --- the rest ---

    def _dead_letters(self, body: Mapping[str, Any]) -> Component | None:
        if body.get("deadLetters") is None:
            return None
        advice = "Name a sink: `deadLetters: {files: {path: ./dead}}`."
        content = self._mapping(body["deadLetters"], ("spec", "deadLetters"), advice)
        return None if content is None else self._component("sink", content, ("spec", "deadLetters"), ())

    def _settings(self, cls: type[Config], body: Mapping[str, Any], key: str) -> Config | None:
        return read_config(cls, body.get(key), ("spec", key), self.findings)

    def _alerts(self, body: Mapping[str, Any]) -> tuple[Alert, ...]:
        alerts = self._listed(Alert, body, "alerts", "Start each alert with `- when:`.")
        check_alerts(alerts, self.names, self.findings)
        return tuple(alerts.values())

    def _listed(self, cls: type[_C], body: Mapping[str, Any], key: str, advice: str) -> dict[int, _C]:
        """The entries of a list that can be read, by their place in it."""
        entries = [] if body.get(key) is None else body[key]
        if not isinstance(entries, list | tuple):
            params = {"where": f"`{key}`", "expected": "a list", "found": describe(entries), "advice": advice}
            self.findings.at_value("SPEC_WRONG_TYPE", ("spec", key), **params)
            return {}
        read = (read_config(cls, entry, ("spec", key, index), self.findings) for index, entry in enumerate(entries))
        return {index: config for index, config in enumerate(read) if config is not None}

    def _a_component(self, kind: spec.Kind) -> str:
        return next(iter(components(kind)), "component")

    def _missing(self, path: Path_, key: str, advice: str) -> None:
        self.findings.at_key("SPEC_MISSING_KEY", path, key=key, where=place_in_words(path), advice=advice)

    def _mapping(self, value: Any, path: Path_, advice: str = "") -> Mapping[str, Any] | None:
        if isinstance(value, Mapping):
            return value
        params = {"where": place_in_words(path), "expected": "a mapping", "found": describe(value), "advice": advice}
        self.findings.at_value("SPEC_WRONG_TYPE", path, **params)
        return None

    def _is_text(self, value: Any, path: Path_, advice: str = "") -> bool:
        if isinstance(value, str):
            return True
        params = {"where": place_in_words(path), "expected": "text", "found": describe(value), "advice": advice}
        self.findings.at_value("SPEC_WRONG_TYPE", path, **params)
        return False

    def _refuse_unknown(self, content: Mapping[str, Any], known: tuple[str, ...], path: Path_) -> None:
        for key in content:
            if key not in known:
                note_unknown_key(path, key, known, self.findings)


def _plain(value: Any) -> Any:
    """The document with ready configurations written out."""
    if isinstance(value, Config):
        return value.model_dump(by_alias=True)
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def _late_sink_name(late: Any) -> str | None:
    """The sink that a `late` as written gives by name."""
    sink = late.get("sink") if isinstance(late, Mapping) else None
    return sink if isinstance(sink, str) else None


def _in_words(inputs: Any) -> str:
    return f"'{inputs}'" if isinstance(inputs, str) else "others"


def _nearer(key: str, envelope: Iterable[str], names: Iterable[str]) -> bool:
    """Whether a key looks more like a misspelt envelope key than like a misspelt component."""

    def likeness(words: Iterable[str]) -> float:
        return max((difflib.SequenceMatcher(None, key, word).ratio() for word in words), default=0.0)

    return likeness(envelope) >= _NEAR and likeness(envelope) > likeness(names)
