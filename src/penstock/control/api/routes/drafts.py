"""Pipelines that somebody is writing: what is known of each node, and what it would give."""

from __future__ import annotations

import hashlib
import json
from pathlib import PurePosixPath
from typing import Annotated, Any, cast

from pydantic import Field

from penstock.control.api.answers import Answer
from penstock.control.api.asked import Asked, FileSent, Word
from penstock.control.api.guard import Caller, GuardedRouter, ServicesOf, visible
from penstock.control.api.problems import ProblemItem
from penstock.control.api.queues import SIZES, Kind
from penstock.control.api.routes.pipelines import may_use_target
from penstock.control.api.services import Services
from penstock.control.asking import Busy, NoAnswer
from penstock.control.auth.roles import Grant, Role
from penstock.control.launch.granted import access_of
from penstock.control.launch.limits import TRIAL
from penstock.control.store import pipelines
from penstock.control.submitted import Drafted, Rules, Same, Submitted, drafted
from penstock.errors import CODES, Location, PenstockError, Problem, Severity
from penstock.reports.codec import plain

MOST_ROWS = 200
MOST_SECONDS = 15.0
"""How long rows of a source are waited for."""
router = GuardedRouter(prefix="/api/v1", tags=["drafts"])


class ExplainRequest(Asked):
    file: FileSent


class PreviewRequest(ExplainRequest):
    node: Word = Field(description="The source, step or sink whose rows are wanted.")
    rows: Annotated[int, Field(ge=1, le=MOST_ROWS)] = Field(50, description="How many of each source are taken.")
    fresh: bool = Field(False, description="Whether to take other rows of the sources than the last time.")


class ColumnKnown(Answer):
    name: str
    type: str


class WatermarkKnown(Answer):
    column: str
    delay: str
    delay_millis: int


class StateKnown(Answer):
    operator: str
    keys: list[str]


class NodeKnown(Answer):
    """What Spark's analyser knows of a node; nothing of one that is wrong, or reads from one that is."""

    name: str
    kind: str
    component: str
    inputs: list[str] = Field(alias="from")
    columns: list[ColumnKnown] | None
    watermark: WatermarkKnown | None
    state: list[StateKnown] | None
    lineage: dict[str, list[str]] | None = Field(description="Columns with the `node.column`s they are computed from.")


class Explained(Answer):
    nodes: list[NodeKnown]
    problems: list[ProblemItem]


class PreviewAnswer(Answer):
    node: str
    columns: list[ColumnKnown]
    rows: list[dict[str, Any]]
    total: int = Field(description="How many rows the node gave for the sample.")
    sampled: dict[str, int] = Field(description="How many rows were taken of each source.")
    dead: list[dict[str, Any]] = Field(description="Rows that became dead letters.")
    late: int


@router.guarded(Role.AUTHOR, "POST", "/explain", kind=Kind.BENCH)
def explain_file(services: ServicesOf, grant: Caller, asked: ExplainRequest) -> Explained:
    """The columns of each node and all that is wrong with the file, as far as it can be read."""
    draft = _draft(services, grant, asked.file)
    if draft.graph is None or not draft.graph.nodes or draft.refused:
        return Explained(nodes=[], problems=[ProblemItem(**problem.as_dict()) for problem in draft.problems])
    found = _asked(services, draft, asked.file, "explain")
    # What the server itself found says where in the file, also of Python files.
    problems = [*draft.problems, *(item for item in _problems(found, asked.file.path) if item not in draft.problems)]
    nodes = [NodeKnown.model_validate(node) for node in found["nodes"]]
    return Explained(nodes=nodes, problems=[ProblemItem(**problem.as_dict()) for problem in problems])


@router.guarded(Role.VIEWER, "GET", "/pipelines/{name}/explain", kind=Kind.BENCH)
def explain_pipeline(services: ServicesOf, grant: Caller, name: str) -> Explained:
    """The columns of each node of the version that it has, and what they are computed from."""
    with services.store.reading() as connection:
        known = visible(connection, grant, name)
        version = pipelines.version(connection, name, known.version)
    project = services.project_of(known)
    # What is known of a name says nothing of the next pipeline of that name, nor of one of another project.
    key = hashlib.sha256(json.dumps([project.id, version.kind, version.text]).encode()).hexdigest()
    found = services.explained.get(key)
    if found is None:
        file = FileSent(path=f"{name}.{version.kind}", text=version.text)
        # Whoever sent it was allowed to.
        rules = Rules(services.policies.of(project), Role.ADMIN, project)
        draft = drafted(Submitted(file.path, file.text), Same(rules), Role.ADMIN)
        if draft.graph is None or draft.refused:
            raise PenstockError(problem for problem in draft.problems if problem.severity is Severity.ERROR)
        found = _asked(services, draft, file, "explain")
        services.explained.put(key, found)
    return Explained(nodes=[NodeKnown.model_validate(node) for node in found["nodes"]], problems=[])


@router.guarded(Role.AUTHOR, "POST", "/preview", kind=Kind.BENCH)
def preview_file(services: ServicesOf, grant: Caller, asked: PreviewRequest) -> PreviewAnswer:
    """Some rows that a node would give, through the real engine. Nothing is written anywhere."""
    draft = _draft(services, grant, asked.file)
    if draft.graph is None or draft.refused:
        raise PenstockError(problem for problem in draft.problems if problem.severity is Severity.ERROR)
    wanted = {"node": asked.node, "rows": asked.rows, "seconds": MOST_SECONDS, "fresh": asked.fresh}
    found = _asked(services, draft, asked.file, "preview", **wanted)
    columns = [{"name": name, "type": kind} for name, kind in found["columns"].items()]
    return PreviewAnswer.model_validate({**found, "columns": columns})


def _draft(services: Services, grant: Grant, file: FileSent) -> Drafted:
    """The file as far as it can be read. Whoever may not run anything here may not try it out either."""
    draft = drafted(Submitted(file.path, file.text), services.rules(grant), grant.highest)
    if draft.rules is not None and draft.rules.project is not None:
        may_use_target(services, grant, draft.rules.role, draft.rules.project, None)
    return draft


def _asked(services: Services, draft: Drafted, file: FileSent, verb: str, **more: Any) -> Any:
    assert draft.rules is not None
    question = {
        "verb": verb,
        "path": PurePosixPath(file.path).name,
        "kind": draft.kind,
        "text": file.text,
        "folder": str(draft.rules.policy.folder),
        "access": plain(draft.rules.policy.access),
        **more,
    }
    # What is tried out writes nothing anywhere.
    access = access_of(draft.rules.policy, draft.secrets, TRIAL).only_reading()
    try:
        # Code, or secrets, are not for those who ask next.
        found = services.bench.ask(question, access, alone=draft.runs_code or bool(draft.secrets))
    except Busy:
        raise PenstockError.of("SERVER_BUSY", kind=Kind.BENCH, seconds=SIZES[Kind.BENCH].retry) from None
    except NoAnswer as reason:
        raise PenstockError.of("BENCH_FAILED", reason=reason) from None
    if "answer" not in found:
        raise PenstockError(_told(item, file.path) for item in found.get("problems", ()))
    return found["answer"]


def _problems(found: dict[str, Any], shown: str) -> list[Problem]:
    return [_told(item, shown) for item in found["problems"]]


def _told(item: dict[str, Any], shown: str) -> Problem:
    code = item["code"] if item.get("code") in CODES else "BENCH_FAILED"
    params = cast(dict[str, Any], item.get("params", {}))
    place = cast(dict[str, Any], item.get("location") or {})
    at = Location(shown, int(place.get("line", 1)), int(place.get("column", 1))) if place else None
    return Problem(code, params if code == item.get("code") else {"reason": item.get("message", "")}, at)
