"""Turns frozen dataclasses into plain JSON values and back.

Unknown keys are ignored and missing ones take their defaults, so that an older runner and a newer server, or the other
way round, understand each other.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
import types
import typing
from collections.abc import Hashable, Mapping
from functools import cache
from typing import Any, TypeVar

_T = TypeVar("_T")


def plain(value: Any) -> Any:
    """The value as mappings, lists, texts and numbers; what is infinite or not a number becomes null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, dt.datetime):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def read(kind: type[_T], found: Any) -> _T:
    """The dataclass of this kind; raises ValueError if what was found is something else."""
    if not isinstance(found, Mapping):
        raise ValueError(f"{kind.__name__} is not a mapping")
    hints = _hints(typing.cast(Hashable, kind))
    given = {name: _value(hint, found[name], name) for name, hint in hints.items() if name in found}
    try:
        return kind(**given)
    except TypeError as error:
        raise ValueError(str(error)) from None


@cache
def _hints(kind: Hashable) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _value(hint: Any, found: Any, name: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return found
    if origin in (typing.Union, types.UnionType):
        if found is None and type(None) in arguments:
            return None
        return _value(next(argument for argument in arguments if argument is not type(None)), found, name)
    if origin is typing.Literal:
        return _checked(found in arguments, found, name)
    if origin is tuple:
        return tuple(_value(arguments[0], inner, name) for inner in _checked(isinstance(found, list), found, name))
    if origin is not None and issubclass(origin, Mapping):
        mapping = _checked(isinstance(found, Mapping), found, name)
        return {str(key): _value(arguments[1], inner, name) for key, inner in mapping.items()}
    if dataclasses.is_dataclass(hint):
        return read(typing.cast(type, hint), found)
    if hint is dt.datetime:
        return _time(found, name)
    if hint is float:
        return float(_checked(isinstance(found, int | float) and not isinstance(found, bool), found, name))
    if hint is int:
        return _checked(isinstance(found, int) and not isinstance(found, bool), found, name)
    return _checked(isinstance(found, hint), found, name)


def _checked(fits: bool, found: Any, name: str) -> Any:
    if not fits:
        raise ValueError(f"'{name}' cannot be {found!r}")
    return found


def _time(found: Any, name: str) -> dt.datetime:
    time = dt.datetime.fromisoformat(_checked(isinstance(found, str), found, name))
    return _checked(time.tzinfo is not None, time, name)  # type: ignore[no-any-return]
