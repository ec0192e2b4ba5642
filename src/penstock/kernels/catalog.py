"""Kernels as JSON values: so that state can be read by who does not have the pipeline that keeps it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import pyarrow as pa

from penstock.kernels.aggregate import Aggregate
from penstock.kernels.base import Kernel
from penstock.kernels.changelog_join import ChangelogJoin
from penstock.kernels.dedupe import Dedupe
from penstock.kernels.geo_window import GeoWindow
from penstock.kernels.interval_join import IntervalJoin
from penstock.kernels.latest import Latest
from penstock.kernels.rolling import Rolling
from penstock.kernels.session import Session
from penstock.kernels.top_n import TopN
from penstock.kernels.window import Window

_KERNELS: dict[str, type[Kernel]] = {
    kind.__name__: kind
    for kind in (ChangelogJoin, Dedupe, GeoWindow, IntervalJoin, Latest, Rolling, Session, TopN, Window)
}
_SCHEMA, _AGGREGATE = "schema", "aggregate"


def written(kernel: Kernel) -> dict[str, Any] | None:
    """A kernel as JSON values; None for one that is not of Penstock's own."""
    name = type(kernel).__name__
    if _KERNELS.get(name) is not type(kernel):
        return None
    given = {item.name: _plain(getattr(kernel, item.name)) for item in fields(kernel)}  # type: ignore[arg-type]
    return {"kernel": name, "fields": given}


def understood(found: Mapping[str, Any]) -> Kernel:
    """The kernel that was written; raises ValueError if this Penstock has no such one."""
    kind = _KERNELS.get(str(found.get("kernel")))
    if kind is None:
        raise ValueError(f"there is no kernel called {found.get('kernel')!r}")
    try:
        return kind(**{name: _value(value) for name, value in dict(found["fields"]).items()})
    except (KeyError, TypeError, AttributeError, pa.ArrowException) as error:
        raise ValueError(f"{found.get('kernel')} cannot be understood: {error}") from None


def _plain(value: Any) -> Any:
    if isinstance(value, pa.Schema):
        return {_SCHEMA: base64.b64encode(value.serialize()).decode()}
    if isinstance(value, Aggregate):
        return {_AGGREGATE: asdict(value)}
    return [_plain(inner) for inner in value] if isinstance(value, tuple | list) else value


def _value(found: Any) -> Any:
    if isinstance(found, Mapping):
        if _SCHEMA in found:
            return pa.ipc.read_schema(pa.BufferReader(base64.b64decode(found[_SCHEMA])))
        return Aggregate(**found[_AGGREGATE])
    return tuple(_value(inner) for inner in found) if isinstance(found, list) else found
