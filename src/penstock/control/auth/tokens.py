"""Tokens: 256 random bits that are shown once and kept as a hash."""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from penstock.control.auth.roles import Access, Grant, Role
from penstock.control.store import access
from penstock.control.store.database import Store
from penstock.errors import PenstockError

PREFIX = "pst_"
_TEXT = re.compile(r"pst_[A-Za-z0-9_-]{43}")
_USED = dt.timedelta(minutes=1)
"""How exact the time of last use is."""
_KNOWN = dt.timedelta(seconds=2)
_MOST_KNOWN = 10_000


def new_token() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def digest(token: str) -> str:
    """What is kept of a token. A slow hash would protect guessable texts; these cannot be guessed."""
    return hashlib.sha256(token.encode("utf-8")).hexdigest()


class Doorman:
    """Tells who a token belongs to. What it has just learnt from the store it knows for two seconds.

    When tokens are used is noted to the minute; a store that takes no writes is not asked more often either.
    """

    def __init__(self, store: Store, of_groups: Callable[[Sequence[str]], Sequence[Access]] = lambda _: ()) -> None:
        self._store = store
        self._of_groups = of_groups
        """What the groups of a person open, by the configuration of now."""
        self._known: dict[str, tuple[access.Token, dt.datetime]] = {}
        self._noted: dict[str, dt.datetime] = {}

    def recognise(self, token: str, now: dt.datetime) -> Grant | None:
        """The bearer, if that is known without asking the store."""
        found, asked = self._known.get(digest(token), (None, now))
        if found is None or not dt.timedelta(0) <= now - asked < _KNOWN or not _valid(found, now):
            return None
        return self._grant(found)

    def has_seen(self, token: str) -> bool:
        """Whether it was valid once, as far as that is still known."""
        return digest(token) in self._known

    def authenticate(self, token: str, now: dt.datetime) -> Grant:
        """The bearer; raises UNAUTHENTICATED. All reasons sound the same to those who try."""
        found = self._found(token) if _TEXT.fullmatch(token) else None
        grant = None if found is None or not _valid(found, now) else self._grant(found)
        if found is None or grant is None:
            raise _unknown()
        if len(self._known) > _MOST_KNOWN:
            self._known.clear()
        self._known[found.hash] = (found, now)
        self._note_use(found.id, now)
        return grant

    def forget(self) -> None:
        """For when a token is taken back."""
        self._known.clear()

    def _found(self, token: str) -> access.Token | None:
        with self._store.reading() as connection:
            found = access.token_with_hash(connection, digest(token))
        return found if found is not None and hmac.compare_digest(found.hash, digest(token)) else None

    def _grant(self, token: access.Token) -> Grant | None:
        """What it opens; None for the session of a person whose groups open nothing any more."""
        if token.groups is None:
            return Grant(token.name, Role(token.role), dict(token.scope), token.id, token.session)
        found = self._of_groups(token.groups)
        return Grant.of(token.name, found, token.id, session=True) if found else None

    def _note_use(self, token: str, now: dt.datetime) -> None:
        if token in self._noted and now - self._noted[token] < _USED:
            return
        self._noted[token] = now
        # A store that takes no writes now still lets people look.
        with suppress(PenstockError), self._store.writing() as connection:
            access.note_use(connection, token, now=now)


def _valid(token: access.Token, now: dt.datetime) -> bool:
    return token.revoked_at is None and (token.expires_at is None or token.expires_at > now)


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
