"""Work on the state of pipelines: rescaling, upgrades, and how far what was asked for is."""

from __future__ import annotations

from fastapi import Response

from penstock.control.api.answers import AfterNumber, Limit, Listed, OperationAnswer, listed
from penstock.control.api.asked import AcceptGapRequest, PlanOneRequest, RescaleRequest, UpgradeRequest
from penstock.control.api.guard import Caller, GuardedRouter, ServicesOf, expected_revision, set_etag, visible
from penstock.control.api.queues import Kind
from penstock.control.api.routes.apply import PlanAnswer, shown
from penstock.control.api.routes.pipelines import IfMatch
from penstock.control.api.services import Services
from penstock.control.api.work import facts_of_savepoint
from penstock.control.auth.roles import Role
from penstock.control.desired import Wish, carry_out, look, note, plan
from penstock.control.partitions import with_partitions
from penstock.control.store import operations, pipelines, savepoints
from penstock.control.submitted import Checked, Submitted, check_file
from penstock.control.supervisor.ports import Operation
from penstock.errors import PenstockError
from penstock.reports.values import OperationStatus

router = GuardedRouter(prefix="/api/v1/pipelines", tags=["state"])


@router.guarded(Role.VIEWER, "GET", "/{name}/operations")
def list_operations(
    services: ServicesOf, grant: Caller, name: str, limit: Limit = 100, after: AfterNumber = None
) -> Listed[OperationAnswer]:
    """What was asked to be done to its state, the newest first."""
    with services.store.reading() as connection:
        visible(connection, grant, name)
        page = operations.listed(connection, name, limit=limit, after=after)
    return listed(page, lambda found: OperationAnswer.of(found, status_of(services, found)))


@router.guarded(Role.VIEWER, "GET", "/{name}/operations/{operation}")
def get_operation(services: ServicesOf, grant: Caller, name: str, operation: str) -> OperationAnswer:
    """One operation: how far it is, or what became of it."""
    with services.store.reading() as connection:
        visible(connection, grant, name)
        found = operations.get(connection, name, operation)
    return OperationAnswer.of(found, status_of(services, found))


@router.guarded(Role.AUTHOR, "DELETE", "/{name}/operations/{operation}", status_code=202)
def cancel_operation(services: ServicesOf, grant: Caller, name: str, operation: str) -> OperationAnswer:
    """Ends it, if it has not ended. The state is then as it was, or as it was to be, and the pipeline goes on."""
    now = services.now()
    with services.store.writing() as connection:
        visible(connection, grant, name)
        found = operations.get(connection, name, operation)
        if found.open and found.cancelled_by is None:
            found = operations.cancel(connection, found, grant.who)
            note(connection, grant, now, "pipeline.operation_cancel", name, {"operation": found.id, "kind": found.kind})
    services.wake()
    return OperationAnswer.of(found, status_of(services, found))


@router.guarded(Role.AUTHOR, "POST", "/{name}/rescale", kind=Kind.FILES, status_code=202)
def rescale_pipeline(
    services: ServicesOf,
    grant: Caller,
    name: str,
    response: Response,
    asked: RescaleRequest | None = None,
    if_match: IfMatch = None,
) -> OperationAnswer:
    """Divides its state into other partitions: it is stopped, a savepoint is taken, and it goes on.

    If its file says how many there are, the file gets a further version that says this.
    """
    now = services.now()
    with services.store.writing() as connection:
        found = visible(connection, grant, name)
        if asked is None:
            raise PenstockError.of("REQUEST_INVALID", reason="say into how many `partitions`")
        revision = expected_revision(found, if_match)
        facts = services.state_facts(name)
        if facts is None:
            raise PenstockError.of("STATE_MISSING", name=name, path=f"pipelines/{name}/state")
        if facts.partitions == asked.partitions:
            reason = f"the state of '{name}' is divided into {asked.partitions} partitions already"
            raise PenstockError.of("REFUSED", reason=reason, advice="")
        version = pipelines.version(connection, name, found.version)
        if version.document.get("spec", {}).get("state", {}).get("partitions") is None:
            wanted = {"partitions": asked.partitions}
            done = operations.ask(connection, name, "rescale", wanted, now=now, by=grant.who)
            changed = pipelines.steer(connection, name, revision=revision, now=now, desired=found.desired)
            note(connection, grant, now, "pipeline.rescale", name, wanted)
        else:
            text = with_partitions(version, asked.partitions)
            checked = check_file(Submitted(f"{name}.{version.kind}", text), services.rules(grant), grant.highest)
            known = {name: look(connection)[name]}
            carry_out(connection, plan(known, [checked], Wish(), grant, services.state_facts), grant, now)
            done = next(iter(operations.open_ones(connection, name)))
            changed = pipelines.get(connection, name)
    services.wake()
    set_etag(response, changed.revision)
    return OperationAnswer.of(done)


@router.guarded(Role.AUTHOR, "POST", "/{name}/upgrade", status_code=202)
def upgrade_pipeline(
    services: ServicesOf,
    grant: Caller,
    name: str,
    response: Response,
    asked: UpgradeRequest | None = None,
    if_match: IfMatch = None,
) -> OperationAnswer:
    """Carries its state over to the version it has, as `apply` does with a new one; for one that failed of that."""
    asked, now = asked or UpgradeRequest(), services.now()
    with services.store.writing() as connection:
        found = visible(connection, grant, name)
        revision = expected_revision(found, if_match)
        if services.state_facts(name) is None:
            raise PenstockError.of("STATE_MISSING", name=name, path=f"pipelines/{name}/state")
        wanted = asked.model_dump()
        done = operations.ask(connection, name, "upgrade", wanted, now=now, by=grant.who)
        changed = pipelines.steer(connection, name, revision=revision, now=now, desired=found.desired)
        note(connection, grant, now, "pipeline.upgrade_state", name, wanted)
    services.wake()
    set_etag(response, changed.revision)
    return OperationAnswer.of(done)


@router.guarded(Role.AUTHOR, "POST", "/{name}/accept-gap", status_code=202)
def accept_gap_of_sink(
    services: ServicesOf,
    grant: Caller,
    name: str,
    response: Response,
    asked: AcceptGapRequest | None = None,
    if_match: IfMatch = None,
) -> OperationAnswer:
    """Accepts that a sink has lost batches, after a run has failed with `SINK_BEHIND`; the rows stay missing."""
    now = services.now()
    with services.store.writing() as connection:
        found = visible(connection, grant, name)
        if asked is None:
            raise PenstockError.of("REQUEST_INVALID", reason="say which `sink`")
        revision = expected_revision(found, if_match)
        if services.state_facts(name) is None:
            raise PenstockError.of("STATE_MISSING", name=name, path=f"pipelines/{name}/state")
        wanted = asked.model_dump()
        done = operations.ask(connection, name, "accept_gap", wanted, now=now, by=grant.who)
        changed = pipelines.steer(connection, name, revision=revision, now=now, desired=found.desired)
        note(connection, grant, now, "pipeline.accept_gap", name, wanted)
    services.wake()
    set_etag(response, changed.revision)
    return OperationAnswer.of(done)


@router.guarded(Role.AUTHOR, "POST", "/{name}/plan", kind=Kind.FILES)
def plan_pipeline(services: ServicesOf, grant: Caller, name: str, asked: PlanOneRequest | None = None) -> PlanAnswer:
    """What it would take to go on with another version of it, from its state or from a savepoint."""
    with services.store.reading() as connection:
        visible(connection, grant, name)
        if asked is None:
            raise PenstockError.of("REQUEST_INVALID", reason="send the `file` of the new version")
        checked = _same_name(
            check_file(Submitted(asked.file.path, asked.file.text), services.rules(grant), grant.highest), name
        )
        if asked.savepoint is not None:
            savepoints.get(connection, name, asked.savepoint)
        known = {name: look(connection)[name]}
    facts = services.state_facts(name)
    if asked.savepoint is not None:
        facts = facts_of_savepoint(services, name, asked.savepoint)
    return shown(plan(known, [checked], Wish(), grant, lambda _: facts))


def _same_name(checked: Checked, name: str) -> Checked:
    if checked.pipeline.name != name:
        reason = f"the file is of '{checked.pipeline.name}', not of '{name}'"
        raise PenstockError.of("REQUEST_INVALID", reason=reason)
    return checked


def status_of(services: Services, operation: Operation) -> OperationStatus | None:
    """How far it is, as far as the supervisor has seen."""
    live = services.live().get(operation.pipeline)
    at_work = live.operations if live is not None else ()
    return next((item.status for item in at_work if item.operation.id == operation.id), None)
