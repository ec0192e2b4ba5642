"""Long lists in pages: each is found by the key after which it starts, so that a page costs the same wherever it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sqlalchemy import ColumnElement, Connection, RowMapping, Select

LARGEST = 1000
_T = TypeVar("_T")


@dataclass(frozen=True)
class Page(Generic[_T]):
    """Some rows in order, and the key after which the next page starts; None on the last."""

    items: tuple[_T, ...]
    next: str | None


def page(
    connection: Connection,
    query: Select[Any],
    key: ColumnElement[Any],
    make: Callable[[RowMapping], _T],
    *,
    limit: int,
    after: Any = None,
    newest_first: bool = False,
) -> Page[_T]:
    """One page of a query, ordered by a column that no two rows share."""
    limit = max(1, min(limit, LARGEST))
    if after is not None:
        query = query.where(key < after if newest_first else key > after)
    query = query.order_by(key.desc() if newest_first else key).limit(limit + 1)
    rows = connection.execute(query).mappings().all()
    last = str(rows[limit - 1][key]) if len(rows) > limit else None
    return Page(tuple(make(row) for row in rows[:limit]), last)
