"""Building blocks of a spec: the frozen model all configuration derives from, and what each field declares."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError, PydanticUndefined


class Change(StrEnum):
    """What changing a field of a running pipeline costs."""

    NOTHING = "nothing"
    RESTART = "restart"
    RESCALE = "rescale"
    BOOTSTRAP = "bootstrap"
    LOSES_STATE = "loses state"


class Holds(StrEnum):
    """What the texts in a field are to those who open something, so that the right rule is asked."""

    PATH = "path"
    """A file, a folder or a pattern, or a place in an object store."""
    ADDRESS = "address"
    """A connection: a URL or a list of brokers. It may hold references to secrets."""
    LOGIN = "login"
    """A name, a password or a key with which to log in. It may hold references to secrets."""
    SQL = "sql"
    NAME = "name"
    """Of something inside: a column, a table, a topic, a step, a host's own word for something."""
    TEXT = "text"
    """Anything else, which opens nothing."""
    CODE = "code"
    """A reference to Python."""


class Config(BaseModel):
    """Frozen configuration: camelCase in files, snake_case in Python, unknown keys refused."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        validate_default=True,
        arbitrary_types_allowed=True,
    )


def field(
    default: Any = PydanticUndefined,
    *,
    doc: str,
    change: Change = Change.RESTART,
    secret: bool = False,
    holds: Holds | None = None,
    **kwargs: Any,
) -> Any:
    """A field of a `Config`: its documentation, default, secrecy, what it holds and the cost of changing it."""
    extra: dict[str, Any] = {"x-change": str(change), "x-secret": secret}
    if holds is not None:
        extra["x-holds"] = str(holds)
    return Field(default, description=doc, json_schema_extra=extra, **kwargs)


def unfit(reason: str, advice: str) -> PydanticCustomError:
    """What a validator raises when it knows what to do about a value."""
    return PydanticCustomError("unfit", "{reason}", {"reason": reason, "advice": advice})


def change_of(config: type[Config], name: str) -> Change:
    return Change(_extra(config, name)["x-change"])


def is_secret(config: type[Config], name: str) -> bool:
    return bool(_extra(config, name)["x-secret"])


def held_by(config: type[Config], name: str) -> Holds | None:
    """What the texts in a field are; None if nobody has said."""
    found = _extra(config, name).get("x-holds")
    return None if found is None else Holds(found)


def takes_secrets(config: type[Config], name: str) -> bool:
    """Whether references to secrets are looked up in a field."""
    return is_secret(config, name) or held_by(config, name) in (Holds.ADDRESS, Holds.LOGIN)


def _extra(config: type[Config], name: str) -> dict[str, Any]:
    extra = config.model_fields[name].json_schema_extra
    if not isinstance(extra, dict) or "x-change" not in extra:
        raise TypeError(f"{config.__name__}.{name} is not declared with penstock.spec.fields.field()")
    return dict(extra)
