"""Rows as values: what is read from a table is a frozen dataclass of the same columns."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, RowMapping, Table, insert
from sqlalchemy.dialects import postgresql, sqlite

_T = TypeVar("_T")


def maker(cls: type[_T]) -> Callable[[RowMapping], _T]:
    """What turns a row into a value of a dataclass; columns it does not have are left out."""
    fields = itemgetter(*(field.name for field in dataclasses.fields(cls)))  # type: ignore[arg-type]

    def make(row: RowMapping) -> _T:
        return cls(*fields(row))

    return make


def insert_numbered(connection: Connection, table: Table, values: Mapping[str, Any]) -> int:
    """Inserts a row; the number it got."""
    statement = insert(table).values(dict(values)).returning(table.c.id)
    return int(connection.execute(statement).scalar_one())


def insert_missing(
    connection: Connection, table: Table, rows: Iterable[Mapping[str, Any]], returning: Sequence[str] = ()
) -> Sequence[RowMapping]:
    """Inserts rows but those whose key is there already; of the new ones the columns that are asked for."""
    values = [dict(row) for row in rows]
    if not values:
        return []
    module = postgresql if connection.dialect.name == "postgresql" else sqlite
    columns = [table.c[name] for name in returning] or list(table.primary_key.columns)
    statement = module.insert(table).on_conflict_do_nothing().returning(*columns)
    return connection.execute(statement, values).mappings().all()


def insert_or_replace(
    connection: Connection, table: Table, rows: Iterable[Mapping[str, Any]], key: Sequence[str]
) -> None:
    """Inserts rows; one whose key is there already is replaced."""
    values = [dict(row) for row in rows]
    if not values:
        return
    module = postgresql if connection.dialect.name == "postgresql" else sqlite
    statement = module.insert(table)
    new = {name: statement.excluded[name] for name in values[0] if name not in key}
    connection.execute(statement.on_conflict_do_update(index_elements=[*key], set_=new), values)


def has_labels(labels: ColumnElement[Any], wanted: Mapping[str, str]) -> list[ColumnElement[bool]]:
    """Conditions that each label is there with this value."""
    return [labels[key].as_string() == value for key, value in sorted(wanted.items())]
