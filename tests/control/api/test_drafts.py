"""Trying out pipelines over the API: what is let through, to whom, and with which secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.control.api.server import Server
from tests.control.files import yaml

from penstock.control.api.app import create_app
from penstock.control.asking import Busy, NoAnswer
from penstock.control.auth.roles import Role
from penstock.control.bench import Bench
from penstock.control.config import ServerConfig
from penstock.control.launch.access import ProcessAccess

NODE = {
    "name": "a", "kind": "source", "component": "memory", "from": [], "columns": [{"name": "id", "type": "string"}],
    "watermark": {"column": "ts", "delay": "1 second", "delayMillis": 1000}, "state": [], "kernel": False,
    "lineage": None, "location": {"file": "x.yaml", "line": 1, "column": 1},
}  # fmt: skip
ANSWERS = {
    "explain": {"nodes": [NODE], "problems": []},
    "preview": {"node": "a", "columns": {"id": "string"}, "rows": [{"id": "x"}], "total": 1, "sampled": {"a": 1},
                "dead": [], "late": 0},
}  # fmt: skip


class Noted(Bench):
    """Answers at once, and notes what was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[Mapping[str, Any], ProcessAccess, bool]] = []
        self.answer: Any = None

    def ask(self, question: Mapping[str, Any], access: ProcessAccess, *, alone: bool = False) -> Any:
        self.asked.append((question, access, alone))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer or {"answer": ANSWERS[question["verb"]]}


@pytest.fixture
def bench() -> Noted:
    return Noted()


@pytest.fixture
def server(tmp_path: Path, bench: Noted) -> Server:
    server = Server(tmp_path, ServerConfig.model_validate({"secrets": {"env": ["PG_*"]}}))
    server.services = replace(server.services, bench=bench)
    server.app = create_app(server.services)
    return server


def sent(text: str, path: str = "x.yaml", **more: Any) -> dict[str, Any]:
    return {"file": {"path": path, "text": text}, **more}


def test_a_draft_is_explained_and_previewed(server: Server, bench: Noted) -> None:
    author = server.client(Role.AUTHOR)
    explained = author.post("/api/v1/explain", sent(yaml("a"))).json()
    assert [node["columns"] for node in explained["nodes"]] == [[{"name": "id", "type": "string"}]]
    rows = author.post("/api/v1/preview", sent(yaml("a"), node="a", rows=7)).json()
    assert (rows["columns"], rows["rows"]) == ([{"name": "id", "type": "string"}], [{"id": "x"}])
    (explain, _, _), (preview, access, alone) = bench.asked
    assert (explain["verb"], preview["node"], preview["rows"], alone) == ("explain", "a", 7, False)
    assert (access.write, access.secrets) == ((), frozenset())


@pytest.mark.parametrize("verb", ["explain", "preview"])
def test_it_takes_an_author_and_no_more_rows_than_are_good(server: Server, bench: Noted, verb: str) -> None:
    more = {"node": "a"} if verb == "preview" else {}
    assert server.client(Role.OPERATOR).post(f"/api/v1/{verb}", sent(yaml("a"), **more)).status_code == 403
    assert server.client(Role.AUTHOR).post(f"/api/v1/{verb}", sent(yaml("a"), rows=10_000)).status_code == 422
    assert bench.asked == []


def test_what_the_server_does_not_allow_is_not_tried(server: Server, bench: Noted) -> None:
    outside = yaml("a").replace("spec:", "spec:\n  deadLetters: {files: {path: /etc}}")
    author = server.client(Role.AUTHOR)
    answer = author.post("/api/v1/preview", sent(outside, node="a"))
    assert (answer.status_code, answer.json()["problems"][0]["code"]) == (422, "PATH_NOT_ALLOWED")
    explained = author.post("/api/v1/explain", sent(outside)).json()
    assert (explained["nodes"], explained["problems"][0]["code"]) == ([], "PATH_NOT_ALLOWED")
    assert author.post("/api/v1/explain", sent("", path="x.py")).status_code == 403
    assert bench.asked == []


def test_a_file_that_cannot_be_read_says_where(server: Server, bench: Noted) -> None:
    explained = server.client(Role.AUTHOR).post("/api/v1/explain", sent("a: [")).json()
    assert [problem["code"] for problem in explained["problems"]] == ["YAML_SYNTAX"]
    assert bench.asked == []


def test_secrets_that_are_named_and_no_others_go_to_a_process_of_their_own(
    server: Server, bench: Noted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PG_PASSWORD", "s3cret")
    monkeypatch.setenv("PG_OTHER", "hidden")
    text = yaml("a").replace(
        "spec:", "spec:\n  deadLetters: {postgres: {url: 'postgresql://u:${secret:env/PG_PASSWORD}@db/x', table: t}}"
    )
    server.client(Role.AUTHOR).post("/api/v1/explain", sent(text))
    assert [(access.secrets, alone) for _, access, alone in bench.asked] == [(frozenset({"PG_PASSWORD"}), True)]


def test_without_an_answer_it_says_why(server: Server, bench: Noted) -> None:
    bench.answer = NoAnswer("it takes too long")
    answer = server.client(Role.AUTHOR).post("/api/v1/explain", sent(yaml("a")))
    assert "it takes too long" in answer.text
    bench.answer = Busy("others are at it")
    answer = server.client(Role.AUTHOR).post("/api/v1/explain", sent(yaml("a")))
    assert (answer.status_code, answer.json()["code"]) == (503, "SERVER_BUSY")
    bench.answer = {"problems": [{"code": "SQL_SYNTAX", "params": {"node": "s", "reason": "FORM"}, "location": None}]}
    answer = server.client(Role.AUTHOR).post("/api/v1/preview", sent(yaml("a"), node="a"))
    assert answer.json()["problems"][0]["code"] == "SQL_SYNTAX"
