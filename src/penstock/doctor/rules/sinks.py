"""Rules on what is stored: that it is stored once, in a place of its own, and can be taken back."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from penstock.components import base
from penstock.components.shared.sql_sink import SqlSink
from penstock.components.sinks.files import Files
from penstock.components.sinks.sqlite import Sqlite
from penstock.components.steps.changelog_join import ChangelogJoin
from penstock.components.steps.latest import Latest
from penstock.doctor.checkup import Checkup, PlacedSink
from penstock.doctor.findings import Severity
from penstock.doctor.rule import Found, rule
from penstock.spec.pipeline import Source, Step


@rule(
    "sink-guarantee-weak",
    Severity.WARNING,
    message="sink '{sink}' does not promise exactly once: {guarantee}",
    why="After a crash rows may be there twice, or not at all, whatever the rest of the pipeline promises.",
    fix="Store what counts in a sink that promises exactly once; its page in the reference says so.",
)
def sink_guarantee_weak(checkup: Checkup) -> Iterator[Found]:
    for sink in checkup.sinks():
        guarantee = type(sink.component).guarantee
        if not guarantee.lower().startswith("exactly once"):
            yield Found(sink.path, {"sink": sink.name, "guarantee": guarantee}, key=True)


@rule(
    "sink-needs-key",
    Severity.ERROR,
    message="step '{step}' gives corrected rows, and sink '{sink}' would keep the earlier ones too",
    why="A step that gives a row again when it changes needs a sink that replaces rows; it is not started otherwise.",
    fix="Give the sink a `key`, or let the step give final rows only.",
)
def sink_needs_key(checkup: Checkup) -> Iterator[Found]:
    changing = [node.name for node, spec in checkup.stateful() if _changes(checkup, node.name, spec)]
    for sink in checkup.sinks():
        step = next((name for name in changing if name in checkup.graph.ancestors(sink.name)), None)
        if step is not None and not sink.component.accepts_updates:
            yield Found(sink.path, {"sink": sink.name, "step": step, "key": None}, key=True)


def _changes(checkup: Checkup, name: str, spec: Step) -> bool:
    node = checkup.graph.nodes[name]
    component = node.component
    if isinstance(component, Latest | ChangelogJoin):
        return True
    shape = checkup.sql_shape(node)
    if shape is not None and not (shape.groups and shape.by_time):
        return shape.groups
    offered = component.late_policies if isinstance(component, base.Step) else ()
    corrects = shape is not None or "correct" in offered
    corrected = corrects and checkup.pipeline.late_policy(spec).policy == "correct"
    return corrected or getattr(component, "emit", None) == "update"


@rule(
    "sink-append-not-rewindable",
    Severity.WARNING,
    message="sink '{sink}' appends rows, and nothing tells which batch they came with",
    why="After a return to a savepoint, and when a range is computed again, later rows cannot be taken back: "
    "the pipeline is refused, or rows are there twice.",
    fix="Give it a `key`, or write `batchColumn: batch`, which the sink fills by itself.",
)
def sink_append_not_rewindable(checkup: Checkup) -> Iterator[Found]:
    for sink in checkup.sinks():
        component = sink.component
        if isinstance(component, SqlSink) and not component.key and component.batch_column is None:
            yield Found(sink.path, {"sink": sink.name, "key": None, "batchColumn": None}, key=True)


@rule(
    "sinks-share-place",
    Severity.ERROR,
    message="'{sink}' writes to the folder of '{other}' ({path})",
    why="A folder has one list of the batches that are stored. A sink finds those of the other in it, so its own rows "
    "are refused or never read.",
    fix="Give each a folder of its own, or let one sink read a `union` of both.",
)
def sinks_share_place(checkup: Checkup) -> Iterator[Found]:
    first: dict[str, PlacedSink] = {}
    dead = checkup.dead_letter_sink()
    for sink in (*checkup.sinks(), *([] if dead is None else [dead])):
        folder = _folder(sink.component) if isinstance(sink.component, Files) else None
        if folder is None:
            continue
        if folder in first:
            evidence = {"sink": sink.name, "other": first[folder].name, "path": folder}
            yield Found((*sink.path, "path"), evidence)
        first.setdefault(folder, sink)


@rule(
    "source-reads-sink",
    Severity.ERROR,
    message="source '{source}' reads what '{sink}' writes ({path})",
    why="Each batch is read again as input of the next one, so the pipeline never comes to an end.",
    fix="Let the source read a folder into which this pipeline does not write.",
)
def source_reads_sink(checkup: Checkup) -> Iterator[Found]:
    written = [(sink, _folder(sink.component)) for sink in checkup.all_sinks()]
    for node in checkup.graph.of_kind("source"):
        read = _folder(node.component) if isinstance(node.spec, Source) else None
        deep = bool(getattr(node.component, "recursive", False))
        for sink, folder in written:
            inside = folder is not None and read is not None and deep and folder.startswith(f"{read}/")
            if read is not None and (folder == read or inside):
                evidence = {"source": node.name, "sink": sink.name, "path": folder}
                yield Found((*node.path, node.component.name, "path"), evidence)
                break


def _folder(component: object) -> str | None:
    """The folder that a component reads or writes, in one form; None for other components."""
    path = getattr(component, "path", None)
    if not isinstance(path, str) or isinstance(component, SqlSink):
        return None
    scheme, colon, rest = path.partition("://")
    return f"{scheme}{colon}{posixpath.normpath(rest)}" if colon else posixpath.normpath(path)


@rule(
    "compaction-off",
    Severity.WARNING,
    message="sink '{sink}' never merges its files: `compact` is null",
    why="Every batch leaves files of its own. At one a second that is more than 80,000 a day, and readers get slower "
    "with each.",
    fix="Remove `compact: null`: by default the files of 100 batches are merged.",
)
def compaction_off(checkup: Checkup) -> Iterator[Found]:
    for sink in checkup.sinks():
        if isinstance(sink.component, Files) and sink.component.compact is None:
            yield Found((*sink.path, "compact"), {"sink": sink.name, "compact": None}, key=True)


@rule(
    "sink-on-local-disk",
    Severity.INFO,
    message="sink '{sink}' stores on the disk of one machine ({path})",
    why="What it holds is lost with that disk, and on a cluster executors and driver do not see the same folder.",
    fix="Store in an object store or a database, or make sure that the folder is shared and backed up.",
    production_only=True,
)
def sink_on_local_disk(checkup: Checkup) -> Iterator[Found]:
    for sink in checkup.sinks():
        component = sink.component
        path = component.path if isinstance(component, Sqlite) else _folder(component)
        if path is not None and "://" not in path:
            yield Found((*sink.path, "path"), {"sink": sink.name, "path": path})
