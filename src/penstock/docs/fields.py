"""Settings of components, pipelines and servers in words: their types, limits, defaults, and what a change costs."""

from __future__ import annotations

import datetime as dt
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Literal

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from pydantic.fields import FieldInfo

from penstock.capacity.units import ByteSize, Count, DiskSpeed, NetworkSpeed, RowRate, Share
from penstock.docs.markdown import table
from penstock.spec import pipeline as spec
from penstock.spec.conditions import Condition
from penstock.spec.fields import Change, Config, change_of, is_secret
from penstock.spec.schema import Schema
from penstock.spec.units import Duration, Size

_CHANGES = {
    Change.NOTHING: "takes effect without a restart",
    Change.RESTART: "takes effect when the pipeline is started again; state is kept",
    Change.RESCALE: "state has to be divided anew",
    Change.BOOTSTRAP: "rows that were read before do not fit any more; start from empty state to have them read again",
    Change.LOSES_STATE: "saved state or stored output no longer belongs to it; start from empty state",
}


_SIMPLE_TYPES: dict[Any, str] = {
    str: "text", int: "whole number", float: "number", bool: "true or false", dt.datetime: "time", Any: "any value",
    Duration: "duration", Size: "size", Schema: "schema", Condition: "condition", ByteSize: "size",
    NetworkSpeed: "bits a second", DiskSpeed: "bytes a second", RowRate: "rows in a time", Count: "number",
    Share: "share",
}  # fmt: skip


def legend() -> str:
    rows = [[f"*{change}*", words] for change, words in _CHANGES.items()]
    intro = "The column *Changing it* says what a new value means for a pipeline that has run:"
    return f"{intro}\n\n{table(['Cost', 'What it means'], rows)}".rstrip()


def fields_table(cls: type[Config], keys: Mapping[str, str] | None = None) -> str:
    """The fields of a configuration; `keys` says which are shown under another key."""
    rows = []
    for name, info in cls.model_fields.items():
        key = (keys or {}).get(name, f"`{info.alias or name}`")
        secret = "yes" if is_secret(cls, name) else "no"
        change = str(change_of(cls, name))
        rows.append([key, type_in_words(info), default(info), info.description or "", change, secret])
    return table(["Key", "Type", "Default", "What it is", "Changing it", "Secret"], rows)


def type_in_words(info: FieldInfo) -> str:
    limits = ", ".join(_limits(info.metadata))
    words = _words(info.annotation)
    return f"{words}, {limits}" if limits else words


def _words(annotation: Any) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(_words(member) for member in arguments if member is not type(None))
    if origin is Literal:
        return "one of " + ", ".join(f"`{value}`" for value in arguments)
    if origin in (tuple, list):
        by_name = arguments[0] in (spec.Source, spec.Step, spec.Sink)
        return "mapping of names to entries, see below" if by_name else f"list of {_several(_words(arguments[0]))}"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"mapping of names to {_several(_words(arguments[1]))}"
    if isinstance(annotation, type) and issubclass(annotation, Config):
        return "mapping, see below" if annotation is not Config else "mapping"
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return "one of " + ", ".join(f"`{value}`" for value in annotation)
    return _SIMPLE_TYPES.get(annotation, "mapping")


def _several(words: str) -> str:
    plural = {"text": "texts", "any value": "values", "mapping, see below": "entries, see below"}
    return plural.get(words, words.replace("mapping of", "mappings of", 1).replace("list of", "lists of", 1))


def _limits(metadata: Iterable[Any]) -> Iterator[str]:
    for limit in metadata:
        if isinstance(limit, Ge):
            yield f"at least {limit.ge:,}"
        elif isinstance(limit, Gt):
            yield f"more than {limit.gt:,}"
        elif isinstance(limit, Le):
            yield f"at most {_number(limit.le)}"
        elif isinstance(limit, Lt):
            yield f"less than {limit.lt:,}"
        elif isinstance(limit, MinLen) and limit.min_length == 1:
            yield "not empty"
        elif isinstance(limit, MaxLen):
            yield f"no longer than {limit.max_length}"
        elif getattr(limit, "pattern", None):
            yield f"fitting `{limit.pattern}`"


def _number(value: Any) -> str:
    return f"{int(value):,}" if float(value).is_integer() else f"{value:,}"


def default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    value = info.default
    if value is None or value in ((), {}):
        return "none"
    if isinstance(value, Config) or (isinstance(value, dict) and isinstance(next(iter(value.values())), Config)):
        return "see below"
    if isinstance(value, tuple):
        return ", ".join(f"`{item}`" for item in value)
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"
