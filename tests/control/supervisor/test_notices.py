"""Who says that a target will be taken away, and who is believed."""

from __future__ import annotations

import datetime as dt
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.control.supervisor.world import notice

from penstock.control.supervisor.failover import news
from penstock.control.supervisor.notices.base import Listening
from penstock.control.supervisor.notices.hook import HookNotices
from penstock.control.supervisor.notices.metadata import CLOUDS, MetadataNotices
from penstock.control.supervisor.ports import Notice

NOW = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)


class Cloud(ThreadingHTTPServer):
    """The metadata address of all clouds at once; `answers` are by path."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.answers: dict[str, str] = {"/latest/api/token": "token-1", "/metadata/scheduledevents": '{"Events": []}',
                                        "/computeMetadata/v1/instance/preempted": "FALSE"}  # fmt: skip

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Answer(BaseHTTPRequestHandler):
    server: Cloud

    def _answer(self) -> None:
        text = self.server.answers.get(self.path.split("?")[0])
        allowed = self.path != "/latest/meta-data/spot/instance-action" or (
            self.headers["X-aws-ec2-metadata-token"] == "token-1"
        )
        self.send_response(404 if text is None else 200 if allowed else 401)
        self.end_headers()
        self.wfile.write((text or "").encode())

    do_GET = do_PUT = _answer

    def log_message(self, format: str, *arguments: Any) -> None: ...


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def heard(cloud: Cloud, name: str) -> tuple[Notice, ...]:
    herald = MetadataNotices(replace(CLOUDS[name], url=cloud.url), ["local", "spot"], lambda: NOW)
    assert herald.notices() == ()
    cloud.answers |= {
        "/latest/meta-data/spot/instance-action": json.dumps({"action": "terminate", "time": "2024-01-01T12:02:00Z"}),
        "/metadata/scheduledevents": json.dumps({"Events": [{"EventType": "Preempt"}]}),
        "/computeMetadata/v1/instance/preempted": "TRUE",
    }
    found = herald.notices()
    assert herald.notices() == found, "it is one notice, however often it is asked for"
    return found


@pytest.mark.parametrize("name", ["aws", "azure", "google"])
def test_a_cloud_that_takes_the_machine_away_speaks_for_its_targets(cloud: Cloud, name: str) -> None:
    found = heard(cloud, name)
    assert [(item.target, item.heard_from, item.at) for item in found] == [
        ("local", f"metadata/{name}", NOW), ("spot", f"metadata/{name}", NOW),
    ]  # fmt: skip
    assert all(item.deadline is not None for item in found)
    if name == "aws":
        assert found[0].deadline == NOW + dt.timedelta(minutes=2)


def test_an_address_that_does_not_answer_changes_nothing_and_holds_nobody_up(cloud: Cloud) -> None:
    gone = MetadataNotices(replace(CLOUDS["aws"], url="http://127.0.0.1:1"), ["local"], lambda: NOW)
    hook = HookNotices()
    hook.tell(notice("spot"))
    listening = Listening([gone, hook])
    listening.ask()
    assert set(listening.heard) == {"hook"}


def test_the_first_to_speak_of_a_target_wins() -> None:
    first, second = notice("spot", heard_from="file"), notice("spot", heard_from="hook")
    assert news((), {"file": (first,), "hook": (second,)}, NOW) == [first]
    assert news((first,), {"file": (first,), "hook": (second,)}, NOW) == []


def test_a_notice_is_withdrawn_by_who_gave_it() -> None:
    given_ = notice("spot", heard_from="file")
    assert news((given_,), {"hook": ()}, NOW) == []
    assert news((given_,), {"file": ()}, NOW) == [replace(given_, withdrawn_at=NOW)]


def test_a_hook_takes_up_what_was_told_before_a_restart() -> None:
    hook, told = HookNotices(), notice("spot")
    hook.restore((told, notice("other", heard_from="file")))
    assert hook.notices() == (told,)
    hook.withdraw("spot")
    hook.restore((told,))
    assert hook.notices() == ()


TARGETS = st.sampled_from(["a", "b", "c"])


@given(steps=st.lists(st.dictionaries(st.sampled_from(["file", "hook"]), st.sets(TARGETS)), max_size=8))
def test_what_holds_is_always_what_somebody_says(steps: list[dict[str, set[str]]]) -> None:
    known: tuple[Notice, ...] = ()
    said: dict[str, set[str]] = {}
    for step in steps:
        said |= step
        heard_now = {name: tuple(notice(target, heard_from=name) for target in found) for name, found in said.items()}
        for change in news(known, heard_now, NOW):
            known = tuple(item for item in known if item.target != change.target)
            known += (change,) if change.withdrawn_at is None else ()
        assert {item.target for item in known} == set().union(*said.values())
        assert len({item.target for item in known}) == len(known)
