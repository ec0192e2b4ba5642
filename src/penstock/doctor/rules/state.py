"""Rules on what steps remember: that it ends, that it fits, and that many cores can work on it."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.components.steps.changelog_join import ChangelogJoin
from penstock.components.steps.dedupe import Dedupe
from penstock.components.steps.geo_window import GeoWindow
from penstock.components.steps.latest import Latest
from penstock.components.steps.rolling import Rolling
from penstock.components.steps.window import Window
from penstock.doctor.checkup import Checkup
from penstock.doctor.findings import Severity
from penstock.doctor.rule import Found, rule
from penstock.graph.nodes import Node
from penstock.spec.location import Path_
from penstock.spec.pipeline import Step
from penstock.spec.units import Duration

_MOST_STORES = 1000
_MOST_WINDOWS = 100
_LONG = Duration(31 * 86_400_000)


@rule(
    "state-unbounded",
    Severity.WARNING,
    message="the state of step '{step}' grows for ever: {reason}",
    why="State that only grows makes checkpoints and restarts slower every day, until memory or disk is full.",
    fix="{advice}",
)
def state_unbounded(checkup: Checkup) -> Iterator[Found]:
    for node, _ in checkup.steps():
        for reason, advice in _unbounded(checkup, node):
            path = (*node.path, node.component.name)
            yield Found(path, {"step": node.name, "reason": reason, "advice": advice}, key=True)


def _unbounded(checkup: Checkup, node: Node) -> Iterator[tuple[str, str]]:
    component = node.component
    if isinstance(component, Latest) and component.forget is None:
        yield "a key is never forgotten", "Write for example `forget: 90 days`."
    if isinstance(component, ChangelogJoin) and component.deleted is not None and component.remember is None:
        yield "deletions are remembered for ever", "Write for example `remember: 7 days`."
    shape = checkup.sql_shape(node)
    if shape is not None and shape.groups and not shape.by_time:
        advice = "Group by `window(ts, '1 hour')` with the event time, or use a step with a bound: `dedupe`, `rolling`."
        yield "its groups have no window of time", advice
    if shape is not None and shape.joined and not shape.join_bounded:
        advice = "Say how far apart the rows may be, `b.ts BETWEEN a.ts AND a.ts + INTERVAL 1 HOUR`, or use `join`."
        yield f"{' and '.join(shape.joined)} are joined without a limit in time", advice


@rule(
    "state-partitions-unset",
    Severity.WARNING,
    message="steps keep state ({steps}), and `state.partitions` is not set",
    why="The first run fixes it: to the cores of the machine it happens to be on, or to 2 on a cluster. "
    "It bounds how many cores work on state later; to change it the pipeline must be stopped and rescaled.",
    fix="Write `state: {{partitions: 16}}`, or two to four times the cores it may need at its largest.",
    production_only=True,
)
def state_partitions_unset(checkup: Checkup) -> Iterator[Found]:
    steps = [node.name for node, _ in checkup.stateful()]
    if steps and checkup.pipeline.state.partitions is None:
        yield Found(("spec", "state"), {"steps": ", ".join(steps), "partitions": None}, key=True)


@rule(
    "state-partitions-one",
    Severity.WARNING,
    message="all state lies in one partition ({steps})",
    why="A partition is worked on by one core, so this pipeline cannot be made faster by more cores.",
    fix="Write two to four times the cores it may need at its largest; `penstock rescale` divides state that is there.",
)
def state_partitions_one(checkup: Checkup) -> Iterator[Found]:
    steps = [node.name for node, _ in checkup.stateful()]
    if steps and checkup.pipeline.state.partitions == 1:
        yield Found(("spec", "state", "partitions"), {"steps": ", ".join(steps), "partitions": 1})


@rule(
    "state-stores-many",
    Severity.WARNING,
    message="{partitions} partitions of {steps} stateful steps are {stores} state stores",
    why="Each is a RocksDB of its own, with its own memory and files that every batch opens and commits. "
    "Spark does not bound their memory by itself.",
    fix="Take fewer partitions, and bound the memory on the target: "
    "`spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage: true`.",
)
def state_stores_many(checkup: Checkup) -> Iterator[Found]:
    steps = len(list(checkup.stateful()))
    partitions = checkup.pipeline.state.partitions or 0
    if steps * partitions > _MOST_STORES:
        evidence = {"partitions": partitions, "steps": steps, "stores": steps * partitions}
        yield Found(("spec", "state", "partitions"), evidence)


@rule(
    "state-kept-long",
    Severity.INFO,
    message="step '{step}' keeps rows or windows for {kept}",
    why="State holds everything of that time, and a savepoint and a restart carry all of it.",
    fix="Compute how large that is with the rate and the keys you expect, or take a shorter time.",
)
def state_kept_long(checkup: Checkup) -> Iterator[Found]:
    for node, _ in checkup.steps():
        for path, kept in _kept(node):
            if kept is not None and kept > _LONG:
                yield Found(path, {"step": node.name, "kept": str(kept)})


def _kept(node: Node) -> Iterator[tuple[Path_, Duration | None]]:
    component, path = node.component, (*node.path, node.component.name)
    if isinstance(component, Rolling):
        yield (*path, "over"), component.over
    if isinstance(component, Dedupe):
        yield (*path, "within"), component.within
    if isinstance(component, Window | GeoWindow):
        yield (*path, "size"), component.size
    if isinstance(component, Window):
        yield (*path, "gap"), component.gap
    late = node.spec.late if isinstance(node.spec, Step) else None
    if late is not None and late.policy != "drop":
        yield (*node.path, "late", "allowed"), late.allowed


@rule(
    "window-overlap-many",
    Severity.WARNING,
    message="each row of step '{step}' counts in {windows} windows (size {size}, slide {slide})",
    why="Every key gives a result each `slide`, so sinks get that many rows for one row that is read.",
    fix="Take a longer `slide`, or `rolling`, which gives one row for each row.",
)
def window_overlap_many(checkup: Checkup) -> Iterator[Found]:
    for node, _ in checkup.steps():
        component = node.component
        if not isinstance(component, Window | GeoWindow) or component.size is None or component.slide is None:
            continue
        windows = component.size.millis // max(component.slide.millis, 1)
        if windows > _MOST_WINDOWS:
            evidence = {"step": node.name, "size": str(component.size), "slide": str(component.slide)}
            yield Found((*node.path, component.name, "slide"), {**evidence, "windows": windows})
