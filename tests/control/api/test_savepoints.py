"""Savepoints and work on state over the API: what is asked for, of whom, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.control.api.server import T0, Client, Server, with_state
from tests.control.files import yaml
from tests.control.supervisor.fake_savepoints import put_state

from penstock.control.auth.roles import Role
from penstock.control.config import ServerConfig
from penstock.control.partitions import with_partitions
from penstock.control.policy import Policy
from penstock.control.store import operations, pipelines, savepoints
from penstock.control.submitted import Submitted, check_file
from penstock.control.supervisor.ports import FoundSavepoint, Operation
from penstock.errors import PenstockError

A = "/api/v1/pipelines/a"


def counting(values: str = "views: count(*)", more: str = "") -> str:
    """A pipeline with a step that has state."""
    return f"""\
apiVersion: penstock/v1
kind: Pipeline
metadata: {{name: a}}
spec:
  sources:
    views: {{generator: {{dataset: page_views, rows: 100}}, eventTime: {{column: ts, maxDelay: 1 minute}}}}
  steps:
    daily: {{from: views, window: {{size: 1 day, by: [article], values: {{{values}}}}}}}
  sinks:
    out: {{from: daily, sqlite: {{path: ./out.db, table: t}}}}
{more}"""


@pytest.fixture
def author(server: Server) -> Client:
    return server.client(Role.AUTHOR)


def sent(text: str) -> dict[str, str]:
    return {"path": "a.yaml", "text": text}


def applied(author: Client, text: str, **more: Any) -> dict[str, Any]:
    answer = author.post("/api/v1/apply", {"files": [sent(text)], **more})
    assert answer.status_code == 200, answer.text
    return dict(answer.json()["steps"][0])


def document(server: Server, number: int = 1) -> Mapping[str, Any]:
    with server.store.reading() as connection:
        return pipelines.version(connection, "a", number).document


def with_savepoint(server: Server, name: str = "first") -> None:
    with_state(server, "a", name, stateful=("daily",))


def ran(server: Server, text: str, author: Client) -> None:
    """A pipeline that has run, and has state."""
    applied(author, text)
    with_state(server, "a", stateful=("daily",))


def asked(server: Server) -> list[Operation]:
    with server.store.reading() as connection:
        return operations.open_ones(connection, "a")


# --- savepoints ---------------------------------------------------------------------------------------------


def test_taking_one_is_asked_for(server: Server, author: Client) -> None:
    applied(author, yaml("a"))
    assert author.post(f"{A}/savepoints").json()["code"] == "STATE_MISSING"
    server.services.folder.state("a").mkdir(parents=True)
    woken = server.woken
    answer = server.client(Role.OPERATOR).post(f"{A}/savepoints", {"name": "now", "note": "why"})
    assert answer.status_code == 202
    found = answer.json()
    assert (found["kind"], found["state"], found["asked"]) == ("savepoint", "waiting", {"name": "now", "note": "why"})
    assert server.woken == woken + 1
    assert author.get(f"{A}/operations/{found['id']}").json() == found
    assert [item["id"] for item in author.get(f"{A}/operations").json()["items"]] == [found["id"]]


@pytest.mark.parametrize("name", ["../x", ".x", "requests", "first"])
def test_a_name_that_cannot_be_is_refused(server: Server, author: Client, name: str) -> None:
    applied(author, yaml("a"))
    with_savepoint(server)
    answer = author.post(f"{A}/savepoints", {"name": name})
    code = "SAVEPOINT_EXISTS" if name == "first" else "SAVEPOINT_NAME"
    assert (answer.status_code, answer.json()["code"]) == (409, code)
    assert str(server.services.folder.path) not in answer.text
    assert asked(server) == []


def test_one_is_shown_with_what_it_holds(server: Server, author: Client) -> None:
    applied(author, yaml("a"))
    with_savepoint(server)
    (listed,) = author.get(f"{A}/savepoints").json()["items"]
    assert (listed["name"], listed["version"], listed["batch"], listed["automatic"]) == ("first", 1, 7, False)
    shown = author.get(f"{A}/savepoints/first").json()
    assert {key: shown[key] for key in listed} == listed
    assert (shown["document"], shown["files"], shown["spark"]) == (document(server), 0, "4.3")
    assert author.get(f"{A}/savepoints/frist").json()["code"] == "SAVEPOINT_UNKNOWN"
    (server.services.folder.savepoint("a", "first") / "savepoint.json").write_text("{}", "utf-8")
    damaged = author.get(f"{A}/savepoints/first")
    assert (damaged.status_code, damaged.json()["code"]) == (409, "SAVEPOINT_DAMAGED")


def test_two_are_compared_and_one_is_deleted(server: Server, author: Client) -> None:
    applied(author, yaml("a"))
    with_savepoint(server)
    with_savepoint(server, "second")
    found = author.get(f"{A}/savepoints/first/diff?against=second").json()
    assert found["batch"] == {"before": 7, "after": 7}
    assert found["sameLineage"] is True
    assert author.get(f"{A}/savepoints/first/diff?against=third").json()["code"] == "SAVEPOINT_UNKNOWN"
    # One that is needed stays.
    author.post(f"{A}/savepoints/first/restore")
    assert author.delete(f"{A}/savepoints/first").json()["code"] == "OPERATION_OPEN"
    assert author.delete(f"{A}/savepoints/second").json()["name"] == "second"
    assert [item["name"] for item in author.get(f"{A}/savepoints").json()["items"]] == ["first"]
    assert not server.services.folder.savepoint("a", "second").exists()


def test_going_back_is_a_change_of_the_pipeline_and_its_version(server: Server, author: Client) -> None:
    ran(server, counting(), author)
    with_savepoint(server)
    applied(author, counting(more="  run: {trigger: 2 s}\n"))
    before = author.get(A).json()
    assert before["version"] == 2
    stale = author.post(f"{A}/savepoints/first/restore", headers={"If-Match": '"1"'})
    assert stale.status_code == 412
    answer = author.post(f"{A}/savepoints/first/restore", {"keepRows": True}, headers={"If-Match": '"2"'})
    assert answer.status_code == 202, answer.text
    assert answer.headers["ETag"] == '"3"'
    (found,) = asked(server)
    assert (found.kind, found.back_to) == ("restore", 2)
    assert found.asked == {"savepoint": "first", "keepRows": True, "version": 1}
    after = author.get(A).json()
    assert (after["version"], after["generation"]) == (1, before["generation"] + 1)
    again = author.post(f"{A}/savepoints/first/restore")
    assert (again.status_code, again.json()["code"]) == (409, "OPERATION_OPEN")


def test_a_fork_is_a_pipeline_of_its_own(server: Server, author: Client) -> None:
    ran(server, counting(), author)
    with_savepoint(server)
    own = counting().replace("name: a", "name: b").replace("table: t", "table: b")
    same = author.post(f"{A}/savepoints/first/fork", {"file": sent(counting())})
    assert (same.status_code, same.json()["code"]) == (409, "REFUSED")
    answer = author.post(f"{A}/savepoints/first/fork", {"file": sent(own), "start": False})
    assert answer.status_code == 202, answer.text
    assert (answer.json()["pipeline"]["name"], answer.json()["pipeline"]["desired"]) == ("b", "stopped")
    assert answer.json()["operation"]["asked"] == {"savepoint": "first", "of": "a", "lose": []}
    assert server.client(Role.AUTHOR, {"team": "x"}).post(f"{A}/savepoints/first/fork").status_code == 404


def test_a_limited_token_forks_only_into_its_limit(server: Server) -> None:
    limited = server.client(Role.AUTHOR, {"team": "news"})
    labelled = counting().replace("{name: a}", "{name: a, labels: {team: news}}")
    ran(server, labelled, limited)
    with_savepoint(server)
    own = counting().replace("name: a", "name: b")
    answer = limited.post(f"{A}/savepoints/first/fork", {"file": sent(own)})
    assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")


def test_stopping_with_a_savepoint_is_one_change(server: Server, author: Client) -> None:
    applied(author, yaml("a"))
    refused = author.post(f"{A}/stop", {"savepoint": True})
    assert refused.json()["code"] == "STATE_MISSING"
    assert author.get(A).json()["desired"] == "running"
    server.services.folder.state("a").mkdir(parents=True)
    assert author.post(f"{A}/stop", {"savepoint": True, "note": "end"}).json()["desired"] == "stopped"
    (found,) = asked(server)
    assert (found.kind, found.asked["note"]) == ("savepoint", "end")


# --- changes of pipelines that have state ---------------------------------------------------------------------


def test_the_stages_of_the_plan_are_those_of_the_operation(server: Server, author: Client) -> None:
    ran(server, counting(), author)
    text = counting().replace(
        "    daily:", "    all: {from: views, dedupe: {by: [article], within: 1 hour}}\n    daily:"
    )
    text = text.replace("  sinks:\n", "  sinks:\n    every: {from: all, sqlite: {path: ./out.db, table: u}}\n")
    planned = author.post("/api/v1/plan", {"files": [sent(text)]}).json()
    (step,) = planned["steps"]
    assert (step["action"], step["cost"], step["loses"]) == ("upgrade", "bootstrap", [])
    assert step["stages"] == ["stop", "savepoint", "graft", "start"]
    assert [(item["path"], item["cost"], item["node"]) for item in step["changes"]] == [
        ("steps.all", "bootstrap", "all"), ("sinks.every", "restart", None)
    ]  # fmt: skip
    assert "+ views → all (dedupe)" in step["flow"]
    done = author.post("/api/v1/apply", {"files": [sent(text)], "plan": planned["checksum"]}).json()
    assert done["steps"][0]["stages"] == step["stages"]
    (found,) = asked(server)
    assert (found.kind, found.back_to, found.asked["stages"]) == ("upgrade", 1, step["stages"])
    # Nobody changes it again meanwhile.
    again = author.post("/api/v1/apply", {"files": [sent(counting())]})
    assert (again.status_code, again.json()["code"]) == (409, "OPERATION_OPEN")


def test_what_would_be_lost_has_to_be_named(server: Server, author: Client) -> None:
    ran(server, counting(), author)
    text = yaml("a")
    (step,) = author.post("/api/v1/plan", {"files": [sent(text)]}).json()["steps"]
    assert (step["cost"], step["loses"]) == ("loses state", ["daily"])
    for lose, code in (
        ([], "CHANGE_LOSES_STATE"),
        (["daily", "x"], "CHANGE_LOSES_NOTHING"),
        (["b/daily"], "CHANGE_LOSES_STATE"),
    ):
        answer = author.post("/api/v1/apply", {"files": [sent(text)], "lose": lose})
        assert (answer.status_code, answer.json()["code"]) == (409, code), lose
    assert author.get(A).json()["version"] == 1
    applied(author, text, lose=["a/daily"])
    (found,) = asked(server)
    assert found.asked["lose"] == ["daily"]


def test_without_state_nothing_is_lost(server: Server, author: Client) -> None:
    applied(author, counting())
    step = applied(author, yaml("a"))
    assert (step["cost"], step["loses"], step["stages"]) == ("restart", [], ["stop", "start"])
    assert asked(server) == []


def test_a_change_that_only_restarts_does_nothing_to_the_state(server: Server, author: Client) -> None:
    ran(server, counting(), author)
    step = applied(author, counting(more="  run: {trigger: 2 s}\n"))
    assert (step["cost"], step["stages"]) == ("restart", ["stop", "start"])
    with_state(server, "a", stateful=("daily",))
    step = applied(author, counting(more="  run: {trigger: 2 s}\n  alerts: [{when: 'restarts > 3'}]\n"))
    assert (step["cost"], step["stages"]) == ("nothing", [])
    assert asked(server) == []


def test_a_pipeline_that_stands_is_neither_stopped_nor_started(server: Server, author: Client) -> None:
    ran(server, counting(more="  state: {partitions: 2}\n"), author)
    author.post(f"{A}/stop")
    step = applied(author, counting(more="  state: {partitions: 4}\n"))
    assert (step["cost"], step["stages"]) == ("rescale", ["savepoint", "rescale"])
    (found,) = asked(server)
    assert found.kind == "rescale"


def test_one_pipeline_is_planned_from_its_state_or_a_savepoint(server: Server, author: Client) -> None:
    ran(server, counting(), author)
    with_savepoint(server)
    file = sent(counting(more="  state: {partitions: 8}\n"))
    (now,) = author.post(f"{A}/plan", {"file": file}).json()["steps"]
    assert (now["cost"], now["changes"][0]["before"]) == ("rescale", 2)
    put_state(server.services.folder.state("a"), document(server), 8, ("daily",))
    assert author.post(f"{A}/plan", {"file": file}).json()["steps"][0]["cost"] != "rescale"
    (then,) = author.post(f"{A}/plan", {"file": file, "savepoint": "first"}).json()["steps"]
    assert then["cost"] == "rescale"
    other = author.post(f"{A}/plan", {"file": sent(yaml("b"))})
    assert (other.status_code, other.json()["code"]) == (422, "REQUEST_INVALID")
    assert asked(server) == []


def test_another_version_takes_its_state_along(server: Server, author: Client) -> None:
    ran(server, counting(), author)
    applied(author, yaml("a"), lose=["daily"])
    with server.store.writing() as connection:
        (first,) = operations.open_ones(connection, "a")
        operations.put(connection, [Operation(**{**vars(first), "ended_at": T0, "outcome": "done"})])
    put_state(server.services.folder.state("a"), document(server, 2), 2, ())
    answer = server.client(Role.OPERATOR).post(f"{A}/start", {"version": 1})
    assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")
    answer = author.post(f"{A}/start", {"version": 1})
    assert (answer.status_code, answer.json()["version"]) == (200, 1)
    (found,) = asked(server)
    assert (found.kind, found.back_to) == ("upgrade", 2)


def test_state_is_carried_over_anew(server: Server, author: Client) -> None:
    applied(author, counting())
    assert author.post(f"{A}/upgrade").json()["code"] == "STATE_MISSING"
    put_state(server.services.folder.state("a"), document(server))
    answer = author.post(f"{A}/upgrade", {"lose": ["daily"]})
    assert (answer.status_code, answer.json()["asked"]) == (202, {"lose": ["daily"], "bootstrap": []})


# --- partitions -----------------------------------------------------------------------------------------------


def test_rescaling_what_does_not_say_how_many(server: Server, author: Client) -> None:
    applied(author, counting())
    assert author.post(f"{A}/rescale", {"partitions": 4}).json()["code"] == "STATE_MISSING"
    put_state(server.services.folder.state("a"), document(server), 2)
    same = author.post(f"{A}/rescale", {"partitions": 2})
    assert (same.status_code, same.json()["code"]) == (409, "REFUSED")
    answer = author.post(f"{A}/rescale", {"partitions": 4}, headers={"If-Match": '"1"'})
    assert (answer.status_code, answer.headers["ETag"]) == (202, '"2"')
    assert (answer.json()["kind"], answer.json()["asked"]) == ("rescale", {"partitions": 4})
    assert author.get(A).json()["version"] == 1


def test_rescaling_what_does_makes_a_version_that_says_so(server: Server, author: Client) -> None:
    ran(server, counting(more="  state: {partitions: 2}  # as many as cores\n"), author)
    answer = author.post(f"{A}/rescale", {"partitions": 16})
    assert answer.status_code == 202, answer.text
    assert (answer.json()["kind"], answer.json()["asked"]["stages"]) == (
        "rescale", ["stop", "savepoint", "rescale", "start"]
    )  # fmt: skip
    text = author.get(f"{A}/versions/2").json()["text"]
    assert "state: {partitions: 16}  # as many as cores\n" in text
    assert asked(server)[0].back_to == 1


SQL = """\
/* penstock
name: a
state: {partitions: 2}
sources: {v: {memory: {schema: {id: long}, rows: []}}}
sinks: {o: {console: {}}}
*/
INSERT INTO o TABLE v;
"""


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.yaml", counting(more="  state:\n    partitions: 2 # two\n")),
        ("a.yaml", counting(more='  state: {"partitions":  2}\n')),
        ("a.sql", SQL),
    ],
)
def test_only_the_number_changes_in_a_file(path: str, text: str, tmp_path: Path) -> None:
    changed = with_partitions(_version(path, text, tmp_path), 128)
    lines = list(zip(text.splitlines(), changed.splitlines(), strict=True))
    ((before, after),) = [(old, new) for old, new in lines if old != new]
    assert after == before.replace("2", "128", 1)


def test_a_number_that_is_no_number_in_the_file_stays(tmp_path: Path) -> None:
    version = _version("a.yaml", counting(more="  state: &s {partitions: &n 2}\n"), tmp_path)
    with pytest.raises(PenstockError) as raised:
        with_partitions(version, 4)
    assert raised.value.code == "PARTITIONS_DECLARED"


def _version(path: str, text: str, folder: Path) -> pipelines.Version:
    draft = check_file(Submitted(path, text), Policy.of(ServerConfig(), folder), Role.AUTHOR).draft
    return pipelines.Version("a", 1, draft.kind, text, "", draft.document, T0, "ann")


def test_found_savepoints_need_no_document(server: Server, author: Client) -> None:
    applied(author, yaml("a"))
    with server.store.writing() as connection:
        savepoints.keep_in_step(connection, {"a": [FoundSavepoint("broken", T0, note="it cannot be read")]}, now=T0)
    (found,) = author.get(f"{A}/savepoints").json()["items"]
    assert (found["batch"], found["version"], found["note"]) == (None, None, "it cannot be read")
