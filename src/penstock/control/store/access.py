"""Tokens, of which only a hash is kept, and the log of who changed what."""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, insert, or_, select, update

from penstock.control.store.pages import Page, page
from penstock.control.store.records import maker
from penstock.control.store.schema import audit, tokens
from penstock.errors import PenstockError


@dataclass(frozen=True)
class Token:
    """A token without its text; `session` tells that a person logged in with it by a browser."""

    id: str
    name: str
    hash: str
    role: str
    scope: Mapping[str, str]
    groups: Sequence[str] | None
    """Groups of the person, by which it is decided at each request what a session opens; None for tokens."""
    session: bool
    created_at: dt.datetime
    expires_at: dt.datetime | None
    revoked_at: dt.datetime | None
    last_used_at: dt.datetime | None


@dataclass(frozen=True)
class AuditEntry:
    id: int
    at: dt.datetime
    who: str
    role: str
    action: str
    object: str
    detail: Mapping[str, Any]


_token = maker(Token)
_entry = maker(AuditEntry)


def add_token(
    connection: Connection,
    name: str,
    hashed: str,
    *,
    role: str,
    now: dt.datetime,
    scope: Mapping[str, str] | None = None,
    expires_at: dt.datetime | None = None,
    session: bool = False,
    groups: Sequence[str] | None = None,
) -> Token:
    values: dict[str, Any] = {}
    values |= {"id": f"t{secrets.token_hex(6)}", "name": name, "hash": hashed, "role": role, "scope": dict(scope or {})}
    values |= {"groups": None if groups is None else [*groups], "session": session}
    connection.execute(insert(tokens).values(**values, created_at=now, expires_at=expires_at))
    return get_token(connection, str(values["id"]))


def get_token(connection: Connection, token: str) -> Token:
    """Raises NOT_FOUND."""
    row = connection.execute(select(tokens).where(tokens.c.id == token)).mappings().first()
    if row is None:
        raise PenstockError.of("NOT_FOUND", what="token", name=token, advice="`penstock token list` shows them.")
    return _token(row)


def token_with_hash(connection: Connection, hashed: str) -> Token | None:
    row = connection.execute(select(tokens).where(tokens.c.hash == hashed)).mappings().first()
    return None if row is None else _token(row)


def has_admin(connection: Connection, now: dt.datetime) -> bool:
    """Whether a token of an admin is valid."""
    valid = (tokens.c.role == "admin", tokens.c.revoked_at.is_(None), tokens.c.session.is_(False))
    alive = or_(tokens.c.expires_at.is_(None), tokens.c.expires_at > now)
    return connection.execute(select(tokens.c.id).where(*valid, alive).limit(1)).first() is not None


def listed_tokens(connection: Connection, *, limit: int = 100, after: str | None = None) -> Page[Token]:
    return page(connection, select(tokens), tokens.c.id, _token, limit=limit, after=after)


def revoke_token(connection: Connection, token: str, *, now: dt.datetime) -> Token:
    """From now on it opens nothing; raises NOT_FOUND. Revoked twice, the first time counts."""
    connection.execute(update(tokens).where(tokens.c.id == token, tokens.c.revoked_at.is_(None)).values(revoked_at=now))
    return get_token(connection, token)


def note_use(connection: Connection, token: str, *, now: dt.datetime) -> None:
    connection.execute(update(tokens).where(tokens.c.id == token).values(last_used_at=now))


def add_audit(
    connection: Connection,
    *,
    now: dt.datetime,
    who: str,
    role: str,
    action: str,
    what: str,
    detail: Mapping[str, Any] | None = None,
) -> None:
    values = {"at": now, "who": who, "role": role, "action": action, "object": what, "detail": dict(detail or {})}
    connection.execute(insert(audit).values(values))


def listed_audit(
    connection: Connection, *, limit: int = 100, after: int | None = None, what: str | None = None
) -> Page[AuditEntry]:
    """Newest first."""
    query = select(audit) if what is None else select(audit).where(audit.c.object == what)
    return page(connection, query, audit.c.id, _entry, limit=limit, after=after, newest_first=True)
