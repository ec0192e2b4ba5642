"""What the steps of a pipeline remember, read while it runs or not, or from a savepoint."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from pydantic import Field

from penstock.control.api.answers import Answer
from penstock.control.api.guard import Caller, GuardedRouter, ServicesOf, visible
from penstock.control.api.queues import Kind
from penstock.control.api.state import asked_of_state
from penstock.control.auth.roles import Role
from penstock.control.store import savepoints

router = GuardedRouter(prefix="/api/v1/pipelines", tags=["state"])

_PATIENCE = 90.0
"""Spark is started to read it."""
_MOST_ROWS = 1000
Of = Annotated[str | None, Query(max_length=100, description="A savepoint to look at instead of its state now.")]
Key = Annotated[
    list[str] | None,
    Query(max_length=20, description="Only what is kept of this key; once for each of its columns, in their order."),
]


class StepRemembers(Answer):
    step: str
    rows: int
    bytes: int
    kept_by: str = Field(description="The kernel, or the operator of Spark, that keeps it.")


class StateAnswer(Answer):
    batch: int = Field(description="The last batch that is in it.")
    watermark: int | None = Field(description="Milliseconds since 1970 up to which event time is settled.")
    partitions: int
    steps: list[StepRemembers]


class RememberedAnswer(Answer):
    batch: int
    watermark: int | None
    columns: list[str]
    rows: list[dict[str, Any]]
    whole: bool = Field(description="Whether these are all rows.")


@router.guarded(Role.VIEWER, "GET", "/{name}/state", kind=Kind.STATE)
def get_state(services: ServicesOf, grant: Caller, name: str, savepoint: Of = None) -> StateAnswer:
    """The steps that keep state, with rows and bytes, after its last committed batch or in a savepoint."""
    _refuse_unknown(services, grant, name, savepoint)
    found = asked_of_state(services, grant, name, "state", patience=_PATIENCE, savepoint=savepoint)
    return StateAnswer.model_validate(found)


@router.guarded(Role.OPERATOR, "GET", "/{name}/state/{step}", kind=Kind.STATE)
def get_state_of(
    services: ServicesOf,
    grant: Caller,
    name: str,
    step: str,
    key: Key = None,
    savepoint: Of = None,
    limit: Annotated[int, Query(ge=1, le=_MOST_ROWS, description="How many rows at most.")] = 100,
) -> RememberedAnswer:
    """The rows of a step's state, as the step reads them. They hold what was read, so they are not for everybody."""
    _refuse_unknown(services, grant, name, savepoint)
    asked = {"step": step, "key": key, "savepoint": savepoint, "limit": limit}
    found = asked_of_state(services, grant, name, "state_of", patience=_PATIENCE, **asked)
    return RememberedAnswer.model_validate(found)


def _refuse_unknown(services: ServicesOf, grant: Caller, name: str, savepoint: str | None) -> None:
    with services.store.reading() as connection:
        visible(connection, grant, name)
        if savepoint is not None:
            savepoints.get(connection, name, savepoint)
