"""Whether a run can go on with the state that is there: the pipeline may be another one than when it last ran."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.components.shared.aggregates import COLUMN
from penstock.engine.analyse import Analysed
from penstock.engine.checkpoint import last_number
from penstock.engine.inspection.described import described
from penstock.engine.statedir import StateDir
from penstock.errors import PenstockError
from penstock.frontends.earlier import declared, facts_of
from penstock.graph.changes import Plan, plan
from penstock.graph.flow import Flow, flow, moves
from penstock.graph.nodes import Graph
from penstock.reports.codec import plain, read
from penstock.reports.version import Version
from penstock.spec.dump import as_document


@dataclass(frozen=True)
class Verdict:
    """What the analysis of the new version adds to a plan: how rows flow, and which state does not fit."""

    plan: Plan
    before: Flow
    after: Flow
    now: Version
    stateful: frozenset[str]
    """The steps that kept state before."""
    lost: Mapping[str, str]
    """Sources and steps whose state is given up, by the names that they had, and why."""

    @property
    def moves(self) -> bool:
        """Whether something has to be done before the new version can go on."""
        return bool(self.lost or self.plan.renamed) or moves(self.before, self.after, self.plan.kept)


def version_of(graph: Graph, analysed: Analysed, before: Version | None = None) -> Version:
    """What a state is to know of this pipeline."""
    facts = analysed.analysis.facts
    stateful = tuple(name for name in graph.nodes if name in facts and facts[name].stateful)
    layouts = {name: built[0].carried.kernel.layout() for name, built in analysed.builder.builds.items()}
    kernels = {name: found for name, built in analysed.builder.builds.items() if (found := described(built[0]))}
    sinks = {} if before is None else {name: old for name, old in before.sinks.items() if name in graph.nodes}
    version = Version(as_document(graph.file.pipeline), stateful, layouts, kernels, sinks)
    return read(Version, json.dumps(plain(version)))


def judge(version: Version, graph: Graph, analysed: Analysed) -> Verdict | None:
    """What has changed since a version; None if that cannot be read any more."""
    before = declared(version.document, graph.file)
    if before is None:
        return None
    now = version_of(graph, analysed, version)
    found = plan(before, graph, facts_of(version))
    once = analysed.builder.reads_once
    return Verdict(
        found,
        flow(before, version.stateful, once=once),
        flow(graph, now.stateful, once=once),
        now,
        frozenset(version.stateful),
        _lost(found, version, analysed),
    )


def _lost(found: Plan, version: Version, analysed: Analysed) -> dict[str, str]:
    """What is given up. Of a step with a kernel, the kernel knows it better than its configuration."""
    lost = {change.node: change.reason for change in found.changes if change.node in found.lost}
    new_names = {old: new for new, old in found.kept.items()}
    for old, layout in version.layouts.items():
        built = analysed.builder.builds.get(new_names.get(old, ""))
        if built:
            reason = _unfit(built[0].carried.kernel, layout)
            lost.pop(old, None)
            if reason is not None:
                lost[old] = reason
    return {str(name): reason for name, reason in lost.items()}


def _unfit(kernel: Any, layout: Mapping[str, Any]) -> str | None:
    try:
        reason: str | None = kernel.unfit(layout)
    except (KeyError, TypeError, ValueError):
        return "it was kept by another version of Penstock"
    return reason


def go_on(state: StateDir, graph: Graph, analysed: Analysed) -> None:
    """Raises if the state must be changed before the pipeline can go on with it; else notes the pipeline in it."""
    version = state.identity.version
    now = version_of(graph, analysed, version)
    if last_number(state.checkpoint / "offsets") >= 0:
        if version is None:
            _refuse_older(state, now)
        else:
            found = judge(version, graph, analysed)
            if found is not None and found.moves:
                raise needs_upgrade(graph, found)
    state.note_version(now)


def _refuse_older(state: StateDir, now: Version) -> None:
    """State of which no version is known has its columns under numbers, which nobody can tell apart any more."""
    if any(COLUMN in json.dumps(layout) for layout in now.layouts.values()):
        reason = "it was kept by an earlier Penstock, under other names"
        raise PenstockError.of("STATE_UNREADABLE", path=state.checkpoint, reason=reason)


def needs_upgrade(graph: Graph, found: Verdict) -> PenstockError:
    reasons = [f"what '{name}' remembers would be lost ({reason})" for name, reason in found.lost.items()]
    reasons += [f"'{old}' is called '{new}' now" for new, old in found.plan.renamed.items()]
    lose = "".join(f" --lose {name}" for name in found.lost)
    return PenstockError.of(
        "CHANGE_NEEDS_UPGRADE",
        name=graph.file.pipeline.name,
        reason="; ".join(reasons) or "state has to be put where this version looks for it",
        command=f"penstock upgrade {graph.file.path}{lose}",
    )
