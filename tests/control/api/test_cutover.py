"""Cut-overs over the API: what is asked for, of whom, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.control.api.server import Client, Server
from tests.control.api.test_savepoints import A, asked, counting, ran, sent

from penstock.control.auth.roles import Role
from penstock.control.store import operations, pipelines
from penstock.control.supervisor.ports import Operation
from penstock.engine.cutover import note
from penstock.engine.cutover.note import Cutover

MORE = "views: count(*), longest: max(ms)"


@pytest.fixture
def author(server: Server) -> Client:
    return server.client(Role.AUTHOR)


@pytest.fixture
def following(server: Server, author: Client) -> Client:
    """A pipeline that version 2 follows."""
    ran(server, counting(), author)
    assert author.post(f"{A}/cutover", {"file": sent(counting(MORE))}).status_code == 202
    state, file = server.services.folder.state("a"), server.services.folder.version("a", 2, "yaml")
    note.write(state, Cutover("a", str(file), "f", "b", "saved", "2026-03-01T00:00:00+00:00", "following", 3, "q"))
    return author


def test_a_new_version_is_kept_and_asked_to_follow(server: Server, author: Client) -> None:
    ran(server, counting(), author)
    answer = author.post(f"{A}/cutover", {"file": sent(counting(MORE))})
    assert answer.status_code == 202, answer.text
    found = answer.json()
    assert (found["kind"], found["state"]) == ("cutover", "waiting")
    assert found["asked"] == {"version": 2, "fileKind": "yaml", "lose": []}
    # The pipeline itself is as it was.
    assert author.get(A).json()["version"] == 1
    assert author.get(f"{A}/versions/2").json()["text"] == counting(MORE)
    assert server.services.folder.version("a", 2, "yaml").read_text("utf-8") == counting(MORE)


def test_while_one_follows_nothing_else_may_change_the_state(server: Server, following: Client) -> None:
    for path, body in (
        ("/api/v1/apply", {"files": [sent(counting("views: count(*), least: min(ms)"))]}),
        (f"{A}/cutover", {"file": sent(counting(MORE))}),
        (f"{A}/rescale", {"partitions": 5}),
        (f"{A}/upgrade", {}),
    ):
        answer = following.post(path, body)
        assert (answer.status_code, answer.json()["code"]) == (409, "OPERATION_OPEN"), path
    assert [item.kind for item in asked(server)] == ["cutover"]
    assert following.post(f"{A}/savepoints", {"name": "now"}).status_code == 202


def test_how_far_it_is_can_be_asked_by_anyone_who_may_look(server: Server, following: Client) -> None:
    found = server.client(Role.VIEWER).get(f"{A}/cutover").json()
    assert (found["version"], found["stage"], found["savepoint"], found["batch"]) == (2, "following", "saved", 3)
    assert (found["stands"], found["following"]) == (3, False)


def test_comparing_is_asked_for_beside_it(server: Server, following: Client) -> None:
    answer = server.client(Role.OPERATOR).post(f"{A}/cutover/compare")
    assert (answer.status_code, answer.json()["kind"]) == (202, "compare")
    assert [item.kind for item in asked(server)] == ["cutover", "compare"]


def test_finishing_makes_it_the_version_to_run_and_knows_the_way_back(server: Server, following: Client) -> None:
    stale = following.post(f"{A}/cutover/finish", headers={"If-Match": '"77"'})
    assert (stale.status_code, stale.json()["code"]) == (412, "STALE_REVISION")
    assert following.get(A).json()["version"] == 1
    answer = following.post(f"{A}/cutover/finish")
    assert (answer.status_code, answer.json()["kind"]) == (202, "takeover"), answer.text
    found = next(item for item in asked(server) if item.kind == "takeover")
    assert (found.back_to, found.asked["version"]) == (1, 2)
    assert following.get(A).json()["version"] == 2
    # Once it is to take over, it cannot be given up.
    late = following.delete(f"{A}/cutover")
    assert (late.status_code, late.json()["code"]) == (409, "OPERATION_OPEN")


@pytest.mark.parametrize("way", ["delete", "prune"])
def test_a_pipeline_that_is_deleted_is_followed_no_more(server: Server, following: Client, way: str) -> None:
    if way == "delete":
        assert following.delete(A).status_code == 202
    else:
        assert following.post("/api/v1/apply", {"files": [], "absent": "delete"}).status_code == 200
    (found,) = asked(server)
    assert (found.kind, found.cancelled_by is not None) == ("cutover", True)


def test_giving_it_up_is_asked_for(server: Server, following: Client) -> None:
    answer = following.delete(f"{A}/cutover")
    assert (answer.status_code, answer.json()["kind"]) == (202, "abandon")
    assert following.get(A).json()["version"] == 1


def test_the_same_version_again_has_the_number_it_had(server: Server, following: Client) -> None:
    with server.store.writing() as connection:
        (found,) = operations.open_ones(connection, "a")
        operations.put(connection, [_ended(found, server)])
        before = pipelines.get(connection, "a").version
    assert following.post(f"{A}/cutover", {"file": sent(counting(MORE))}).json()["asked"]["version"] == 2
    assert following.get(A).json()["version"] == before


def _ended(found: Operation, server: Server) -> Operation:
    return replace(found, ended_at=server.services.now(), outcome="failed")


def test_bad_requests_change_nothing(server: Server, author: Client) -> None:
    ran(server, counting(), author)
    unknown = author.get(f"{A}/cutover")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "CUTOVER_UNKNOWN")
    assert str(server.services.folder.path) not in unknown.text
    for method in ("compare", "finish"):
        assert author.post(f"{A}/cutover/{method}").json()["code"] == "CUTOVER_UNKNOWN"
    assert author.delete(f"{A}/cutover").json()["code"] == "CUTOVER_UNKNOWN"
    assert author.post(f"{A}/cutover").json()["code"] == "REQUEST_INVALID"
    other = {"file": sent(counting(MORE).replace("name: a", "name: b"))}
    assert author.post(f"{A}/cutover", other).json()["code"] == "REQUEST_INVALID"
    losing = {"file": sent(counting(MORE).replace("size: 1 day", "size: 2 days"))}
    refused = author.post(f"{A}/cutover", losing)
    assert (refused.status_code, refused.json()["code"]) == (409, "CHANGE_LOSES_STATE")
    assert author.post(f"{A}/cutover", {**losing, "lose": ["daily"]}).status_code == 202
    assert server.client(Role.OPERATOR).post(f"{A}/cutover", other).status_code == 403
    assert [item.kind for item in asked(server)] == ["cutover"]


def test_one_begun_by_hand_is_left_to_who_began_it(server: Server, author: Client) -> None:
    ran(server, counting(), author)
    state = server.services.folder.state("a")
    note.write(state, Cutover("a", "/elsewhere/new.yaml", "f", "b", "saved", "2026-03-01T00:00:00+00:00"))
    assert author.get(f"{A}/cutover").json()["code"] == "CUTOVER_REFUSED"
    assert author.post(f"{A}/cutover/finish").json()["code"] == "CUTOVER_REFUSED"
