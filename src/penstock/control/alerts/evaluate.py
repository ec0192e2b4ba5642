"""When an alert fires and when it is resolved: a state machine without a clock of its own."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

CALM = dt.timedelta(minutes=1)
"""How long a condition must not hold before its alert is resolved, so that one that comes and goes fires once."""


class Transition(StrEnum):
    """What somebody is told of."""

    FIRING = "firing"
    RESOLVED = "resolved"


@dataclass(frozen=True)
class AlertState:
    """Where an alert stands. `since` is when its condition began to hold, `calm_since` when it last ceased to."""

    phase: Literal["ok", "pending", "firing"] = "ok"
    since: dt.datetime | None = None
    calm_since: dt.datetime | None = None


OK = AlertState()


def step(
    state: AlertState, holds: bool, now: dt.datetime, hold_for: dt.timedelta, calm: dt.timedelta = CALM
) -> tuple[AlertState, Transition | None]:
    """The state after one more look, and what somebody is to be told."""
    if state.phase == "firing":
        return _while_firing(state, holds, now, calm)
    if not holds:
        return OK, None
    since = state.since or now
    if now - since >= hold_for:
        return AlertState("firing", since), Transition.FIRING
    return AlertState("pending", since), None


def _while_firing(
    state: AlertState, holds: bool, now: dt.datetime, calm: dt.timedelta
) -> tuple[AlertState, Transition | None]:
    if holds:
        return AlertState("firing", state.since), None
    calm_since = state.calm_since or now
    if now - calm_since >= calm:
        return OK, Transition.RESOLVED
    return AlertState("firing", state.since, calm_since), None
