"""From what is there and what was sent to what is to be done: the plan that `plan` shows and `apply` carries out."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import Connection

from penstock.control.auth.roles import Grant, in_words
from penstock.control.changing import Changing, changing, kind_of
from penstock.control.store import access, history, operations, pipelines
from penstock.control.store.pipelines import Desired, FileKind, Version
from penstock.control.store.pipelines import Pipeline as Known
from penstock.control.submitted import Checked, from_document
from penstock.errors import PenstockError, Problem
from penstock.graph.changes import Changed, Stage
from penstock.reports.state_folder import StateFacts
from penstock.spec.diff import Difference, cost, differences
from penstock.spec.fields import Change
from penstock.spec.pipeline import Pipeline


class Action(StrEnum):
    CREATE = "create"
    UPGRADE = "upgrade"
    UNCHANGED = "unchanged"
    START = "start"
    STOP = "stop"
    DELETE = "delete"


class Absent(StrEnum):
    """What becomes of pipelines that were not sent."""

    KEEP = "keep"
    STOP = "stop"
    DELETE = "delete"


_ASKED: Mapping[bool | None, Desired | None] = {True: "running", False: "stopped", None: None}


@dataclass(frozen=True)
class Existing:
    """A pipeline that is there, and the version it is to run."""

    pipeline: Known
    version: Version


@dataclass(frozen=True)
class Wish:
    """What was asked for beside the files."""

    absent: Absent = Absent.KEEP
    selector: Mapping[str, str] | None = None
    """Only pipelines with all these labels count as absent."""
    start: bool | None = None
    """Whether pipelines are to run. None: new ones run, others go on as they are."""
    target: str | None = None
    lose: tuple[str, ...] = ()
    """Sources and steps whose state may be given up: NAME, or PIPELINE/NAME."""


States = Callable[[str], StateFacts | None]
"""What is known of the state of a pipeline; None if it has none."""


@dataclass(frozen=True)
class Step:
    """What is to be done with one pipeline, and what that costs it."""

    action: Action
    name: str
    reason: str
    cost: Change = Change.NOTHING
    differences: tuple[Changed, ...] = ()
    stages: tuple[Stage, ...] = ()
    """What carrying it out consists of, in order."""
    loses: tuple[str, ...] = ()
    """The sources and steps whose state is given up."""
    flow: tuple[str, ...] = ()
    """How rows flow, as lines that are there before, after or both; none if that stays."""
    lose: tuple[str, ...] = ()
    """Those of them that may be."""
    version: int | None = None
    """The version it has."""
    revision: int | None = None
    """The revision that was looked at; None if there is no such pipeline."""
    file: Checked | None = None
    desired: Desired | None = None
    target: str | None = None

    @property
    def changes(self) -> bool:
        return self.action is not Action.UNCHANGED


@dataclass(frozen=True)
class Plan:
    steps: tuple[Step, ...]

    @property
    def checksum(self) -> str:
        """Equal exactly if the same would be done to the same; so that what was shown is what is done."""
        told = [
            [
                step.action, step.name, step.revision, step.desired, step.target, step.stages, step.loses,
                step.file.text if step.file else None,
            ]
            for step in self.steps
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(told).encode("utf-8")).hexdigest()

    @property
    def changes(self) -> bool:
        return any(step.changes for step in self.steps)


def _stateless(_: str) -> None:
    """For a server whose pipelines have never run."""


def plan(
    existing: Mapping[str, Existing], files: Sequence[Checked], wish: Wish, grant: Grant, states: States = _stateless
) -> Plan:
    """What is to be done, by name. Raises FORBIDDEN for pipelines that are not the grant's."""
    steps = [_for_file(existing.get(file.pipeline.name), file, wish, grant, states) for file in files]
    sent = {file.pipeline.name for file in files}
    steps += _for_absent([item.pipeline for name, item in existing.items() if name not in sent], wish, grant)
    return Plan(tuple(sorted(steps, key=lambda step: step.name)))


def _for_file(known: Existing | None, file: Checked, wish: Wish, grant: Grant, states: States) -> Step:
    name = file.pipeline.name
    within_scope(grant, name, file.pipeline.labels)
    if known is None:
        desired: Desired = "stopped" if wish.start is False else "running"
        return Step(Action.CREATE, name, "it is new", file=file, desired=desired, target=wish.target)
    within_scope(grant, name, known.pipeline.labels)
    asked = _ASKED[wish.start]
    steered = _steered(known.pipeline, asked, wish.target)
    found = _differences(known.version, file)
    if found is None:
        return _steer(known.pipeline, asked, wish.target, steered)
    carried = changing(known.version.document, file.graph, states(name))
    runs, is_to_run = known.pipeline.desired == "running", (asked or known.pipeline.desired) == "running"
    return Step(
        Action.UPGRADE,
        name,
        " and ".join((_fields(carried), *steered)),
        _dearest(carried.cost, *([Change.RESTART] if steered or not found else [])),
        carried.changes,
        carried.stages(runs=runs, is_to_run=is_to_run, restarts=bool(steered) or not found),
        carried.lost,
        carried.flow,
        _may_be_lost(name, carried.lost, wish.lose),
        known.pipeline.version,
        known.pipeline.revision,
        file,
        asked,
        wish.target,
    )


def _fields(carried: Changing) -> str:
    count = len(carried.changes)
    return f"{count} {'change' if count == 1 else 'changes'}" if count else "its text differs"


def _dearest(*costs: Change) -> Change:
    return max(costs, key=list(Change).index)


def _may_be_lost(name: str, lost: Iterable[str], lose: Sequence[str]) -> tuple[str, ...]:
    return tuple(node for node in lost if node in lose or f"{name}/{node}" in lose)


def refuse_losses(plan: Plan, lose: Sequence[str]) -> None:
    """Raises CHANGE_LOSES_STATE for what nobody has said may be lost, and CHANGE_LOSES_NOTHING for what is not."""
    problems = [
        Problem("CHANGE_LOSES_STATE", {"node": change.node, "reason": change.reason})
        for step in plan.steps
        for change in step.differences
        if change.node in step.loses and change.node not in step.lose
    ]
    used = {word for step in plan.steps for node in step.lose for word in (node, f"{step.name}/{node}")}
    problems += [Problem("CHANGE_LOSES_NOTHING", {"node": word}) for word in lose if word not in used]
    if problems:
        raise PenstockError(problems)


def _steer(known: Known, asked: Desired | None, target: str | None, reasons: Sequence[str]) -> Step:
    """For a file that is as it was."""
    if not reasons:
        return Step(Action.UNCHANGED, known.name, "nothing has changed", revision=known.revision)
    desired: Desired = asked or ("running" if known.deleting_at is not None else known.desired)
    action = Action.STOP if desired == "stopped" else Action.START
    reason = " and ".join(reasons)
    return Step(action, known.name, reason, Change.RESTART, revision=known.revision, desired=desired, target=target)


def _steered(known: Known, desired: str | None, target: str | None) -> list[str]:
    """What differs beside the file."""
    found = []
    if known.deleting_at is not None:
        found.append("it was about to be deleted")
    if desired is not None and known.desired != desired:
        found.append(f"it is to be {desired}")
    if target is not None and known.target != target:
        found.append(f"it is to run on {target}")
    return found


def _differences(known: Version, file: Checked) -> list[Difference] | None:
    return _compared(known, file.kind, file.text, lambda: file.pipeline)


def _compared(
    known: Version, kind: FileKind, text: str, read: Callable[[], Pipeline | None]
) -> list[Difference] | None:
    """None if the two say the same; empty if they differ in ways that the pipeline's fields do not tell."""
    if known.kind == kind and known.text == text:
        return None
    before, after = from_document(known.document), read()
    if before is None or after is None:
        return []
    found = differences(before, after)
    # Two Python files of one shape may still have functions that differ.
    if "py" in (known.kind, kind) and (not found or cost(found) is Change.NOTHING):
        return []
    return found or None


def takes_effect_at_once(before: Version, after: Version) -> bool:
    """Whether a run of the one need not be started again for the other."""
    found = _compared(before, after.kind, after.text, lambda: from_document(after.document))
    return found is None or (bool(found) and cost(found) is Change.NOTHING)


def _for_absent(known: Iterable[Known], wish: Wish, grant: Grant) -> Iterable[Step]:
    if wish.absent is Absent.KEEP:
        return
    for pipeline in known:
        wanted = all(pipeline.labels.get(key) == value for key, value in (wish.selector or {}).items())
        if not wanted or not grant.sees(pipeline.labels) or pipeline.deleting_at is not None:
            continue
        if wish.absent is Absent.DELETE:
            yield Step(Action.DELETE, pipeline.name, "it was not sent", Change.LOSES_STATE, revision=pipeline.revision)
        elif pipeline.desired == "running":
            yield Step(Action.STOP, pipeline.name, "it was not sent", Change.RESTART, revision=pipeline.revision)


def within_scope(grant: Grant, name: str, labels: Mapping[str, str]) -> None:
    if not grant.sees(labels):
        reason = f"pipeline '{name}' is not one of those your token is limited to"
        raise PenstockError.of("FORBIDDEN", reason=reason, advice=f"They have the labels {in_words(grant.scopes)}.")


def scope_of_new(grant: Grant, labels: Mapping[str, str]) -> Mapping[str, str] | None:
    """The limit that is noted with a pipeline that somebody makes; None for somebody without one."""
    if grant.whole:
        return None
    return next((access.scope for access in grant.accesses if access.sees(labels)), grant.scope)


# --- carrying it out ---------------------------------------------------------------------------------------


def look(connection: Connection) -> dict[str, Existing]:
    """All pipelines that are there."""
    versions = pipelines.current_versions(connection)
    return {known.name: Existing(known, versions[known.name]) for known in pipelines.every(connection)}


def carry_out(connection: Connection, plan: Plan, grant: Grant, now: dt.datetime) -> list[str]:
    """Does all of a plan or, if someone was faster, nothing: raises STALE_REVISION. The names of what changed."""
    changed = []
    for step in plan.steps:
        if not step.changes:
            continue
        _do(connection, step, grant, now)
        fields = [each.path for each in step.differences]
        detail = {"reason": step.reason, "cost": str(step.cost), "fields": fields, "stages": [*map(str, step.stages)]}
        note(connection, grant, now, f"pipeline.{step.action}", step.name, detail)
        changed.append(step.name)
    return changed


def note(
    connection: Connection, grant: Grant, now: dt.datetime, action: str, name: str, detail: Mapping[str, object]
) -> None:
    """Notes a change of a pipeline in the audit log, and for those who follow what happens to it."""
    access.add_audit(connection, now=now, who=grant.who, role=grant.role, action=action, what=name, detail=dict(detail))
    text = f"{grant.who}: {action.removeprefix('pipeline.')}"
    history.add_event(connection, action, text, now=now, pipeline=name, data=dict(detail))


def _do(connection: Connection, step: Step, grant: Grant, now: dt.datetime) -> None:
    if step.action is Action.CREATE:
        assert step.file is not None
        pipelines.create(
            connection, step.name, step.file.draft, now=now, by=grant.who, desired=step.desired or "running",
            target=step.target, scope=scope_of_new(grant, step.file.pipeline.labels),
        )  # fmt: skip
        return
    assert step.revision is not None
    if step.action is Action.UPGRADE:
        assert step.file is not None
        operations.refuse_open(connection, step.name)
        pipelines.upgrade(
            connection, step.name, step.file.draft, revision=step.revision, now=now, by=grant.who,
            desired=step.desired, target=step.target,
        )  # fmt: skip
        if Stage.GRAFT in step.stages or Stage.RESCALE in step.stages:
            asked = {"stages": [*map(str, step.stages)], "lose": [*step.lose]}
            kind = kind_of(step.stages)
            operations.ask(connection, step.name, kind, asked, now=now, by=grant.who, back_to=step.version)
    elif step.action in (Action.START, Action.STOP):
        desired: Desired = "running" if step.action is Action.START else "stopped"
        pipelines.steer(connection, step.name, revision=step.revision, now=now, desired=desired, target=step.target)
    else:
        pipelines.mark_for_deletion(connection, step.name, revision=step.revision, now=now)
        operations.cancel_following(connection, step.name, grant.who)
