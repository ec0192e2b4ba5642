"""Rates, sizes and shares as a scenario writes them. Bits and bytes are told apart: neither stands for the other."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar

from penstock.spec.units import Parsed

_LONGEST = 100
_NUMBER = r"(\d[\d,_]*(?:\.\d+)?)"
_DECIMAL = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_SIZE = re.compile(rf"{_NUMBER}\s*([kKMGTmgt]?)(i?)(B|[bB]ytes?)")
_BITS = re.compile(rf"{_NUMBER}\s*([kKMGTmgt]?)(?:b|[bB]its?)")
_NETWORK = re.compile(rf"{_NUMBER}\s*([kKMGTmgt])(?:(?:b|[bB]its?)(?:/s|ps| per second)|bE)")
_BYTES_A_SECOND = re.compile(r"(.*?)(?:/s|ps| per second| a second)", re.IGNORECASE)
_COUNT = re.compile(rf"{_NUMBER}\s*([kKmMbB]|thousand|million|billion)?")
_COUNTS = {"": 1, "k": 10**3, "thousand": 10**3, "m": 10**6, "million": 10**6, "b": 10**9, "billion": 10**9}
_PER = re.compile(r"/|(?<![a-zA-Z])(?:per|an?)\b")
_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*(%?)")
_PERIODS = {"s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60, "h": 3600, "hour": 3600, "d": 86_400,
            "day": 86_400}  # fmt: skip


@dataclass(frozen=True, order=True)
class ByteSize(Parsed):
    """A number of bytes, written as `2 KB`, `40 bytes` or `8 GiB`. `2 Kb` are bits, and refused."""

    bytes: int

    @classmethod
    def parse(cls, value: Any) -> ByteSize:
        if isinstance(value, ByteSize):
            return value
        found = _SIZE.fullmatch(_text(value))
        if found is None:
            if _BITS.fullmatch(_text(value)):
                raise ValueError(f"'{value}' is in bits, and a size is in bytes: write a capital B, such as '2 KB'")
            raise ValueError(f"'{value}' is not a size; write for example '40 bytes', '2 KB' or '8 GiB'")
        count = _number(found[1]) * _factor(found[2], binary=bool(found[3]))
        if count != int(count):
            raise ValueError(f"'{value}' is not a whole number of bytes")
        return cls(int(count))

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        return {"type": "string", "examples": ["40 bytes", "2 KB", "8 GiB"]}

    def __str__(self) -> str:
        for power in (4, 3, 2, 1):
            for name, base in (("iB", 1024), ("B", 1000)):
                if self.bytes and self.bytes % base**power == 0:
                    return f"{self.bytes // base**power} {'_KMGT'[power]}{name}"
        return f"{self.bytes} B"


@dataclass(frozen=True, order=True)
class NetworkSpeed(Parsed):
    """The speed of a network card in bits, written as `10 Gbit/s`, `10 Gbps` or `10 GbE`."""

    bits: int
    """In a second, in each direction."""

    @classmethod
    def parse(cls, value: Any) -> NetworkSpeed:
        if isinstance(value, NetworkSpeed):
            return value
        text = _text(value)
        found = _NETWORK.fullmatch(text)
        if found is None:
            raise ValueError(cls._reason(value, text))
        bits = _number(found[1]) * _factor(found[2])
        if bits != int(bits):
            raise ValueError(f"'{value}' is not a whole number of bits")
        return cls(int(bits))

    @staticmethod
    def _reason(value: Any, text: str) -> str:
        a_second = _BYTES_A_SECOND.fullmatch(text)
        amount = a_second[1].strip() if a_second else text
        size = _SIZE.fullmatch(amount)
        if size is not None:
            same = f"'{size[1]} {size[2].upper().replace('K', 'k')}bit/s'" if size[2] else "'10 Gbit/s'"
            in_bits = NetworkSpeed(ByteSize.parse(amount).bytes * 8)
            reason = f"'{value}' is in bytes, and a network's speed is in bits"
            return f"{reason}: write {same}, or '{in_bits}' if bytes are meant"
        bits = _BITS.fullmatch(amount)
        if bits is not None and a_second is None and bits[2]:
            said = f"{bits[1]} {bits[2].upper().replace('K', 'k')}bit/s"
            return f"'{value}' is an amount of bits, not a speed: write '{said}'"
        return f"'{value}' is not a network's speed; write for example '10 Gbit/s'"

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        return {"type": "string", "examples": ["10 Gbit/s", "25 Gbit/s"]}

    @property
    def bytes(self) -> float:
        """Bytes a second."""
        return self.bits / 8

    def __str__(self) -> str:
        name, factor = next(
            ((name, factor) for name, factor in (("G", 10**9), ("M", 10**6)) if self.bits >= factor), ("k", 10**3)
        )
        return f"{_plain(self.bits, factor)} {name}bit/s"


@dataclass(frozen=True, order=True)
class DiskSpeed(Parsed):
    """Bytes a second, written as `500 MB/s`."""

    bytes: int

    @classmethod
    def parse(cls, value: Any) -> DiskSpeed:
        if isinstance(value, DiskSpeed):
            return value
        found = _BYTES_A_SECOND.fullmatch(_text(value))
        if found is None:
            raise ValueError(f"'{value}' is not a disk's speed; write for example '500 MB/s'")
        return cls(ByteSize.parse(found[1].strip()).bytes)

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        return {"type": "string", "examples": ["500 MB/s", "1 GB/s"]}

    def __str__(self) -> str:
        return f"{ByteSize(self.bytes)}/s"


@dataclass(frozen=True, order=True)
class Count(Parsed):
    """A number of things, written as `500000000`, `500,000,000` or `500 million`."""

    value: int
    _noun: ClassVar[str] = "a number"

    @classmethod
    def parse(cls, value: Any) -> Count:
        if isinstance(value, Count):
            return value
        return cls(_whole(_counted(value), value))

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        return {"type": ["integer", "string"], "examples": [500000000, "500 million"]}

    def __str__(self) -> str:
        return f"{self.value:,}"


@dataclass(frozen=True, order=True)
class RowRate(Parsed):
    """Rows in a time, written as `1,000,000/s`, `600 thousand per minute` or `40 million per day`."""

    per_second: Fraction

    @classmethod
    def parse(cls, value: Any) -> RowRate:
        if isinstance(value, RowRate):
            return value
        text = _text(value)
        found = next(reversed([*_PER.finditer(text)]), None)
        period = text[found.end() :].strip().lower() if found else ""
        if found is None or (period.removesuffix("s") not in _PERIODS and period not in _PERIODS):
            counted = isinstance(value, int) or _COUNT.fullmatch(_text(value))
            example = f"{value}/s" if counted and not isinstance(value, bool) else "1,000,000/s"
            raise ValueError(f"'{value}' does not say in which time; write for example '{example}' or '600/min'")
        seconds = _PERIODS.get(period) or _PERIODS[period.removesuffix("s")]
        return cls(_counted(text[: found.start()].rstrip()) / seconds)

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        return {"type": "string", "examples": ["1,000,000/s", "600 thousand per minute"]}

    def __str__(self) -> str:
        for name, seconds in (("s", 1), ("min", 60), ("h", 3600), ("day", 86_400)):
            if (self.per_second * seconds).denominator == 1:
                return f"{int(self.per_second * seconds):,}/{name}"
        return f"{float(self.per_second):,.3f}/s"


@dataclass(frozen=True, order=True)
class Share(Parsed):
    """A part of a whole, written as `25%` or `0.25`."""

    value: float

    @classmethod
    def parse(cls, value: Any) -> Share:
        if isinstance(value, Share):
            return value
        if isinstance(value, int | float) and not isinstance(value, bool):
            _text(value)
            share = float(value)
        else:
            found = _SHARE.fullmatch(_text(value))
            if found is None:
                raise ValueError(f"'{value}' is not a share; write for example '25%' or 0.25")
            share = float(Decimal(found[1]) / (100 if found[2] else 1))
        if not 0 <= share <= 1:
            percent = f"; write '{share:g}%' if that is meant" if 1 < share <= 100 and "%" not in str(value) else ""
            raise ValueError(f"'{value}' is not between 0% and 100%{percent}")
        return cls(share)

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        return {"type": ["string", "number"], "examples": ["25%", 0.25]}

    def __str__(self) -> str:
        return f"{round(self.value * 100, 6):g}%"


def _text(value: Any) -> str:
    """The text to read, empty for what is none; raises ValueError for what is less than nothing."""
    if (isinstance(value, str) and value.strip().startswith("-")) or (isinstance(value, int | float) and value < 0):
        raise ValueError(f"'{value}' is negative")
    return value.strip() if isinstance(value, str) and len(value) <= _LONGEST else ""


def _number(text: str) -> Decimal:
    return Decimal(text.replace(",", "").replace("_", ""))


def _factor(prefix: str, *, binary: bool = False) -> int:
    if not binary:
        return _DECIMAL[prefix.lower()]
    return int(1024 ** {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}[prefix.lower()])


def _counted(value: Any) -> Fraction:
    text = _text(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return Fraction(value)
    found = _COUNT.fullmatch(text)
    if found is None:
        raise ValueError(f"'{value}' is not a number of things; write for example 500000000 or '500 million'")
    return Fraction(_number(found[1])) * _COUNTS[(found[2] or "").lower()]


def _whole(count: Fraction, written: Any) -> int:
    if count.denominator != 1:
        raise ValueError(f"'{written}' is not a whole number")
    return int(count)


def _plain(count: int, factor: int) -> str:
    """A count in a larger unit, to the last digit."""
    return f"{(Decimal(count) / factor).normalize():f}"
