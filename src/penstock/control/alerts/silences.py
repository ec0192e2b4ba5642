"""Silences: for a while nobody is told of some alerts. They fire and are resolved all the same."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Silence:
    """Of which pipeline and which alert nobody is told, and until when; None stands for all."""

    until: dt.datetime
    pipeline: str | None = None
    rule: str | None = None

    def covers(self, pipeline: str, rule: str, now: dt.datetime) -> bool:
        return now < self.until and self.pipeline in (None, pipeline) and self.rule in (None, rule)


def silenced(silences: Iterable[Silence], pipeline: str, rule: str, now: dt.datetime) -> bool:
    return any(silence.covers(pipeline, rule, now) for silence in silences)
