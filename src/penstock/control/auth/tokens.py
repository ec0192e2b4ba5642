"""Tokens: 256 random bits that are shown once and kept as a hash."""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import os
import re
import secrets
from contextlib import suppress
from pathlib import Path

from penstock.control.auth.roles import Grant, Role
from penstock.control.store import access
from penstock.control.store.database import Store
from penstock.errors import PenstockError

PREFIX = "pst_"
_TEXT = re.compile(r"pst_[A-Za-z0-9_-]{43}")
_USED = dt.timedelta(minutes=1)
"""How exact the time of last use is."""


def new_token() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def digest(token: str) -> str:
    """What is kept of a token. A slow hash would protect guessable texts; these cannot be guessed."""
    return hashlib.sha256(token.encode("utf-8")).hexdigest()


class Uses:
    """When tokens were used, to the minute; a store that takes no writes is not asked more often either."""

    def __init__(self) -> None:
        self._noted: dict[str, dt.datetime] = {}

    def note(self, store: Store, token: str, now: dt.datetime) -> None:
        if token in self._noted and now - self._noted[token] < _USED:
            return
        self._noted[token] = now
        # A store that takes no writes now still lets people look.
        with suppress(PenstockError), store.writing() as connection:
            access.note_use(connection, token, now=now)


def authenticate(store: Store, token: str, now: dt.datetime, uses: Uses | None = None) -> Grant:
    """Who a token belongs to; raises UNAUTHENTICATED. All reasons sound the same to those who try."""
    if not _TEXT.fullmatch(token):
        raise _unknown()
    with store.reading() as connection:
        found = access.token_with_hash(connection, digest(token))
    if found is None or not hmac.compare_digest(found.hash, digest(token)):
        raise _unknown()
    if found.revoked_at is not None or (found.expires_at is not None and found.expires_at <= now):
        raise _unknown()
    if uses is not None:
        uses.note(store, found.id, now)
    return Grant(found.name, Role(found.role), dict(found.scope), found.id, found.session)


def _unknown() -> PenstockError:
    return PenstockError.of("UNAUTHENTICATED", reason="the token is unknown, expired or revoked")


def ensure_admin(store: Store, folder: Path, now: dt.datetime) -> str | None:
    """Makes the first token of an admin, and writes it to `admin.token`; None if there is one already.

    The file comes first: cut off in between, the next start makes another.
    """
    with store.writing() as connection:
        if access.has_admin(connection, now):
            return None
        token = new_token()
        _write_private(folder / "admin.token", token)
        made = access.add_token(connection, "first admin", digest(token), role=Role.ADMIN, now=now)
        access.add_audit(connection, now=now, who="server", role="admin", action="token.create", what=made.id)
    return token


def _write_private(path: Path, text: str) -> None:
    hidden = path.with_name(f".{path.name}.{os.getpid()}")
    hidden.unlink(missing_ok=True)
    with os.fdopen(os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text + "\n")
    hidden.replace(path)
