"""What happened: runs, batches, exceptions, moves between targets."""

from __future__ import annotations

from penstock.control.api.answers import (
    AfterNumber,
    BatchAnswer,
    BatchNumber,
    ExceptionAnswer,
    FailoverAnswer,
    Limit,
    Listed,
    RunAnswer,
    listed,
)
from penstock.control.api.asked import Moment, moment
from penstock.control.api.guard import Caller, GuardedRouter, ServicesOf, visible
from penstock.control.auth.roles import Role
from penstock.control.store import failover, history, runs
from penstock.errors import PenstockError

router = GuardedRouter(prefix="/api/v1", tags=["history"])


@router.guarded(Role.VIEWER, "GET", "/runs")
def list_runs(services: ServicesOf, grant: Caller, limit: Limit = 100, after: AfterNumber = None) -> Listed[RunAnswer]:
    """Runs of all pipelines, the newest first."""
    with services.store.reading() as connection:
        page = runs.listed(connection, scopes=grant.scopes, limit=limit, after=after)
    return listed(page, RunAnswer.model_validate)


@router.guarded(Role.VIEWER, "GET", "/runs/{run}")
def get_run(services: ServicesOf, grant: Caller, run: str) -> RunAnswer:
    """One run, and how it ended."""
    with services.store.reading() as connection:
        found = runs.get(connection, run)
        try:
            visible(connection, grant, found.pipeline)
        except PenstockError:
            raise PenstockError.of("NOT_FOUND", what="run", name=run) from None
    return RunAnswer.model_validate(found)


@router.guarded(Role.VIEWER, "GET", "/pipelines/{name}/runs")
def list_runs_of(
    services: ServicesOf, grant: Caller, name: str, limit: Limit = 100, after: AfterNumber = None
) -> Listed[RunAnswer]:
    """Runs of one pipeline, the newest first."""
    with services.store.reading() as connection:
        visible(connection, grant, name)
        page = runs.listed(connection, pipeline=name, limit=limit, after=after)
    return listed(page, RunAnswer.model_validate)


@router.guarded(Role.VIEWER, "GET", "/pipelines/{name}/batches")
def list_batches(
    services: ServicesOf,
    grant: Caller,
    name: str,
    run: str | None = None,
    since: Moment = None,
    until: Moment = None,
    up_to: BatchNumber = None,
    limit: Limit = 100,
    after: AfterNumber = None,
) -> Listed[BatchAnswer]:
    """Batches of one pipeline, the newest first; older ones put together by minute and hour."""
    with services.store.reading() as connection:
        visible(connection, grant, name)
        page = history.batches_of(
            connection, name, run=run, since=moment(since), until=moment(until), up_to=up_to, limit=limit, after=after
        )
    return listed(page, BatchAnswer.model_validate)


@router.guarded(Role.VIEWER, "GET", "/exceptions")
def list_exceptions(
    services: ServicesOf, grant: Caller, limit: Limit = 100, after: AfterNumber = None
) -> Listed[ExceptionAnswer]:
    """What runs of all pipelines failed of, the newest first."""
    with services.store.reading() as connection:
        page = history.exceptions_of(connection, scopes=grant.scopes, limit=limit, after=after)
    return listed(page, ExceptionAnswer.model_validate)


@router.guarded(Role.VIEWER, "GET", "/pipelines/{name}/exceptions")
def list_exceptions_of(
    services: ServicesOf,
    grant: Caller,
    name: str,
    run: str | None = None,
    limit: Limit = 100,
    after: AfterNumber = None,
) -> Listed[ExceptionAnswer]:
    """What runs of one pipeline failed of, the newest first."""
    with services.store.reading() as connection:
        visible(connection, grant, name)
        page = history.exceptions_of(connection, pipeline=name, run=run, limit=limit, after=after)
    return listed(page, ExceptionAnswer.model_validate)


@router.guarded(Role.VIEWER, "GET", "/failovers")
def list_failovers(
    services: ServicesOf,
    grant: Caller,
    pipeline: str | None = None,
    limit: Limit = 100,
    after: AfterNumber = None,
) -> Listed[FailoverAnswer]:
    """Moves from one target to another, the newest first, with the times that they took."""
    with services.store.reading() as connection:
        page = failover.listed_failovers(connection, pipeline=pipeline, scopes=grant.scopes, limit=limit, after=after)
    return listed(page, FailoverAnswer.model_validate)
