"""What it takes to let a pipeline go on as another version: a plan that is shown, and whose stages are carried out."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from penstock.frontends.earlier import declared, facts_of
from penstock.graph.changes import Changed, Facts, Stage, plan
from penstock.graph.flow_lines import flow_lines
from penstock.graph.nodes import Graph
from penstock.reports.state_folder import StateFacts
from penstock.spec.fields import Change

_ORDER = list(Change)
_NO_STATE = "it has no state yet"


@dataclass(frozen=True)
class Changing:
    """A change from one version to another."""

    changes: tuple[Changed, ...]
    lost: tuple[str, ...] = ()
    flow: tuple[str, ...] = ()
    work: tuple[Stage, ...] = ()
    """What is done to the state while the pipeline does not run."""

    @property
    def cost(self) -> Change:
        return max((change.cost for change in self.changes), key=_ORDER.index, default=Change.NOTHING)

    @property
    def moves(self) -> bool:
        """Whether state has to be changed before the new version can go on."""
        return bool(self.work)

    @property
    def kind(self) -> Literal["rescale", "upgrade"]:
        """The operation that does it."""
        return kind_of(self.work)

    def stages(self, *, runs: bool, is_to_run: bool, restarts: bool = False) -> tuple[Stage, ...]:
        """What is done in order, of a pipeline that runs now or does not."""
        if not self.moves and self.cost is Change.NOTHING and not restarts:
            return ()
        return (*([Stage.STOP] if runs else []), *self.work, *([Stage.START] if is_to_run else []))


def kind_of(stages: Collection[Stage]) -> Literal["rescale", "upgrade"]:
    return "upgrade" if Stage.GRAFT in stages else "rescale"


def changing(before: Mapping[str, Any], after: Graph, state: StateFacts | None) -> Changing:
    """From the version that last ran on the state, or the one that is there if none has; raises as `plan` does."""
    ran = declared(state.version.document if state is not None else before, after.file)
    if ran is None:
        # It was written for an earlier Penstock, whose words are not understood any more.
        return Changing(())
    facts = Facts(frozenset()) if state is None else facts_of(state.version, state.partitions)
    found = plan(ran, after, facts)
    flow = tuple(flow_lines(ran, after, found.renamed))
    if state is None:
        return Changing(tuple(map(_without_state, found.changes)), (), flow)
    work = tuple(stage for stage in found.stages if stage not in (Stage.STOP, Stage.START))
    return Changing(found.changes, found.lost, flow, work)


def _without_state(change: Changed) -> Changed:
    if _ORDER.index(change.cost) <= _ORDER.index(Change.RESTART):
        return change
    return replace(change, cost=Change.RESTART, reason=_NO_STATE, node=None)
