"""Durations and sizes as people write them, parsed once into exact numbers."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Self

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

_MILLIS = {
    "ms": 1, "millisecond": 1, "milliseconds": 1,
    "s": 1000, "sec": 1000, "secs": 1000, "second": 1000, "seconds": 1000,
    "m": 60_000, "min": 60_000, "mins": 60_000, "minute": 60_000, "minutes": 60_000,
    "h": 3_600_000, "hour": 3_600_000, "hours": 3_600_000,
    "d": 86_400_000, "day": 86_400_000, "days": 86_400_000,
    "w": 604_800_000, "week": 604_800_000, "weeks": 604_800_000,
}  # fmt: skip
_BYTES = {
    "b": 1, "": 1,
    "kb": 1000, "mb": 1000**2, "gb": 1000**3, "tb": 1000**4,
    "kib": 1024, "mib": 1024**2, "gib": 1024**3, "tib": 1024**4,
}  # fmt: skip
_LONGEST = 100
"""Characters: what is longer was not written by a person, and its digits would take long to add up."""
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)")
_NAMES = (("week", 604_800_000), ("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000))


class Parsed(ABC):
    """Shared by what is written as text: lets pydantic build them from text and write them back as text."""

    @classmethod
    @abstractmethod
    def parse(cls, value: Any) -> Self:
        """The value that a text, or a value itself, stands for; raises ValueError."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls.parse, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return dict(cls.json_schema())

    @classmethod
    @abstractmethod
    def json_schema(cls) -> dict[str, Any]:
        """How editors are told what may be written."""


@dataclass(frozen=True, order=True)
class Duration(Parsed):
    """A length of time in whole milliseconds, written as `10 seconds`, `1h 30m` or `7 days`."""

    millis: int

    @classmethod
    def parse(cls, value: Any) -> Duration:
        if isinstance(value, Duration):
            return value
        text = value.strip() if isinstance(value, str) and len(value) <= _LONGEST else ""
        position, total = 0, Decimal(0)
        while position < len(text):
            part = _PART.match(text, position)
            if part is None or part[2].lower() not in _MILLIS:
                break
            total += Decimal(part[1]) * _MILLIS[part[2].lower()]
            position = part.end()
        if not text or position < len(text):
            raise ValueError(f"'{value}' is not a duration; write for example '10 seconds', '5 minutes' or '7 days'")
        if total != int(total):
            raise ValueError(f"'{value}' is finer than a millisecond")
        return cls(int(total))

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        pattern = r"^\s*(\d+(\.\d+)?\s*[a-zA-Z]+\s*)+$"
        return {"type": "string", "pattern": pattern, "examples": ["10 seconds", "5 minutes", "1h 30m", "7 days"]}

    @property
    def seconds(self) -> float:
        return self.millis / 1000

    def __str__(self) -> str:
        for name, size in _NAMES:
            if self.millis and self.millis % size == 0:
                count = self.millis // size
                return f"{count} {name}{'' if count == 1 else 's'}"
        return f"{self.millis} milliseconds"


@dataclass(frozen=True, order=True)
class Size(Parsed):
    """A number of bytes, written as `64MB` or `1 GiB`."""

    bytes: int

    @classmethod
    def parse(cls, value: Any) -> Size:
        if isinstance(value, Size):
            return value
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return cls(value)
        match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) and len(value) <= _LONGEST else None
        if match is None or match[2].lower() not in _BYTES:
            raise ValueError(f"'{value}' is not a size; write for example '64MB' or '1 GiB'")
        count = Decimal(match[1]) * _BYTES[match[2].lower()]
        if count != int(count):
            raise ValueError(f"'{value}' is not a whole number of bytes")
        return cls(int(count))

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        return {"type": ["string", "integer"], "examples": ["64MB", "1 GiB"]}

    def __str__(self) -> str:
        for name in ("TiB", "GiB", "MiB", "KiB", "TB", "GB", "MB", "KB"):
            size = _BYTES[name.lower()]
            if self.bytes and self.bytes % size == 0:
                return f"{self.bytes // size} {name}"
        return f"{self.bytes} B"
