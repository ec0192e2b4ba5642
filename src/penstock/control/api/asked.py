"""The shapes of requests. What is not known is refused, so that a misspelt wish is not silently left out."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Self

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator
from pydantic.alias_generators import to_camel

from penstock.control.auth.roles import LABEL_KEY, Role
from penstock.control.desired import Absent
from penstock.errors import PenstockError
from penstock.spec.units import Duration

_NO_NUL = r"^[^\x00]*$"
Word = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=_NO_NUL)]
Sentence = Annotated[str, StringConstraints(max_length=1000, pattern=_NO_NUL)]
LabelKey = Annotated[str, StringConstraints(pattern=rf"^{LABEL_KEY.pattern}$")]
LabelValue = Annotated[str, StringConstraints(max_length=200, pattern=_NO_NUL)]
Labels = Annotated[dict[LabelKey, LabelValue], Field(max_length=20)]


class Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, populate_by_name=True)


class FileSent(Asked):
    """A pipeline file by the name its sender knows it by."""

    path: Annotated[str, StringConstraints(min_length=1, max_length=300, pattern=r"^[^\x00-\x1f]+$")]
    text: Annotated[str, StringConstraints(max_length=1_000_000, pattern=_NO_NUL)]


class ValidateRequest(Asked):
    files: Annotated[list[FileSent], Field(max_length=1000)]


Lose = Annotated[list[Word], Field(max_length=1000)]


class PlanRequest(ValidateRequest):
    """Files, and what else is wanted."""

    absent: Absent = Field(Absent.KEEP, description="What becomes of pipelines that are not among the files.")
    selector: Labels | None = Field(None, description="Only pipelines with these labels count as absent.")
    start: bool | None = Field(
        None, description="Whether the pipelines are to run. By default new ones are, and others go on as they are."
    )
    target: Word | None = Field(None, description="The target they are to run on.")
    lose: Lose = Field(
        default_factory=list, description="Sources and steps whose state may be given up: NAME, or PIPELINE/NAME."
    )


class ApplyRequest(PlanRequest):
    plan: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] | None = Field(
        None, description="The checksum of the plan that was looked at; anything else is not carried out."
    )


class StartRequest(Asked):
    target: Word | None = Field(None, description="The target it is to run on; default: where it was.")
    version: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = Field(
        None, description="The version to run; default: the one it has."
    )
    lose: Lose = Field(default_factory=list, description="Sources and steps whose state may be given up for it.")


class StopRequest(Asked):
    savepoint: bool = Field(False, description="Whether a savepoint is taken after its last batch.")
    name: Word | None = Field(None, description="What to call the savepoint; default: the time.")
    note: Sentence = Field("", description="Why it is taken.")


class SavepointRequest(Asked):
    name: Word | None = Field(None, description="What to call it; default: the time.")
    note: Sentence = Field("", description="Why it is taken.")


class RestoreRequest(Asked):
    keep_rows: bool = Field(
        False, description="Whether sinks that cannot take rows back keep them, and are given them again."
    )


class ForkRequest(Asked):
    """A pipeline of another name, with sinks of its own, that begins where a savepoint was."""

    file: FileSent
    start: bool = Field(True, description="Whether it is to run.")
    target: Word | None = Field(None, description="The target it is to run on.")
    lose: Lose = Field(default_factory=list, description="Sources and steps whose state may be given up.")


class RescaleRequest(Asked):
    partitions: Annotated[int, Field(ge=1, le=4096)]


class AcceptGapRequest(Asked):
    sink: Annotated[str, Field(min_length=1, max_length=200, description="The sink, as `SINK_BEHIND` names it.")]


class UpgradeRequest(Asked):
    lose: Lose = Field(default_factory=list, description="Sources and steps whose state may be given up.")
    bootstrap: Lose = Field(
        default_factory=list, description="Steps whose state is made anew: all that was read so far is read again."
    )


class CutoverRequest(Asked):
    """A new version that is to follow the pipeline."""

    file: FileSent
    lose: Lose = Field(default_factory=list, description="Sources and steps whose state may be given up.")


class PlanOneRequest(Asked):
    file: FileSent
    savepoint: Word | None = Field(None, description="Plan from this savepoint instead of from the state it has.")


class SilenceRequest(Asked):
    pipeline: Word | None = None
    rule: Word | None = None
    until: dt.datetime | None = Field(None, description="Until when; or say `lasts`.")
    lasts: Word | None = Field(None, description="How long, such as `2 hours`.")
    why: Sentence = ""

    @field_validator("until")
    @classmethod
    def _has_a_zone(cls, value: dt.datetime | None) -> dt.datetime | None:
        if value is not None and value.tzinfo is None:
            raise ValueError("the time needs a zone")
        return value


class TokenRequest(Asked):
    name: Word
    role: Role
    scope: Labels = Field(default_factory=dict, description="Only pipelines with all these labels.")
    project: Word | None = Field(None, description="Only pipelines of this project, in place of `scope`.")
    lasts: Word | None = Field("90 days", description="How long it is valid; null for ever.")


class LoginRequest(Asked):
    """A token, or the code of a link that stands for one."""

    token: Annotated[str, StringConstraints(max_length=200)] | None = None
    code: Annotated[str, StringConstraints(max_length=200)] | None = Field(
        None, description="What follows `#code=` in a link that `POST /login/links` has given."
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.token is None) == (self.code is None):
            raise ValueError("give either `token` or `code`")
        return self


class ReclaimRequest(Asked):
    deadline: dt.datetime | None = Field(None, description="Until when the target stays.")

    @field_validator("deadline")
    @classmethod
    def _has_a_zone(cls, value: dt.datetime | None) -> dt.datetime | None:
        if value is not None and value.tzinfo is None:
            raise ValueError("the time needs a zone")
        return value


LabelQuery = Annotated[
    list[Annotated[str, StringConstraints(max_length=300)]] | None,
    Query(description="Only those with this label, `key=value`; may be repeated."),
]
Moment = Annotated[dt.datetime | None, Query(description="A time with its zone.")]
Names = Annotated[list[str] | None, Query(max_length=50, description="Pipelines; may be repeated.")]


def labels_in(asked: list[str] | None) -> dict[str, str]:
    """Labels of a query; raises REQUEST_INVALID."""
    found: dict[str, str] = {}
    for text in asked or []:
        key, equals, value = text.partition("=")
        if not equals or not LABEL_KEY.fullmatch(key) or "\x00" in value:
            raise PenstockError.of("REQUEST_INVALID", reason=f"'{text}' is not key=value")
        found[key] = value
    return found


def length(text: str) -> dt.timedelta:
    """A length of time as people write it; raises REQUEST_INVALID."""
    try:
        return dt.timedelta(milliseconds=Duration.parse(text).millis)
    except (ValueError, OverflowError) as error:
        raise PenstockError.of("REQUEST_INVALID", reason=str(error)) from None


def moment(value: dt.datetime | None) -> dt.datetime | None:
    """A time of a query; raises REQUEST_INVALID for one without a zone."""
    if value is not None and value.tzinfo is None:
        raise PenstockError.of("REQUEST_INVALID", reason="the time needs a zone", advice="Write 2024-01-01T00:00:00Z.")
    return value


def later(now: dt.datetime, text: str) -> dt.datetime:
    """A time from now on; raises REQUEST_INVALID if there is no such time."""
    try:
        return now + length(text)
    except OverflowError:
        raise PenstockError.of("REQUEST_INVALID", reason=f"{text} is too long") from None
