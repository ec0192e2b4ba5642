"""What a SQL step asks of state, as far as its text tells: groups, duplicates, joins, and what bounds them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

_WINDOW = re.compile(r"\bwindow\s*\(", re.IGNORECASE)
"""The parser takes `window(` after a table for a clause of its own."""
_COLUMN = re.compile(r"(?<!`)\bwindow\b(?!\s*\(|\s+\w+\s+as\b)", re.IGNORECASE)
"""The same where it is a column, and not a clause that names a window."""
_TIME_WINDOWS = ("time_window", "session_window")
_TIMES = ("window", "window_start", "window_end")


@dataclass(frozen=True)
class SqlShape:
    """What state a query needs."""

    groups: bool = False
    """Whether it aggregates, or drops duplicates."""
    by_time: bool = False
    """Whether its groups end with time: they are windows, or made by a column of time."""
    joined: tuple[str, ...] = ()
    """The inputs that it joins."""
    join_bounded: bool = True
    """Whether every join says how far apart in time its rows may be."""

    @property
    def stateful(self) -> bool:
        return self.groups or bool(self.joined)


@lru_cache(maxsize=1024)
def shape_of(query: str, inputs: tuple[str, ...], times: frozenset[str]) -> SqlShape:
    """The shape of a query over these inputs, whose event time is in one of these columns.

    A query that cannot be read here counts as stateless: only Spark can tell, and `penstock explain` does.
    """
    try:
        readable = _COLUMN.sub("`window`", _WINDOW.sub("time_window(", query))
        tree = sqlglot.parse_one(readable, dialect="spark")
    except SqlglotError:
        return SqlShape()
    selects = list(tree.find_all(exp.Select))
    grouping = [select for select in selects if _groups(select)]
    joins = [select for select in selects if len(_tables(select, inputs)) > 1]
    return SqlShape(
        groups=bool(grouping),
        by_time=bool(grouping) and all(_by_time(select, times | set(_TIMES)) for select in grouping),
        joined=tuple(dict.fromkeys(name for select in joins for name in _tables(select, inputs))),
        join_bounded=all(_bounded(select) for select in joins),
    )


def _groups(select: exp.Select) -> bool:
    if select.args.get("group") or select.args.get("distinct"):
        return True
    found = (node for node in select.find_all(exp.AggFunc) if node.find_ancestor(exp.Select) is select)
    return any(node.find_ancestor(exp.Window, exp.Select) is select for node in found)


def _by_time(select: exp.Select, times: frozenset[str]) -> bool:
    group = select.args.get("group")
    # Without GROUP BY it is DISTINCT, whose key is all columns, or one group of all rows.
    keys = group.expressions if group else select.expressions if select.args.get("distinct") else []
    return any(_is_time(key, times) for key in keys)


def _is_time(key: exp.Expr, times: frozenset[str]) -> bool:
    """A window, or a column of time as it is: what is computed of one has no watermark."""
    if isinstance(key, exp.Column):
        return key.name in times or key.table in times
    return any(str(call.name).lower() in _TIME_WINDOWS for call in key.find_all(exp.Anonymous))


def _tables(select: exp.Select, inputs: tuple[str, ...]) -> list[str]:
    """The inputs that a SELECT reads itself, once for each time it names them."""
    source = select.args.get("from_") or select.args.get("from")
    named = [source.this] if source is not None else []
    named += [join.this for join in select.args.get("joins") or []]
    return [table.name for table in named if isinstance(table, exp.Table) and table.name in inputs]


def _bounded(select: exp.Select) -> bool:
    """Whether a condition adds or takes away an interval, or compares times of windows."""
    parts = [select.args.get("where"), *(join.args.get("on") for join in select.args.get("joins") or [])]
    using = [str(name) for join in select.args.get("joins") or [] for name in join.args.get("using") or []]
    return (
        any(part is not None and part.find(exp.Interval) is not None for part in parts)
        or any(column.name in _TIMES for part in parts if part is not None for column in part.find_all(exp.Column))
        or any(name.strip("`") in _TIMES for name in using)
    )
