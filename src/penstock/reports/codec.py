"""Turns frozen dataclasses into plain values, and their JSON back into them.

Unknown keys are ignored and missing ones take their defaults, so that an older runner and a newer server, or the other
way round, understand each other.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import TypeAdapter

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


def read(kind: type[_T], text: bytes | str) -> _T:
    """The dataclass of this kind out of its JSON; raises ValueError if it is something else."""
    if kind not in _READERS:
        _READERS[kind] = TypeAdapter(kind)
    return _READERS[kind].validate_json(text, strict=True)  # type: ignore[no-any-return]


_READERS: dict[type, TypeAdapter[Any]] = {}
