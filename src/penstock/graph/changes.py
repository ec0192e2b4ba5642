"""What it costs to change a pipeline that has state: which state goes on, which begins anew, and what has to be done.

A plan is made from two versions of a pipeline and from what is known of the state, without Spark. Sources, steps and
sinks are the same ones if they have the same name, or if `renamedFrom` says so. The stages of a plan are what is shown
and what is carried out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from penstock.components.base import KernelStep
from penstock.components.base import Step as StepComponent
from penstock.errors import PenstockError, Problem, did_you_mean
from penstock.graph.flow import flow, moves
from penstock.graph.nodes import Graph
from penstock.spec.diff import Difference, differences
from penstock.spec.fields import Change
from penstock.spec.pipeline import Kind, Pipeline, Sink, Source, Step

_Node = Source | Step | Sink
_MAY_KEEP_STATE = re.compile(r"\b(group\s+by|distinct|join)\b", re.IGNORECASE)
_ORDER = list(Change)
_BEGINS = "its state begins empty, with the rows that come from now on"


class Stage(StrEnum):
    """Something that is done to carry out a plan."""

    STOP = "stop"
    SAVEPOINT = "savepoint"
    RESCALE = "rescale"
    GRAFT = "graft"
    START = "start"


@dataclass(frozen=True)
class Facts:
    """What is known of the state a pipeline has."""

    stateful: frozenset[str] | None = None
    """The steps that have state; None if that is not known, and is told by what they are."""
    partitions: int | None = None
    carried: frozenset[str] = frozenset()
    """Those of them that have a kernel, which can say itself what it can go on with."""


@dataclass(frozen=True)
class Changed:
    """One change, what it costs and why."""

    path: str
    before: Any
    after: Any
    cost: Change
    reason: str
    node: str | None = None
    """The source or step whose state begins anew or is given up."""


@dataclass(frozen=True)
class Plan:
    changes: tuple[Changed, ...]
    kept: Mapping[str, str] = field(default_factory=dict)
    """Sources, steps and sinks that go on, with what they were called before."""
    grafts: bool = False
    """Whether state has to be put where the new pipeline looks for it."""

    @property
    def cost(self) -> Change:
        """What all changes together cost: as much as the dearest."""
        return max((change.cost for change in self.changes), key=_ORDER.index, default=Change.NOTHING)

    @property
    def lost(self) -> tuple[str, ...]:
        """The sources and steps whose state is given up, by the names that they had."""
        found = [change.node for change in self.changes if change.cost is Change.LOSES_STATE and change.node]
        return tuple(dict.fromkeys(found))

    @property
    def begun(self) -> tuple[str, ...]:
        """The steps of the new version whose state begins anew."""
        dear = (Change.BOOTSTRAP, Change.LOSES_STATE)
        found = [(change.path.split("."), change.after) for change in self.changes if change.cost in dear]
        there = [path[1] for path, after in found if path[0] == "steps" and (len(path) > 2 or after is not None)]
        return tuple(dict.fromkeys(there))

    @property
    def renamed(self) -> dict[str, str]:
        """New names, with those of before."""
        return {new: old for new, old in self.kept.items() if new != old}

    @property
    def stages(self) -> tuple[Stage, ...]:
        """What carrying it out consists of, in order; empty if there is nothing to do."""
        rescales = any(change.cost is Change.RESCALE for change in self.changes)
        if self.grafts or rescales:
            middle = [Stage.RESCALE] * rescales + [Stage.GRAFT] * self.grafts
            return (Stage.STOP, Stage.SAVEPOINT, *middle, Stage.START)
        return () if self.cost is Change.NOTHING else (Stage.STOP, Stage.START)


def plan(before: Graph, after: Graph, facts: Facts | None = None) -> Plan:
    """What changes from one version to the other; raises if something cannot have had the name it says it had."""
    facts = facts or Facts()
    old, new = before.file.pipeline, after.file.pipeline
    kept = same_ones(old, new)
    _refuse_unknown_names(old, after, kept)
    changes = [
        *_removed(old, kept, facts),
        *_added(new, kept),
        *_renamed(new, kept),
        *_different(old, new, kept, facts),
        *_rescaled(new, facts),
    ]
    return Plan(tuple(changes), kept, _grafts(before, after, kept, changes, facts))


def same_ones(before: Pipeline, after: Pipeline) -> dict[str, str]:
    """The sources, steps and sinks of the new version that were there before, with what they were called."""
    old = {node.name: node for node in before.nodes()}
    found: dict[str, str] = {}
    for node in after.nodes():
        name = node.name if node.name in old else node.renamed_from
        if name in old and type(old[name]) is type(node):
            found[node.name] = name
    return found


def _refuse_unknown_names(before: Pipeline, after: Graph, kept: Mapping[str, str]) -> None:
    """Raises for a `renamedFrom` that names nothing of its kind."""
    problems = []
    for node in after.file.pipeline.nodes():
        if node.renamed_from is not None and node.name not in kept:
            known = [other.name for other in before.nodes() if type(other) is type(node)]
            reason = f"there was no such {_kind(node)}. {did_you_mean(node.renamed_from, known)}".strip()
            params = {"node": node.name, "name": node.renamed_from, "reason": reason}
            problems.append(Problem("RENAMED_FROM", params, after.location(node.name, "renamedFrom")))
    if problems:
        raise PenstockError(problems)


def keeps_state(step: Step) -> bool:
    """Whether a step keeps state, as far as its configuration tells; a query may have to be analysed to know."""
    query = getattr(step.component, "query", None)
    return isinstance(step.component, KernelStep) or (
        isinstance(query, str) and _MAY_KEEP_STATE.search(query) is not None
    )


def _has_state(step: Step, facts: Facts) -> bool:
    return keeps_state(step) if facts.stateful is None else step.name in facts.stateful


def _path(node: _Node, name: str | None = None) -> str:
    return f"{_kind(node)}s.{name or node.name}"


def _kind(node: _Node) -> Kind:
    return "source" if isinstance(node, Source) else "step" if isinstance(node, Step) else "sink"


def _removed(before: Pipeline, kept: Mapping[str, str], facts: Facts) -> Iterator[Changed]:
    going_on = set(kept.values())
    for node in (node for node in before.nodes() if node.name not in going_on):
        path, shown = _path(node), _component(node)
        if isinstance(node, Source):
            reason = "how far it was read is forgotten"
            yield Changed(path, shown, None, Change.LOSES_STATE, reason, node.name)
        elif isinstance(node, Step) and _has_state(node, facts):
            yield Changed(path, shown, None, Change.LOSES_STATE, "what it remembers is given up", node.name)
        else:
            reason = "what it has stored stays" if isinstance(node, Sink) else "it keeps no state"
            yield Changed(path, shown, None, Change.RESTART, reason)


def _added(after: Pipeline, kept: Mapping[str, str]) -> Iterator[Changed]:
    for node in (node for node in after.nodes() if node.name not in kept):
        path, shown = _path(node), _component(node)
        if isinstance(node, Source):
            yield Changed(path, None, shown, Change.RESTART, "it is read from its beginning")
        elif isinstance(node, Step) and keeps_state(node):
            yield Changed(path, None, shown, Change.BOOTSTRAP, _BEGINS, node.name)
        else:
            reason = "it gets the rows that come from now on" if isinstance(node, Sink) else "it keeps no state"
            yield Changed(path, None, shown, Change.RESTART, reason)


def _renamed(after: Pipeline, kept: Mapping[str, str]) -> Iterator[Changed]:
    for node in after.nodes():
        old = kept.get(node.name, node.name)
        if old != node.name:
            reason = "it goes on under the new name"
            yield Changed(_path(node, old), old, node.name, Change.RESTART, reason)


def _component(node: _Node) -> str:
    return str(getattr(type(node.component), "name", type(node.component).__name__))


# --- what stays, and differs ------------------------------------------------------------------------------------


def _different(before: Pipeline, after: Pipeline, kept: Mapping[str, str], facts: Facts) -> Iterator[Changed]:
    """The fields that differ, of what is there in both."""
    old, new = _side_by_side(before, after, kept)
    for found in differences(old, new):
        if found.path == "state.partitions":
            continue
        yield from _judged(found, old, new, kept, facts)


def _side_by_side(before: Pipeline, after: Pipeline, kept: Mapping[str, str]) -> tuple[Pipeline, Pipeline]:
    """Both versions with only what is in both, under the new names."""
    names = {old: new for new, old in kept.items()}
    old = {node.name: _under(node, names) for node in before.nodes() if node.name in names}
    new = {node.name: node.model_copy(update={"renamed_from": None}) for node in after.nodes() if node.name in kept}

    def part(nodes: Sequence[_Node], among: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(among[node.name] for node in nodes if node.name in among)

    def only(pipeline: Pipeline, among: Mapping[str, Any]) -> Pipeline:
        sections: dict[str, Sequence[_Node]] = {
            "sources": pipeline.sources,
            "steps": pipeline.steps,
            "sinks": pipeline.sinks,
        }
        return pipeline.model_copy(update={name: part(nodes, among) for name, nodes in sections.items()})

    return only(before, old), only(after, new)


def _under(node: _Node, names: Mapping[str, str]) -> _Node:
    """A node of before as it would be written now: with its own new name, and those of what it reads."""
    update: dict[str, Any] = {"name": names[node.name], "renamed_from": None}
    if isinstance(node, Step):
        update["inputs"] = tuple(_new_name(name, names) for name in node.inputs)
        read = {name: names[name] for name in node.inputs if names.get(name, name) != name}
        update["component"] = _with_new_names(node.component, read)
    elif isinstance(node, Sink):
        update["input"] = _new_name(node.input, names)
    return node.model_copy(update=update)


def _with_new_names(component: Any, names: Mapping[str, str]) -> Any:
    """A query names what it reads."""
    query = getattr(component, "query", None)
    if not isinstance(query, str):
        return component
    changed = re.sub(r"\w+", lambda word: names.get(word[0], word[0]), query)
    return component.model_copy(update={"query": changed}) if changed != query else component


def _new_name(name: str, names: Mapping[str, str]) -> str:
    node, dot, output = name.partition(".")
    return f"{names.get(node, node)}{dot}{output}"


def _judged(
    found: Difference, before: Pipeline, after: Pipeline, kept: Mapping[str, str], facts: Facts
) -> Iterator[Changed]:
    section, _, rest = found.path.partition(".")
    name = rest.split(".")[0]
    if section not in ("sources", "steps", "sinks"):
        reason = "it is another pipeline, with state of its own" if found.path == "name" else _REASONS[found.cost]
        yield Changed(found.path, found.before, found.after, found.cost, reason)
        return
    old, new = (next(node for node in pipeline.nodes() if node.name == name) for pipeline in (before, after))
    cost, reason, node = found.cost, _REASONS[found.cost], None
    if isinstance(old, Step) and isinstance(new, Step):
        cost, reason = _of_step(found, old, new, stateful=_is_stateful(old, kept, facts))
        if cost is Change.LOSES_STATE and kept[name] in facts.carried and hasattr(new.component, "query"):
            cost, reason = Change.RESTART, "its state goes on if it fits; otherwise the run says why it does not"
    elif isinstance(old, Sink) and cost is Change.LOSES_STATE:
        cost, reason = Change.RESTART, "it goes on in the new place; what it stored before stays in the old one"
    elif isinstance(old, Source) and cost is Change.LOSES_STATE and found.path.endswith("eventTime.column"):
        cost, reason = Change.BOOTSTRAP, "time goes on from where it was, by another column"
    elif isinstance(old, Source) and cost is Change.LOSES_STATE:
        reason = "how far it was read is forgotten"
    if cost is Change.LOSES_STATE:
        node = kept[name]
    yield Changed(found.path, found.before, found.after, cost, reason, node)


_REASONS = {
    Change.NOTHING: "nothing that it does depends on it",
    Change.RESTART: "it holds from the next start on",
    Change.RESCALE: "state is divided anew",
    Change.BOOTSTRAP: "it holds for rows that are read from now on; results from before stay",
    Change.LOSES_STATE: "what it remembers has another meaning",
}


def _is_stateful(step: Step, kept: Mapping[str, str], facts: Facts) -> bool:
    return keeps_state(step) if facts.stateful is None else kept[step.name] in facts.stateful


def _of_step(found: Difference, before: Step, after: Step, *, stateful: bool) -> tuple[Change, str]:
    if not stateful and keeps_state(after):
        return Change.BOOTSTRAP, _BEGINS
    if not stateful:
        cost = min(found.cost, Change.RESTART, key=_ORDER.index)
        return cost, "it keeps no state"
    old, new = before.component, after.component
    if isinstance(old, StepComponent) and isinstance(new, StepComponent) and type(old) is type(new):
        told = new.state_after(old)
        if told is not None and found.path.startswith(f"steps.{after.name}.{new.name}."):
            return told
    if found.cost is Change.BOOTSTRAP:
        return Change.LOSES_STATE, _REASONS[Change.LOSES_STATE]
    return found.cost, _REASONS[found.cost]


def _rescaled(after: Pipeline, facts: Facts) -> Iterator[Changed]:
    wanted = after.state.partitions
    if wanted is not None and facts.partitions is not None and wanted != facts.partitions:
        yield Changed("state.partitions", facts.partitions, wanted, Change.RESCALE, _REASONS[Change.RESCALE])


def stateful_steps(before: Pipeline, after: Pipeline, kept: Mapping[str, str], facts: Facts) -> set[str]:
    """The steps of the new version that keep state: as before where they are as before, else by what they are."""
    old = {step.name: step for step in before.steps}
    found = set()
    for step in after.steps:
        earlier = old.get(kept.get(step.name, ""))
        same = earlier is not None and earlier.component == step.component
        if _has_state(earlier, facts) if same and earlier is not None else keeps_state(step):
            found.add(step.name)
    return found


def _grafts(before: Graph, after: Graph, kept: Mapping[str, str], changes: Sequence[Changed], facts: Facts) -> bool:
    """Whether state has to be moved: not if only settings differ, nor if what is new or gone has no part in it."""
    if any(change.cost is Change.LOSES_STATE and change.node for change in changes) or any(
        new != old for new, old in kept.items()
    ):
        return True
    old, new = before.file.pipeline, after.file.pipeline
    held = {step.name for step in old.steps if _has_state(step, facts)}
    once = new.state.store == "chunks"
    now = stateful_steps(old, new, kept, facts)
    return moves(flow(before, held, once=once), flow(after, now, once=once), kept)
