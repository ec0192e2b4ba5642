"""Tokens, audit, alerts and the outbox in the store."""

from __future__ import annotations

import datetime as dt

from tests.control.store.databases import T0, create

from penstock.control.store import access, alerts
from penstock.control.store.database import Store

HOUR = dt.timedelta(hours=1)


def test_a_token_is_found_by_its_hash_alone(store: Store) -> None:
    with store.writing() as connection:
        token = access.add_token(connection, "ci", "ab" * 32, role="author", now=T0, scope={"team": "news"})
        assert access.token_with_hash(connection, "ab" * 32) == token
        assert access.token_with_hash(connection, "cd" * 32) is None
        access.note_use(connection, token.id, now=T0)
        revoked = access.revoke_token(connection, token.id, now=T0 + HOUR)
        again = access.revoke_token(connection, token.id, now=T0 + 2 * HOUR)
    assert (token.scope, token.revoked_at) == ({"team": "news"}, None)
    assert revoked.revoked_at == again.revoked_at == T0 + HOUR


def test_whether_an_admin_is_left_counts_only_valid_tokens(store: Store) -> None:
    with store.writing() as connection:
        assert not access.has_admin(connection, T0)
        token = access.add_token(connection, "first", "ab" * 32, role="admin", now=T0, expires_at=T0 + HOUR)
        access.add_token(connection, "login", "cd" * 32, role="admin", now=T0, session=True)
        assert access.has_admin(connection, T0)
        assert not access.has_admin(connection, T0 + HOUR)
        access.revoke_token(connection, token.id, now=T0)
        assert not access.has_admin(connection, T0)


def test_the_audit_log_is_read_newest_first(store: Store) -> None:
    with store.writing() as connection:
        for number in range(3):
            access.add_audit(
                connection, now=T0, who="ann", role="admin", action="x", what=str(number), detail={"n": number}
            )
        page = access.listed_audit(connection, limit=2)
        assert page.next is not None
        rest = access.listed_audit(connection, limit=2, after=int(page.next))
    assert [entry.detail["n"] for entry in (*page.items, *rest.items)] == [2, 1, 0]


def test_a_transition_is_told_to_a_channel_once(store: Store) -> None:
    with store.writing() as connection:
        create(connection, "a")
        alert = alerts.open_alert(
            connection, "a", "lag", severity="page", state="firing", since=T0, evidence="6 minutes", fired_at=T0
        )
        assert alerts.put_in_outbox(connection, alert, "ops", "firing", content={"text": "x"}, now=T0)
        assert not alerts.put_in_outbox(connection, alert, "ops", "firing", content={"text": "x"}, now=T0)
        (due,) = alerts.due_notifications(connection, T0)
        alerts.note_failed(connection, due.id, error="503", next_at=T0 + HOUR)
        assert alerts.due_notifications(connection, T0) == []
        (again,) = alerts.due_notifications(connection, T0 + HOUR)
        assert (again.attempts, again.last_error) == (1, "503")
        alerts.note_sent(connection, due.id, now=T0 + HOUR)
        assert alerts.due_notifications(connection, T0 + 9 * HOUR) == []
        assert [item.attempts for item in alerts.notifications_of(connection, alert)] == [2]


def test_an_alert_resolves_and_stays_in_history(store: Store) -> None:
    with store.writing() as connection:
        create(connection, "a", team="news")
        create(connection, "b")
        first = alerts.open_alert(connection, "a", "lag", severity="warn", state="pending", since=T0, evidence="")
        alerts.open_alert(connection, "b", "lag", severity="warn", state="pending", since=T0, evidence="")
        alerts.change_alert(connection, first, state="resolved", fired_at=T0, resolved_at=T0 + HOUR)
        assert [alert.pipeline for alert in alerts.open_alerts(connection)] == ["b"]
        assert [alert.id for alert in alerts.listed_alerts(connection, scopes=[{"team": "news"}]).items] == [first]
        alerts.drop_alert(connection, first)
        assert alerts.get_alert(connection, first).resolved_at == T0 + HOUR


def test_a_silence_holds_until_its_time_or_its_end(store: Store) -> None:
    with store.writing() as connection:
        silence = alerts.add_silence(
            connection, pipeline=None, rule="lag", until=T0 + HOUR, by="ann", why="moving house", now=T0
        )
        assert alerts.silences_at(connection, T0) == [silence]
        assert alerts.silences_at(connection, T0 + HOUR) == []
        alerts.end_silence(connection, silence.id, now=T0)
        assert alerts.silences_at(connection, T0) == []
