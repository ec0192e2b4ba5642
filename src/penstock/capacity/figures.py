"""Figures in words: rates of bytes and rows, sizes, and lengths of time."""

from __future__ import annotations

_RATES = (("MB/s", 1e6), ("KB/s", 1e3), ("B/s", 1.0))
_SIZES = (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3))
_TIMES = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))


def number(value: float) -> str:
    """Whole from 100 on, and with up to two digits after the point below."""
    digits = 0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def byte_rate(value: float) -> str:
    """Bytes in a second: `400 MB/s`. Large ones stay in MB, so that they can be compared."""
    name, factor = next(((name, factor) for name, factor in _RATES if value >= factor), _RATES[-1])
    return f"{number(value / factor)} {name}" if value else "0 MB/s"


def byte_size(value: float) -> str:
    name, factor = next(((name, factor) for name, factor in _SIZES if value >= factor), ("B", 1.0))
    return f"{number(value / factor)} {name}"


def binary_size(value: float) -> str:
    """As memory is counted: `384 MiB`."""
    name, factor = next(((n, f) for n, f in (("GiB", 1024**3), ("MiB", 1024**2)) if abs(value) >= f), ("KiB", 1024))
    return f"{number(value / factor)} {name}"


def row_rate(value: float) -> str:
    return f"{number(value)} rows/s"


def length(seconds: float) -> str:
    """A length of time in its largest units: `3 h 6 min`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds else "0 s"
    left, parts = round(seconds), list[str]()
    for name, size in _TIMES:
        if left >= size and len(parts) < 2:
            parts.append(f"{left // size} {name}")
            left %= size
    return " ".join(parts)


def time_of_day(second: float) -> str:
    whole = int(second) % 86_400
    return f"{whole // 3600:02}:{whole % 3600 // 60:02}"


def share(value: float) -> str:
    return f"{value * 100:.0f}%"
