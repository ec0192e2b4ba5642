"""How a folder of files goes back to what it held at a savepoint, and what is kept for that.

A pin names the manifests a savepoint counts on. While it is there, neither they nor the files they name are removed.
Going back begins a new timeline, by one small file that is written whole: from that moment on a manifest counts if it
was written in this timeline or is named there. Manifests that count no more are removed afterwards, and those that had
been removed are put back; a reader who goes by the file sees the state before or the state after, at any moment. It
also voids what a run writes that was overtaken and does not know it yet.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from urllib.parse import quote, unquote

from penstock.components.shared.manifests import FOLDER, File, Manifest, Span, spans, visible
from penstock.components.shared.storage import Storage
from penstock.errors import PenstockError

PINS = "_penstock/pins"
TIMELINE = "_penstock/timeline.json"
_AT_ONCE = 16
_TRIES = 5

Names = Mapping[str, int]
"""Manifests by their names, each with the timeline it was written in: no two that differ have both the same."""


@dataclass(frozen=True)
class Timeline:
    number: int = 0
    """How often the folder has gone back."""
    since: float = 0.0
    """When it did so last, in seconds since 1970."""
    kept: Names = field(default_factory=dict)
    """The manifests of earlier timelines that count."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Those of them that are not in their place yet."""
    settled: bool = True
    """Whether all that counts is in its place, and nothing else."""

    def counts(self, manifest: Manifest) -> bool:
        return manifest.timeline in (self.number, self.kept.get(manifest.span.name))


@dataclass(frozen=True)
class Pin:
    manifests: Names
    texts: Mapping[str, str] = field(default_factory=dict)
    """Those that are no longer in their place, because the folder went back to a time before them."""


# --- what there is ---------------------------------------------------------------------------------------------


def read_timeline(store: Storage) -> Timeline:
    text = store.read(TIMELINE)
    return Timeline(**json.loads(text)) if text else Timeline()


def write_timeline(store: Storage, timeline: Timeline) -> None:
    store.write(TIMELINE, json.dumps(asdict(timeline)))


def read_pins(store: Storage) -> dict[str, Pin]:
    found = [name for name in store.names(PINS) if name.endswith(".json")]
    texts = {unquote(name.removesuffix(".json")): store.read(f"{PINS}/{name}") for name in found}
    return {name: Pin(**json.loads(text)) for name, text in texts.items() if text is not None}


def pin_path(name: str) -> str:
    return f"{PINS}/{quote(name, safe='')}.json"


def write_pin(store: Storage, name: str, pin: Pin) -> None:
    store.write(pin_path(name), json.dumps(asdict(pin)))


def pin_for(store: Storage, manifests: Names) -> Pin:
    """A pin for manifests, with those in it that are no longer in their place; raises Gone if one is nowhere."""
    kept = {(name, pin.manifests[name]): text for pin in read_pins(store).values() for name, text in pin.texts.items()}
    texts = {name: kept[name, timeline] for name, timeline in manifests.items() if (name, timeline) in kept}
    _refuse_lost(name for name in manifests.keys() - {*store.names(FOLDER)} if name not in texts)
    return Pin(manifests, texts)


def read_each(store: Storage, found: Sequence[Span]) -> dict[Span, Manifest]:
    """Manifests, without those that are gone."""
    if not found:
        return {}
    with ThreadPoolExecutor(min(_AT_ONCE, len(found))) as pool:
        texts = pool.map(store.read, [span.path for span in found])
        return {span: Manifest.from_json(text) for span, text in zip(found, texts, strict=True) if text is not None}


def read_manifests(store: Storage) -> list[Manifest]:
    """The manifests that count, in the order of their batches."""
    missing: list[Span] = []
    for _ in range(_TRIES):
        timeline = read_timeline(store)
        found, missing = _counting(store, timeline)
        # One that was removed after it had been listed has another in its place, or the folder went back.
        if not missing and read_timeline(store) == timeline:
            return found
    path = missing[0].path if missing else FOLDER
    raise PenstockError.of("PATH_NOT_FOUND", where="a manifest", path=path)


def _counting(store: Storage, timeline: Timeline) -> tuple[list[Manifest], list[Span]]:
    """The manifests that count as far as they are there, and those that are missing."""
    known = {item.span: item for item in map(Manifest.from_json, timeline.texts.values())}
    candidates = {*spans(store.names(FOLDER)), *known}
    while True:
        shown = visible(candidates)
        known |= read_each(store, [span for span in shown if span not in known])
        missing = [span for span in shown if span not in known]
        void = {span for span in shown if span in known and not timeline.counts(known[span])}
        if missing or not void:
            return [known[span] for span in shown if span in known], missing
        candidates -= void


def pinned_files(store: Storage, pins: Iterable[Pin]) -> set[str]:
    """The data files that savepoints count on."""
    pinned = list(pins)
    kept = [Manifest.from_json(text) for pin in pinned for text in pin.texts.values()]
    in_place = {span for pin in pinned for span in spans(pin.manifests.keys() - pin.texts.keys())}
    return {file.path for item in (*kept, *read_each(store, sorted(in_place)).values()) for file in item.files}


# --- going back ------------------------------------------------------------------------------------------------


class Gone(Exception):
    """What going back would take and is not there; the text names it."""


def up_to(batch: int, found: Names) -> dict[str, int]:
    """Of manifests that were there, those that held the batches up to one; raises Gone if one holds more."""
    before = visible(span for span in spans(found) if span.last <= batch)
    for span in visible(spans(found)):
        beyond = span.first <= batch < span.last
        if beyond and not any(part.first == span.first for part in before):
            raise Gone(f"the manifest {span.name} holds later batches too, and those it was merged from are gone")
    return {span.name: found[span.name] for span in before}


@dataclass(frozen=True)
class Return:
    """All it takes to go back to some manifests."""

    wanted: Mapping[str, Manifest]
    in_place: Mapping[Span, Manifest]
    pins: Mapping[str, Pin]

    def timeline(self, number: int, now: float) -> Timeline:
        texts = {name: item.to_json() for name, item in self.wanted.items() if self.in_place.get(item.span) != item}
        return Timeline(number, now, {name: item.timeline for name, item in self.wanted.items()}, texts, settled=False)

    def pins_with_texts(self) -> dict[str, Pin]:
        """The pins that count on manifests that will be removed, with these in them."""
        changed = {}
        for name, pin in self.pins.items():
            needed = [item for item in self._leaving() if pin.manifests.get(item.span.name) == item.timeline]
            texts = {item.span.name: item.to_json() for item in needed}
            if texts.keys() - pin.texts.keys():
                changed[name] = Pin(pin.manifests, {**texts, **pin.texts})
        return changed

    def _leaving(self) -> list[Manifest]:
        """The manifests that will be removed."""
        stay = {(name, item.timeline) for name, item in self.wanted.items()}
        return [item for item in self.in_place.values() if (item.span.name, item.timeline) not in stay]


def planned(store: Storage, wanted: Names) -> Return:
    """What it takes to go back; raises Gone if a manifest or a file is not there any more."""
    in_place = read_each(store, spans(store.names(FOLDER)))
    pins = read_pins(store)
    texts = [text for pin in pins.values() for text in pin.texts.values()]
    elsewhere = [Manifest.from_json(text) for text in (*texts, *read_timeline(store).texts.values())]
    # In the place of one that was removed may be what a run has written that was overtaken.
    known = {(item.span.name, item.timeline): item for item in (*in_place.values(), *elsewhere)}
    _refuse_lost(name for name, timeline in wanted.items() if (name, timeline) not in known)
    found = {name: known[name, timeline] for name, timeline in wanted.items()}
    _refuse_missing(store, [file for item in found.values() for file in item.files])
    return Return(found, in_place, pins)


def _refuse_lost(names: Iterable[str]) -> None:
    for name in sorted(names):
        raise Gone(f"the manifest {FOLDER}/{name} is gone")


def _refuse_missing(store: Storage, wanted: Sequence[File]) -> None:
    there = {file.path: file.bytes for file in store.files("")} if wanted else {}
    for file in wanted:
        if there.get(file.path) != file.bytes:
            raise Gone(f"the file {file.path} is {'gone' if file.path not in there else 'not what it was'}")


def settle(store: Storage, timeline: Timeline) -> Timeline:
    """Puts what counts in its place and removes what does not; may be done again after a crash."""
    for text in timeline.texts.values():
        store.write(Manifest.from_json(text).span.path, text)
    in_place = read_each(store, spans(store.names(FOLDER)))
    void = [span for span, item in in_place.items() if not timeline.counts(item)]
    # What was merged goes before the manifest that hides it, and later batches before earlier ones.
    for level in sorted({span.level for span in void}):
        store.delete([span.path for span in sorted(void, reverse=True) if span.level == level])
    settled = Timeline(timeline.number, timeline.since, timeline.kept)
    write_timeline(store, settled)
    return settled
