"""Tokens, roles, scopes, and the limit on failed logins."""

from __future__ import annotations

import datetime as dt
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.auth import attempts
from penstock.control.auth.attempts import FailedLogins
from penstock.control.auth.roles import Grant, Role
from penstock.control.auth.tokens import Doorman, digest, ensure_admin, new_token
from penstock.control.store import access
from penstock.control.store.database import Store
from penstock.errors import PenstockError

T0 = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)
MINUTE = dt.timedelta(minutes=1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.in_folder(tmp_path)
    store.migrate()
    yield store
    store.close()


def refused(store: Store, token: str, now: dt.datetime = T0) -> str:
    with pytest.raises(PenstockError) as raised:
        Doorman(store).authenticate(token, now)
    return raised.value.problems[0].message


def test_the_first_start_makes_an_admin_whose_token_only_the_owner_reads(store: Store, tmp_path: Path) -> None:
    token = ensure_admin(store, tmp_path, T0)
    assert token is not None
    assert (tmp_path / "admin.token").read_text() == token + "\n"
    assert stat.S_IMODE((tmp_path / "admin.token").stat().st_mode) == 0o600
    assert Doorman(store).authenticate(token, T0).role is Role.ADMIN
    assert ensure_admin(store, tmp_path, T0) is None


def test_no_two_servers_have_the_same_first_token() -> None:
    assert len({new_token() for _ in range(100)}) == 100
    assert all(len(new_token()) == 47 for _ in range(100))


def test_a_lost_admin_is_replaced(store: Store, tmp_path: Path) -> None:
    first = ensure_admin(store, tmp_path, T0)
    with store.writing() as connection:
        for token in access.listed_tokens(connection).items:
            access.revoke_token(connection, token.id, now=T0)
    second = ensure_admin(store, tmp_path, T0)
    assert second is not None
    assert second != first


def test_the_store_holds_no_token(store: Store, tmp_path: Path) -> None:
    token = ensure_admin(store, tmp_path, T0)
    assert token is not None
    store.close()
    content = b"".join(path.read_bytes() for path in tmp_path.glob("penstock.db*"))
    assert token.encode() not in content
    assert digest(token).encode() in content


def test_unknown_expired_and_revoked_tokens_sound_the_same(store: Store) -> None:
    expired, revoked = new_token(), new_token()
    with store.writing() as connection:
        access.add_token(connection, "x", digest(expired), role="admin", now=T0, expires_at=T0 + MINUTE)
        made = access.add_token(connection, "y", digest(revoked), role="admin", now=T0)
    assert Doorman(store).authenticate(expired, T0).who == "x"
    assert Doorman(store).authenticate(revoked, T0).who == "y"
    with store.writing() as connection:
        access.revoke_token(connection, made.id, now=T0)
    told = {
        refused(store, expired, T0 + MINUTE),
        refused(store, revoked),
        refused(store, new_token()),
        refused(store, ""),
    }
    assert len(told) == 1


def test_what_was_learnt_is_known_for_a_moment_only(store: Store) -> None:
    token = new_token()
    with store.writing() as connection:
        made = access.add_token(connection, "x", digest(token), role="viewer", now=T0, expires_at=T0 + MINUTE)
    doorman = Doorman(store)
    assert doorman.recognise(token, T0) is None
    doorman.authenticate(token, T0)
    assert doorman.recognise(token, T0 + dt.timedelta(seconds=1)) is not None
    assert doorman.recognise(token, T0 + dt.timedelta(seconds=2)) is None
    assert doorman.recognise(token, T0 - dt.timedelta(seconds=1)) is None
    doorman.authenticate(token, T0 + MINUTE - dt.timedelta(seconds=1))
    assert doorman.recognise(token, T0 + MINUTE) is None
    doorman.authenticate(token, T0)
    with store.writing() as connection:
        access.revoke_token(connection, made.id, now=T0)
    doorman.forget()
    assert doorman.recognise(token, T0) is None
    assert refused(store, token)


def test_use_is_noted_to_the_minute(store: Store) -> None:
    token = new_token()
    with store.writing() as connection:
        made = access.add_token(connection, "x", digest(token), role="viewer", now=T0)
    doorman = Doorman(store)
    for seconds in (0, 30, 61):
        doorman.authenticate(token, T0 + dt.timedelta(seconds=seconds))
        with store.reading() as connection:
            used = access.get_token(connection, made.id).last_used_at
        assert used == T0 + dt.timedelta(seconds=61 if seconds == 61 else 0)


def test_each_role_may_do_what_the_ones_before_it_may() -> None:
    order = ["viewer", "operator", "author", "coder", "admin"]
    for index, name in enumerate(order):
        assert [Role(name).covers(Role(other)) for other in order] == [at <= index for at in range(5)]


def test_a_scope_needs_all_its_labels() -> None:
    grant = Grant("x", Role.VIEWER, {"team": "news", "env": "live"})
    assert grant.sees({"team": "news", "env": "live", "more": "x"})
    assert not grant.sees({"team": "news"})
    assert Grant("x", Role.VIEWER).sees({})


def test_after_enough_failures_an_address_has_to_wait() -> None:
    now = 0.0
    logins = FailedLogins(limit=3, clock=lambda: now)
    for second in range(3):
        now = second
        assert logins.wait("a") == 0
        logins.note("a")
    now = 3.0
    assert logins.wait("a") == 57
    assert logins.wait("b") == 0
    now = 60.0
    assert logins.wait("a") == 0


def test_many_addresses_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "_MOST_ADDRESSES", 5)
    logins = FailedLogins()
    for number in range(50):
        logins.note(str(number))
    assert len(logins._failures) == 5


@given(st.lists(st.integers(0, 200), max_size=30).map(sorted), st.integers(0, 300))
def test_waiting_is_told_as_a_count_of_recent_failures_would(seconds: list[int], now: int) -> None:
    clock = [0]
    logins = FailedLogins(limit=4, clock=lambda: clock[-1])
    past = [second for second in seconds if second <= now]
    for second in past:
        clock.append(second)
        logins.note("a")
    recent = [second for second in past if second > now - 60]
    expected = recent[-4] + 60 - now if len(recent) >= 4 else 0
    clock.append(now)
    assert logins.wait("a") == expected
