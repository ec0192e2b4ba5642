"""What sinks with a `key` have in common: which of several rows of one key counts, and which row deletes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from penstock.errors import Problem, did_you_mean

KEY = "Columns that identify a row; none means append."
VERSION = "Column that says which of two rows of one key is newer; default: the one that comes later."
DELETE = "Boolean column, not stored itself: a row in which it is true deletes the row of its key."


class Keyed(Protocol):
    """The settings of such a sink."""

    @property
    def key(self) -> tuple[str, ...]: ...

    @property
    def version(self) -> str | None: ...

    @property
    def delete(self) -> str | None: ...


def key_problems(sink: Keyed, where: str) -> Iterator[Problem]:
    for setting, column in (("version", sink.version), ("delete", sink.delete)):
        if column is not None and not sink.key:
            advice = f"`{setting}` goes with a `key`."
            yield Problem("SPEC_MISSING_KEY", {"key": "key", "where": where, "advice": advice})
    if sink.delete is not None and sink.delete in (*sink.key, sink.version):
        reason = f"`delete` names '{sink.delete}', which is the key or the version"
        yield Problem("SPEC_BAD_VALUE", {"where": where, "reason": reason, "advice": "It needs its own column."})


def key_column_problems(sink: Keyed, node: str, columns: Mapping[str, str]) -> Iterator[Problem]:
    for column in (*sink.key, *filter(None, (sink.version, sink.delete))):
        if column not in columns:
            hint = did_you_mean(column, columns)
            yield Problem("SINK_COLUMN_UNKNOWN", {"node": node, "column": column, "suggestion": hint})
    found = columns.get(sink.delete or "", "boolean")
    if found != "boolean":
        yield Problem("COLUMN_TYPE", {"node": node, "column": sink.delete, "wanted": "boolean", "found": found})
