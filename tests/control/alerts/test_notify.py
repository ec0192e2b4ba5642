"""Notifications, sent for real to servers on this machine."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.control.alerts.memory import MemoryStore
from tests.control.alerts.receivers import (
    MailReceiver,
    WebReceiver,
    certificate_for_this_machine,
    mail_receiver,
    web_receiver,
)
from tests.servers.base import HOST, free_port

from penstock.control.alerts.evaluate import AlertState, Transition
from penstock.control.alerts.notify.base import NotSent
from penstock.control.alerts.notify.channels import Channel
from penstock.control.alerts.notify.courier import GIVEN_UP_AFTER, LONGEST_PAUSE, Courier, next_attempt
from penstock.control.alerts.notify.http import is_address
from penstock.control.alerts.notify.message import Message
from penstock.control.alerts.notify.slack import slack_body
from penstock.frontends.configs import read_config
from penstock.frontends.findings import Findings
from penstock.spec.location import Places

NOW = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)
MESSAGE = Message(
    Transition.FIRING, "demo", "watermark_lag", "page", "watermark_lag > 5 minutes",
    "watermark_lag is 7 min, more than 5 minutes", since=NOW - dt.timedelta(minutes=3), at=NOW, labels={"team": "news"},
)  # fmt: skip
MAIL: dict[str, Any] = {"host": HOST, "security": "none", "from": "penstock@example.com", "to": ["team@example.com"]}


@pytest.fixture
def web() -> Iterator[WebReceiver]:
    with web_receiver() as received:
        yield received


@pytest.fixture
def mail() -> Iterator[MailReceiver]:
    with mail_receiver() as received:
        yield received


def channel(**settings: Any) -> Channel:
    return Channel.model_validate(settings)


# --- the kinds of channels ------------------------------------------------------------------------------------


def test_a_webhook_gets_everything_as_json(web: WebReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_TOKEN", "t0ken")
    headers = {"Authorization": "Bearer ${secret:env/HOOK_TOKEN}"}
    channel(webhook={"url": f"{web.url}/alerts", "headers": headers}).notifier().send(MESSAGE, 12)
    assert web.paths == ["/alerts"]
    assert web.headers[0]["authorization"] == "Bearer t0ken"
    assert web.bodies == [
        {
            "id": "12-firing", "alert": 12, "status": "firing", "pipeline": "demo", "rule": "watermark_lag",
            "severity": "page", "condition": "watermark_lag > 5 minutes",
            "evidence": "watermark_lag is 7 min, more than 5 minutes", "since": "2024-01-01T11:57:00+00:00",
            "at": "2024-01-01T12:00:00+00:00", "labels": {"team": "news"},
        }
    ]  # fmt: skip


@given(
    st.builds(
        Message, st.sampled_from(Transition), *[st.text()] * 5,
        since=st.datetimes(timezones=st.just(dt.UTC)), at=st.datetimes(timezones=st.just(dt.UTC)),
        labels=st.dictionaries(st.text(), st.text()),
    )
)  # fmt: skip
def test_a_message_comes_out_of_the_outbox_as_it_went_in(message: Message) -> None:
    assert Message.of(message.as_dict()) == message


def test_slack_gets_a_text_and_blocks(web: WebReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLACK_URL", f"{web.url}/services/x")
    channel(slack={"url": "${secret:env/SLACK_URL}"}).notifier().send(MESSAGE, 12)
    (body,) = web.bodies
    assert web.paths == ["/services/x"]
    assert body["text"] == ":rotating_light: [page] demo: watermark_lag firing"
    assert body["blocks"][0]["text"]["text"].splitlines() == [
        ":rotating_light: *[page] demo: watermark_lag firing*",
        "watermark_lag is 7 min, more than 5 minutes",
        "Condition: watermark_lag &gt; 5 minutes",
        "Since: 2024-01-01 11:57:00 UTC",
        "Labels: team=news",
    ]


def test_what_slack_would_take_for_a_mention_is_plain_text() -> None:
    words = {**MESSAGE.as_dict(), "evidence": "<!channel> & <https://example.com|click>", "status": "resolved"}
    body = slack_body(Message.of(words))
    assert "&lt;!channel&gt; &amp; &lt;https://example.com|click&gt;" in body["blocks"][0]["text"]["text"]
    assert body["text"].startswith(":white_check_mark:")


def test_mail_is_plain_text_with_the_headline_as_its_subject(mail: MailReceiver) -> None:
    to = ["team@example.com", "boss@example.com"]
    channel(email={**MAIL, "port": mail.port, "to": to}).notifier().send(MESSAGE, 12)
    (sent,) = mail.mails
    assert (sent["Subject"], sent["From"]) == ("[page] demo: watermark_lag firing", "penstock@example.com")
    assert mail.recipients == [to]
    assert sent["Message-ID"] == "<penstock-demo-12-firing@example.com>"
    assert sent["References"] == "<penstock-demo-12@example.com>"
    assert sent.get_content().splitlines()[:2] == [
        "watermark_lag is 7 min, more than 5 minutes",
        "Condition: watermark_lag > 5 minutes",
    ]


def test_mail_is_encrypted_and_logs_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = certificate_for_this_machine(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.setenv("MAIL_PASSWORD", "pa55")
    settings = {**MAIL, "security": "starttls", "username": "penstock", "password": "${secret:env/MAIL_PASSWORD}"}
    with mail_receiver(password="pa55", certificate=certificate) as received:
        sender = channel(email={**settings, "port": received.port}).notifier()
        sender.send(MESSAGE, 12)
        assert (received.logins, len(received.mails)) == ([("penstock", "pa55")], 1)
        monkeypatch.setenv("MAIL_PASSWORD", "wrong")
        with pytest.raises(NotSent, match="refused the login"):
            channel(email={**settings, "port": received.port}).notifier().send(MESSAGE, 12)
        monkeypatch.delenv("SSL_CERT_FILE")
        with pytest.raises(NotSent, match="SSLCertVerificationError"):
            sender.send(MESSAGE, 12)
        assert len(received.mails) == 1


def test_mail_is_not_sent_in_the_clear_where_encryption_was_asked_for(mail: MailReceiver) -> None:
    with pytest.raises(NotSent, match="SMTPNotSupportedError"):
        channel(email={**MAIL, "security": "starttls", "port": mail.port}).notifier().send(MESSAGE, 12)
    assert mail.mails == []


def test_a_refused_address_is_noticed(mail: MailReceiver) -> None:
    mail.refused.add("gone@example.com")
    to = ["team@example.com", "gone@example.com"]
    with pytest.raises(NotSent, match="refused 1 of 2 addresses"):
        channel(email={**MAIL, "port": mail.port, "to": to}).notifier().send(MESSAGE, 12)
    with pytest.raises(NotSent, match="could not be handed over"):
        channel(email={**MAIL, "port": mail.port, "to": ["gone@example.com"]}).notifier().send(MESSAGE, 12)


@pytest.mark.parametrize("status", [302, 307, 400, 404, 429, 500, 503])
def test_only_success_counts_and_redirects_are_not_followed(web: WebReceiver, status: int) -> None:
    web.statuses.append(status)
    with pytest.raises(NotSent, match=f"status {status}"):
        channel(webhook={"url": f"{web.url}/a"}).notifier().send(MESSAGE, 12)
    assert web.paths == ["/a"]


@pytest.mark.parametrize("kind", ["webhook", "email"])
def test_a_server_that_is_not_there_is_said_without_its_address(kind: str) -> None:
    port = free_port()
    settings = {"webhook": {"url": f"http://{HOST}:{port}/secret-path"}, "email": {**MAIL, "port": port}}
    with pytest.raises(NotSent) as raised:
        channel(**{kind: settings[kind]}).notifier().send(MESSAGE, 12)
    assert "reached" in str(raised.value) or "handed over" in str(raised.value)
    assert "secret-path" not in str(raised.value)
    assert str(port) not in str(raised.value)


@pytest.mark.parametrize(
    "address", ["file:///etc/passwd", "ftp://host/x", "localhost:80", "http://", "", "http://[::1", "javascript:x"]
)
def test_only_web_addresses_are_posted_to(address: str) -> None:
    assert not is_address(address)
    with pytest.raises(NotSent, match="not an http or https URL"):
        channel(webhook={"url": address}).notifier().send(MESSAGE, 12)


# --- the settings of a channel --------------------------------------------------------------------------------


def problems(settings: Any) -> list[tuple[str, str]]:
    findings = Findings(Places("serve.yaml"))
    read_config(Channel, settings, ("notify", "team"), findings)
    return [(problem.code, problem.message) for problem in findings.problems]


@pytest.mark.parametrize(
    ("settings", "code", "words"),
    [
        ({}, "SPEC_BAD_VALUE", "exactly one of webhook, slack, email"),
        ({"webhook": {"url": "http://x"}, "slack": {"url": "${secret:env/A}"}}, "SPEC_BAD_VALUE", "exactly one of"),
        ({"slack": {"url": "https://hooks.example.com/T0/B0/XX"}}, "SECRET_IN_PLAIN_TEXT", "slack.url"),
        ({"webhook": {"url": "http://x", "headers": {"Authorization": "abc"}}}, "SECRET_IN_PLAIN_TEXT", "headers"),
        ({"email": {**MAIL, "to": []}}, "SPEC_BAD_VALUE", "must not be empty"),
        ({"email": {**MAIL, "to": ["team"]}}, "SPEC_BAD_VALUE", "'team' is not an address"),
        ({"email": {**MAIL, "from": "a@b\nBcc: c@d"}}, "SPEC_BAD_VALUE", "is not an address"),
        ({"email": {**MAIL, "password": "${secret:env/A}"}}, "SPEC_BAD_VALUE", "sent for all to read"),
        ({"webhook": {"url": "http://x"}, "severities": ["loud"]}, "SPEC_BAD_VALUE", "not one of"),
        ({"webhok": {"url": "http://x"}}, "SPEC_UNKNOWN_KEY", "webhok"),
    ],
)
def test_what_is_wrong_with_a_channel_is_said(settings: Any, code: str, words: str) -> None:
    found = problems(settings)
    assert any(each == code and words in message for each, message in found), found


def test_a_sound_channel_has_no_problems() -> None:
    assert problems({"email": MAIL, "severities": ["page"]}) == []
    assert problems({"slack": {"url": "${secret:env/SLACK_URL}"}}) == []


# --- the outbox -----------------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.time = NOW

    def __call__(self) -> dt.datetime:
        return self.time

    def forward(self, **by: float) -> None:
        self.time += dt.timedelta(**by)


class Post:
    """An outbox with a firing alert in it, told to some channels."""

    def __init__(self, **channels: Channel) -> None:
        self.clock, self.store = Clock(), MemoryStore()
        self.courier = Courier(self.store, channels, self.clock)
        self.alert = self.store.begin("demo", "watermark_lag", "page", AlertState("firing", NOW), "late", NOW)
        self.store.tell(self.alert, list(channels), NOW, MESSAGE.as_dict())

    def resolve(self) -> None:
        self.store.resolve(self.alert, self.clock(), {**MESSAGE.as_dict(), "status": "resolved"})


def test_what_was_sent_is_not_sent_again(web: WebReceiver) -> None:
    post = Post(team=channel(webhook={"url": web.url}))
    assert [post.courier.deliver(), post.courier.deliver()] == [1, 0]
    post.store.tell(post.alert, ["team"], NOW, MESSAGE.as_dict())
    assert post.courier.deliver() == 0
    post.resolve()
    assert post.courier.deliver() == 1
    assert [body["id"] for body in web.bodies] == [f"{post.alert}-firing", f"{post.alert}-resolved"]


def test_what_fails_is_tried_again_ever_later_and_in_order(web: WebReceiver) -> None:
    web.statuses += [500, 503, 500]
    post = Post(team=channel(webhook={"url": web.url}))
    assert post.courier.deliver() == 0
    assert post.store.outbox[0].last_error == "the server answered with status 500"
    post.resolve()
    post.clock.forward(seconds=9)
    assert (post.courier.deliver(), len(web.bodies)) == (0, 1)
    post.clock.forward(seconds=1)
    post.courier.deliver()
    post.clock.forward(seconds=20)
    post.courier.deliver()
    assert len(web.bodies) == 3
    post.clock.forward(seconds=39)
    assert post.courier.deliver() == 0
    post.clock.forward(seconds=1)
    assert [post.courier.deliver(), post.courier.deliver()] == [1, 1]
    assert [body["status"] for body in web.bodies] == ["firing"] * 4 + ["resolved"]


def test_a_broken_channel_does_not_hold_up_the_others(web: WebReceiver) -> None:
    broken = channel(webhook={"url": f"http://{HOST}:{free_port()}"})
    post = Post(broken=broken, team=channel(webhook={"url": web.url}))
    post.store.tell(post.store.begin("b", "r", "page", AlertState("firing", NOW), "", NOW), ["broken"], NOW,
                    MESSAGE.as_dict())  # fmt: skip
    assert post.courier.deliver() == 1
    assert [row.outgoing.attempts for row in post.store.outbox if row.outgoing.channel == "broken"] == [1, 0]


def test_a_channel_that_is_gone_and_a_secret_that_is_not_set_are_said() -> None:
    post = Post(team=channel(slack={"url": "${secret:env/NOT_SET_ANYWHERE}"}))
    post.store.tell(post.alert, ["gone"], NOW, MESSAGE.as_dict())
    assert post.courier.deliver() == 0
    errors = [row.last_error for row in post.store.outbox]
    assert errors[0] is not None
    assert "NOT_SET_ANYWHERE" in errors[0]
    assert errors[1] == "the server has no channel 'gone' any more"


def test_a_message_that_cannot_be_made_does_not_hold_up_the_others(web: WebReceiver) -> None:
    post = Post(odd=channel(webhook={"url": web.url}), team=channel(webhook={"url": web.url}))
    post.store.outbox[0].outgoing = replace(post.store.outbox[0].outgoing, content={"status": "firing"})
    assert post.courier.deliver() == 1
    assert post.store.outbox[0].last_error == "the message could not be made (KeyError)"


def test_after_a_day_it_is_given_up() -> None:
    post = Post()
    post.store.tell(post.alert, ["gone"], NOW, MESSAGE.as_dict())
    while post.store.outbox[0].next_at is not None:
        post.clock.time = post.store.outbox[0].next_at
        post.courier.deliver()
    assert post.clock.time - NOW < GIVEN_UP_AFTER
    assert post.clock.time - NOW > GIVEN_UP_AFTER - 2 * LONGEST_PAUSE


@given(st.integers(1, 10_000), st.integers(0, 86_400))
def test_pauses_grow_to_a_quarter_of_an_hour(attempts: int, age: int) -> None:
    now = NOW + dt.timedelta(seconds=age)
    pause = min(10 * 2 ** (attempts - 1), 900)
    expected = now + dt.timedelta(seconds=pause) if age + pause < 86_400 else None
    assert next_attempt(attempts, NOW, now) == expected
