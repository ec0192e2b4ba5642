"""What pictures of pipelines are drawn from: their graph, and history in as many points as a chart has room for."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import Field

from penstock.control.api.answers import Answer
from penstock.control.api.asked import Moment, Names, moment
from penstock.control.api.guard import Caller, GuardedRouter, ServicesOf, visible
from penstock.control.auth.roles import Role
from penstock.control.store import pipelines, recent
from penstock.control.store.trend import trend
from penstock.control.submitted import from_document
from penstock.errors import PenstockError
from penstock.graph.build import build_partly
from penstock.graph.nodes import Node
from penstock.spec.location import PipelineFile, Places

router = GuardedRouter(prefix="/api/v1", tags=["charts"])
_HOUR, _DAY = dt.timedelta(hours=1), dt.timedelta(days=1)
Points = Annotated[int, Query(ge=2, le=500, description="How many at most.")]


class NodeAnswer(Answer):
    name: str
    kind: Literal["source", "step", "sink"]
    component: str
    inputs: list[str]
    part_of: str | None = Field(description="The step that it is an output of.")
    config: dict[str, Any] = Field(description="As the file has it; secrets are references.")


class GraphAnswer(Answer):
    nodes: list[NodeAnswer] = Field(description="Each after all that it reads.")


class PointAnswer(Answer):
    """All batches of some seconds; what is not a sum is that of the last of them."""

    at: dt.datetime
    seconds: int
    batches: int
    rows_in: int
    rows_out: int
    late: int
    dead: int
    filtered: int
    duration_ms: int
    longest_ms: int
    unbalanced: int = Field(description="Batches whose rows do not add up.")
    watermark: int | None
    state_rows: int | None
    state_bytes: int | None
    checkpoint_bytes: int | None
    phases_ms: dict[str, int]
    sink_ms: dict[str, int]
    span: int = Field(description="How many batches `phasesMs` and `sinkMs` are sums of.")


class TrendAnswer(Answer):
    pipeline: str
    since: dt.datetime
    until: dt.datetime
    points: list[PointAnswer]


class BriefPoint(Answer):
    at: dt.datetime
    seconds: int
    rows_in: int
    watermark: int | None


class BriefAnswer(Answer):
    pipeline: str
    restarts: int = Field(description="In the last day, after runs that had failed.")
    points: list[BriefPoint]


class BriefTrends(Answer):
    since: dt.datetime
    until: dt.datetime
    items: list[BriefAnswer]


@router.guarded(Role.VIEWER, "GET", "/pipelines/{name}/graph")
def get_graph(services: ServicesOf, grant: Caller, name: str) -> GraphAnswer:
    """Its sources, steps and sinks, and what each reads."""
    with services.store.reading() as connection:
        found = visible(connection, grant, name)
        document = pipelines.version(connection, name, found.version).document
    pipeline = from_document(document)
    if pipeline is None:
        return GraphAnswer(nodes=[])
    graph, _ = build_partly(PipelineFile(pipeline, Places("stored"), services.folder.pipeline(name)))
    return GraphAnswer(nodes=[_node(node, dict(document)) for node in graph.nodes.values()])


def _node(node: Node, document: dict[str, Any]) -> NodeAnswer:
    config: Any = document
    for key in node.path:
        config = config.get(key, {}) if isinstance(config, dict) else {}
    return NodeAnswer(
        name=node.name,
        kind=node.kind,
        component=node.component.name,
        inputs=list(node.inputs),
        part_of=node.part_of,
        config=config if isinstance(config, dict) else {},
    )


@router.guarded(Role.VIEWER, "GET", "/pipelines/{name}/trend")
def get_trend(
    services: ServicesOf, grant: Caller, name: str, since: Moment = None, until: Moment = None, points: Points = 240
) -> TrendAnswer:
    """Its batches, put together to as many points as are wanted; by default of the last hour."""
    end = moment(until) or services.now()
    begin = moment(since) or end - _HOUR
    if begin >= end:
        raise PenstockError.of("REQUEST_INVALID", reason="`since` must be before `until`")
    with services.store.reading() as connection:
        visible(connection, grant, name)
        found = trend(connection, name, since=begin, until=end, points=points)
    return TrendAnswer(pipeline=name, since=begin, until=end, points=[PointAnswer.model_validate(one) for one in found])


@router.guarded(Role.VIEWER, "GET", "/trends")
def list_trends(services: ServicesOf, grant: Caller, pipeline: Names = None, points: Points = 30) -> BriefTrends:
    """The last hour of some pipelines in brief; one that is not there, or not for the caller, is left out."""
    end = services.now()
    begin = end - _HOUR
    items = []
    with services.store.reading() as connection:
        again = recent.restarts(connection, end - _DAY)
        for name in dict.fromkeys(pipeline or ()):
            known = pipelines.find(connection, name)
            if known is None or not grant.sees(known.labels):
                continue
            found = trend(connection, name, since=begin, until=end, points=points)
            drawn = [BriefPoint.model_validate(one) for one in found]
            items.append(BriefAnswer(pipeline=name, restarts=again.get(name, 0), points=drawn))
    return BriefTrends(since=begin, until=end, items=items)
