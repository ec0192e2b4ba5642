"""The course of a move to another target: noticed, stopped, started, caught up. Pure."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

from penstock.control.supervisor.health import Health
from penstock.control.supervisor.ports import Failover, Notice, Run


def begun(run: Run, to_target: str, noticed_at: dt.datetime) -> Failover:
    return Failover(run.pipeline, run.target, to_target, noticed_at)


def after_end(move: Failover, ended_at: dt.datetime) -> Failover:
    """The run on the old target has ended."""
    return replace(move, stopped_at=ended_at) if move.stopped_at is None else move


def after_start(move: Failover, run: Run) -> Failover:
    """A run has been started, perhaps elsewhere than was planned."""
    return replace(move, to_target=run.target, started_at=run.started_at) if move.started_at is None else move


def after_look(move: Failover, health: Health, batches: int, now: dt.datetime) -> Failover:
    """It has caught up once it does well after its start, and has finished a batch or found nothing to read."""
    well = health.state == "IDLE" or (health.state == "RUNNING" and batches > 0)
    done = move.started_at is not None and move.caught_up_at is None and well
    return replace(move, caught_up_at=now) if done else move


def seconds(move: Failover) -> float | None:
    """How long it took from the notice until it had caught up; None before."""
    return None if move.caught_up_at is None else (move.caught_up_at - move.noticed_at).total_seconds()


def news(known: tuple[Notice, ...], heard: dict[str, tuple[Notice, ...]], now: dt.datetime) -> list[Notice]:
    """What has changed: notices that are new, and those that the one they came from no longer gives.

    The first to speak of a target wins: a second notice for it changes nothing as long as the first one holds.
    """
    found = []
    for notice in known:
        if notice.heard_from in heard and not any(item.target == notice.target for item in heard[notice.heard_from]):
            found.append(replace(notice, withdrawn_at=now))
    over = {notice.target for notice in found}
    taken = {notice.target for notice in known} - over
    for notices in heard.values():
        for notice in notices:
            if notice.target not in taken:
                taken.add(notice.target)
                found.append(notice)
    return found
