"""Rules on what is read: where it begins, what may be skipped, and how much comes at once."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.components import base
from penstock.components.formats.avro import Avro
from penstock.components.formats.parquet import Parquet
from penstock.components.shared.sql_server import ServerSink
from penstock.components.sources.delta import Delta
from penstock.components.sources.sql_poll import SqlPoll
from penstock.components.steps.join import Join
from penstock.doctor.checkup import Checkup, is_this_machine
from penstock.doctor.findings import Edit, Severity
from penstock.doctor.rule import Found, rule
from penstock.graph.nodes import Node
from penstock.spec.location import Path_
from penstock.spec.pipeline import Source
from penstock.spec.units import Duration

_WEEKEND = Duration(3 * 86_400_000)


@rule(
    "starting-offsets-implicit",
    Severity.WARNING,
    message="source '{source}' does not say where its first run starts",
    why="The default is `latest`: a pipeline that begins anew, also after its state was lost, skips all that the topic "
    "holds at that moment.",
    fix="Write `startingOffsets: latest`, which is what happens now, or `earliest` or a time.",
    fixable=True,
)
def starting_offsets_implicit(checkup: Checkup) -> Iterator[Found]:
    for node, kafka, path in checkup.kafka_sources():
        if "starting_offsets" not in kafka.model_fields_set:
            edit = Edit((*path, "startingOffsets"), "latest")
            yield Found(path, {"source": node.name, "startingOffsets": None}, edit, key=True)


@rule(
    "data-loss-skipped",
    Severity.WARNING,
    message="source '{source}' continues when messages are gone that it has not read",
    why="If the topic keeps messages for a shorter time than the pipeline was down, the gap is skipped without an "
    "error, and results lack rows.",
    fix="Write `onDataLoss: stop`, so that somebody looks at a gap before the pipeline continues.",
)
def data_loss_skipped(checkup: Checkup) -> Iterator[Found]:
    for node, kafka, path in checkup.kafka_sources():
        if kafka.on_data_loss == "skip":
            yield Found((*path, "onDataLoss"), {"source": node.name, "onDataLoss": "skip"})


@rule(
    "source-changes-skipped",
    Severity.WARNING,
    message="source '{source}' leaves out versions of its table that delete or change rows",
    why="What was deleted or corrected in the table stays as it was in everything computed from it.",
    fix="Write `onChanges: stop`, and bring such changes in by reprocessing.",
)
def source_changes_skipped(checkup: Checkup) -> Iterator[Found]:
    for node in checkup.graph.of_kind("source"):
        if isinstance(node.component, Delta) and node.component.on_changes == "skip":
            yield Found((*node.path, "delta", "onChanges"), {"source": node.name, "onChanges": "skip"})


@rule(
    "source-retention-short",
    Severity.WARNING,
    message="source '{source}' ignores files that are {ignoreOlderThan} older than the newest one",
    why="After an outage that takes longer, files that were not read yet are skipped without an error. "
    "What a source still gives must reach further back than the longest time a pipeline may be down.",
    fix="Write a longer time, at least a long weekend: `ignoreOlderThan: 7 days`.",
)
def source_retention_short(checkup: Checkup) -> Iterator[Found]:
    for node, files, path in checkup.file_sources():
        if files.ignore_older_than is not None and files.ignore_older_than < _WEEKEND:
            evidence = {"source": node.name, "ignoreOlderThan": str(files.ignore_older_than)}
            yield Found((*path, "ignoreOlderThan"), evidence)


@rule(
    "poll-overlap-zero",
    Severity.WARNING,
    message="source '{source}' does not read recent rows again: `overlap` is 0",
    why="A row becomes visible when its transaction commits, which may be after rows with a higher number or time "
    "were read. Such rows are never read.",
    fix="Write the length of the longest transaction that writes the table: `overlap: 1 minute`.",
)
def poll_overlap_zero(checkup: Checkup) -> Iterator[Found]:
    for node in checkup.graph.of_kind("source"):
        if isinstance(node.component, SqlPoll) and node.component.overlap.millis <= 0:
            evidence = {"source": node.name, "overlap": str(node.component.overlap)}
            yield Found((*node.path, "sql_poll", "overlap"), evidence)


@rule(
    "batch-unlimited",
    Severity.WARNING,
    message="one batch of source '{source}' may read everything that waits: `{key}` is null",
    why="After an outage the first batch is as large as the backlog, takes as long, and may not fit into memory. "
    "If it fails, all of it comes again.",
    fix="Write a limit: `{key}: {limit}`.",
    fixable=True,
)
def batch_unlimited(checkup: Checkup) -> Iterator[Found]:
    for node in checkup.graph.of_kind("source"):
        found = _batch_limit(node)
        if found is None:
            continue
        path, component, name = found
        field = type(component).model_fields[name]
        if getattr(component, name) is None and isinstance(field.default, int) and not _is_throttled(node):
            key = field.alias or name
            edit = Edit((*path, key), str(field.default))
            evidence = {"source": node.name, "key": key, "limit": field.default}
            yield Found((*path, key), evidence, edit, key=True)


def _batch_limit(node: Node) -> tuple[Path_, base.Source, str] | None:
    """Where the limit of a batch stands: in the settings of the source, or of the one it reads through."""
    if not isinstance(node.component, base.Source):
        return None
    inner = node.component.read_through
    if inner.batch_limit is None:
        return None
    path = (*node.path, node.component.name)
    return (path if inner is node.component else (*path, inner.name)), inner, inner.batch_limit


@rule(
    "throttle-missing",
    Severity.WARNING,
    message="source '{source}' feeds database '{sink}' as fast as it can",
    why="After an outage the first batches bring all that one batch may hold. A database that others use too is then "
    "overloaded, or refuses the batch again and again.",
    fix="Write `throttle: {{adaptive: true}}`, or `rowsPerSecond` if you know what the database takes.",
    production_only=True,
    fixable=True,
)
def throttle_missing(checkup: Checkup) -> Iterator[Found]:
    databases = [sink.name for sink in checkup.sinks() if isinstance(sink.component, ServerSink)]
    for node in checkup.graph.of_kind("source"):
        fed = [name for name in databases if node.name in checkup.graph.ancestors(name)]
        spec = node.spec
        if fed and isinstance(spec, Source) and _batch_limit(node) is not None and not _is_throttled(node):
            edit = None if spec.throttle.model_fields_set else Edit((*node.path, "throttle"), "{adaptive: true}")
            yield Found(node.path, {"source": node.name, "sink": fed[0], "throttle": None}, edit, key=True)


def _is_throttled(node: Node) -> bool:
    throttle = node.spec.throttle if isinstance(node.spec, Source) else None
    return throttle is not None and (throttle.rows_per_second is not None or throttle.adaptive)


@rule(
    "history-end-unset",
    Severity.WARNING,
    message="source '{source}' reads a history that has no end (`until`)",
    why="Rows that are both in the history and in the source count twice, and rows that are in neither are missing.",
    fix="Write the event time from which on the source has all rows: `until: 2024-01-01T00:00:00Z`.",
)
def history_end_unset(checkup: Checkup) -> Iterator[Found]:
    for source in checkup.pipeline.sources:
        if source.bootstrap is not None and source.bootstrap.until is None:
            path = ("spec", "sources", source.name, "bootstrap")
            yield Found(path, {"source": source.name, "until": None}, key=True)


@rule(
    "kafka-one-broker",
    Severity.INFO,
    message="source '{source}' knows one broker only: {bootstrap}",
    why="The address is where a run begins to look. While that one broker is down, no run can start.",
    fix="Name two or three brokers of the cluster, separated by commas.",
)
def kafka_one_broker(checkup: Checkup) -> Iterator[Found]:
    for node, kafka, path in checkup.kafka_sources():
        address = kafka.bootstrap
        if "," not in address and "${" not in address and not is_this_machine(address):
            yield Found((*path, "bootstrap"), {"source": node.name, "bootstrap": address})


@rule(
    "schema-not-pinned",
    Severity.WARNING,
    message="the columns of {what} are those of the files that are there when a run starts",
    why="A new kind of file changes the columns with the next restart, which can break steps, sinks or state.",
    fix="Write the `schema`.",
)
def schema_not_pinned(checkup: Checkup) -> Iterator[Found]:
    for source in checkup.pipeline.sources:
        form, path = source.format, ("spec", "sources", source.name, "format")
        parquet = isinstance(form, Parquet) and form.row_schema is None
        avro = isinstance(form, Avro) and form.avro_schema is None and form.schema_file is None
        if parquet or avro:
            yield Found(path, {"what": f"source '{source.name}'", "schema": None}, key=True)
    for node, _ in checkup.steps():
        if isinstance(node.component, Join) and node.component.table and node.component.table.table_schema is None:
            evidence = {"what": f"the table of step '{node.name}'", "schema": None}
            yield Found((*node.path, "join", "table"), evidence, key=True)
