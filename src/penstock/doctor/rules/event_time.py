"""Rules on event time: watermarks that exist and advance, clocks that cannot break them, and late rows."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.doctor.checkup import Checkup
from penstock.doctor.findings import Edit, Severity
from penstock.doctor.rule import Found, rule
from penstock.graph.nodes import Node
from penstock.spec.pipeline import Source
from penstock.spec.units import Duration

_DAY = Duration(86_400_000)


def _timed(checkup: Checkup) -> Iterator[Source]:
    """Sources with event time."""
    return (source for source in checkup.pipeline.sources if source.event_time is not None)


@rule(
    "watermark-missing",
    Severity.ERROR,
    message="step '{step}' works by event time, but source '{source}' has no `eventTime`",
    why="The watermark is made of the sources that have event time. Rows of the others do not hold it back, so they "
    "are late whenever the others are ahead; and where no source has event time, windows and state are never closed.",
    fix="Name the column of '{source}': `eventTime: {{column: ts, maxDelay: 1 minute}}`.",
)
def watermark_missing(checkup: Checkup) -> Iterator[Found]:
    for node, _ in checkup.by_event_time():
        for source in checkup.sources_of(node.name):
            if source.event_time is None:
                yield Found(("spec", "sources", source.name), {"step": node.name, "source": source.name}, key=True)


@rule(
    "watermark-delay-zero",
    Severity.WARNING,
    message="source '{source}' allows no disorder: `maxDelay` is 0",
    why="Every row that is older than the newest one is late, and networks and partitions disorder rows all the time.",
    fix="Write how far rows lag behind in a bad hour, for example `maxDelay: 1 minute`.",
    production_only=True,
)
def watermark_delay_zero(checkup: Checkup) -> Iterator[Found]:
    for source in _timed(checkup):
        if source.event_time is not None and source.event_time.max_delay.millis <= 0:
            path = ("spec", "sources", source.name, "eventTime", "maxDelay")
            yield Found(path, {"source": source.name, "maxDelay": str(source.event_time.max_delay)})


@rule(
    "watermark-delay-long",
    Severity.INFO,
    message="results of source '{source}' wait for {maxDelay}",
    why="The watermark trails by `maxDelay`: final results come that much later, and state is kept for it.",
    fix="Take a shorter `maxDelay`, and `late: {{policy: correct, allowed: {maxDelay}}}` for the rows that come later.",
)
def watermark_delay_long(checkup: Checkup) -> Iterator[Found]:
    for source in _timed(checkup):
        if source.event_time is not None and source.event_time.max_delay >= _DAY:
            path = ("spec", "sources", source.name, "eventTime", "maxDelay")
            yield Found(path, {"source": source.name, "maxDelay": str(source.event_time.max_delay)})


@rule(
    "idle-source-blocks",
    Severity.WARNING,
    message="when source '{source}' falls silent, step '{step}' gives no more results",
    why="The watermark of a step is that of its slowest source. A source without rows does not move, and holds back "
    "what the others bring.",
    fix="Write for example `idleAfter: 5 minutes` under `eventTime`.",
    production_only=True,
)
def idle_source_blocks(checkup: Checkup) -> Iterator[Found]:
    reported: set[str] = set()
    for node, _ in checkup.by_event_time():
        sources = [source for source in checkup.sources_of(node.name) if source.event_time is not None]
        for source in sources if len(sources) > 1 else []:
            assert source.event_time is not None
            if source.event_time.idle_after is None and source.name not in reported:
                reported.add(source.name)
                path = ("spec", "sources", source.name, "eventTime")
                yield Found(path, {"source": source.name, "step": node.name, "idleAfter": None}, key=True)


@rule(
    "clock-bound-off",
    Severity.WARNING,
    message="source '{source}' accepts event times far ahead of the clock: `maxAhead` is off",
    why="One row from a device whose clock is a year ahead moves the watermark there, and all other rows are late.",
    fix="Remove `maxAhead: null`: the default sets rows aside that are more than a day ahead.",
)
def clock_bound_off(checkup: Checkup) -> Iterator[Found]:
    for source in _timed(checkup):
        if source.event_time is not None and source.event_time.max_ahead is None:
            path = ("spec", "sources", source.name, "eventTime", "maxAhead")
            yield Found(path, {"source": source.name, "maxAhead": None}, key=True)


@rule(
    "late-policy-implicit",
    Severity.WARNING,
    message="nothing is said about rows that come too late ({steps})",
    why="Without `late` they are dropped and only counted. That affects results, so the file should say it.",
    fix="Write `late: drop`, which is what happens now, or `side` or `correct`.",
    production_only=True,
    fixable=True,
)
def late_policy_implicit(checkup: Checkup) -> Iterator[Found]:
    if checkup.pipeline.late.model_fields_set:
        return
    steps = [node.name for node, spec in checkup.by_event_time() if spec.late is None and _has_choice(checkup, node)]
    if steps:
        edit = Edit(("spec", "late"), "drop")
        yield Found(("spec", "late"), {"steps": ", ".join(steps), "late": None}, edit, key=True)


def _has_choice(checkup: Checkup, node: Node) -> bool:
    shape = checkup.sql_shape(node)
    return shape is None or shape.groups
