"""Counts what a store is asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import event

from penstock.control.store.database import Store


@contextmanager
def statements(store: Store) -> Iterator[list[str]]:
    """The statements that the store gets meanwhile, from whichever thread; beginning a transaction is none."""
    found: list[str] = []

    def note(_: Any, __: Any, statement: str, *___: Any) -> None:
        if not statement.startswith("BEGIN"):
            found.append(statement)

    event.listen(store.engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(store.engine, "before_cursor_execute", note)
