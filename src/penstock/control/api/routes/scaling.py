"""How many cores a pipeline is advised to have, with the formula term by term."""

from __future__ import annotations

import datetime as dt
from typing import Literal

from pydantic import Field

from penstock.capacity.autoscale.decide import Decision
from penstock.control.api.answers import Answer
from penstock.control.api.guard import Caller, GuardedRouter, ServicesOf, visible
from penstock.control.auth.roles import Role
from penstock.control.store import pipelines

router = GuardedRouter(prefix="/api/v1", tags=["scaling"])


class TermsAnswer(Answer):
    """The formula: load ÷ busy + lag ÷ catchUp + load × restart ÷ catchUp, in rows a second; times are in seconds."""

    load: float
    lag: float = Field(description="Rows that wait.")
    busy: float = Field(description="The share of the time in which cores should be busy.")
    catch_up: float
    restart: float
    by_load: float
    by_lag: float
    by_restart: float
    wanted: float = Field(description="The sum of the three.")
    capacity: float = Field(description="What the cores give now.")
    capacity_then: float = Field(description="What as many as are needed would give.")
    needed: int = Field(description="Cores, within the limits of `scale`.")
    unbounded: int | None = Field(description="Cores without those limits; null if no number is enough.")
    catching_up: bool


class ScalingAnswer(Answer):
    """What was decided last; all null while the pipeline does not run, or has no `scale`."""

    pipeline: str
    configured: bool = Field(description="Whether its file has `scale`.")
    at: dt.datetime | None = None
    action: Literal["keep", "up", "down", "held"] | None = Field(
        None, description="What is advised. `held`: a change is due, and something speaks against it."
    )
    cores: int | None = None
    advised: int | None = Field(None, description="Cores; as many as there are unless more or fewer are advised.")
    why: str | None = None
    text: str | None = Field(None, description="The formula with its terms, and why.")
    terms: TermsAnswer | None = None


@router.guarded(Role.VIEWER, "GET", "/pipelines/{name}/scaling")
def get_scaling(services: ServicesOf, grant: Caller, name: str) -> ScalingAnswer:
    """How many cores it is advised to have, and why; earlier advice is among its events, as `scaling_advice`."""
    with services.store.reading() as connection:
        found = visible(connection, grant, name)
        document = pipelines.version(connection, name, found.version).document
    configured = document.get("spec", {}).get("scale") is not None
    decision = services.scaling(name) if configured else None
    if decision is None:
        return ScalingAnswer(pipeline=name, configured=configured)
    return answer_of(name, decision)


def answer_of(name: str, decision: Decision) -> ScalingAnswer:
    judged = decision.evaluation is not None
    return ScalingAnswer(
        pipeline=name,
        configured=True,
        at=dt.datetime.fromtimestamp(decision.at, dt.UTC),
        action=decision.action.value,
        cores=decision.before if decision.before else None,
        advised=decision.after if decision.after else None,
        why=decision.why,
        text=decision.in_words,
        terms=TermsAnswer.model_validate(decision.evaluation) if judged else None,
    )
