"""Secrets are given only where an operator has named them, and only to connections: never to rows."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import httpx
import pytest
from tests.security.attacker import LIGHT_TARGET, AttackedSite, Caller, codes

CANARY = "canary-8d12f0"
HEAD = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {name: secrets, labels: {team: a}}
spec:
"""
ROWS = "  sources: {s: {memory: {schema: {id: string}, rows: [{id: x}]}}}\n"
STEPS = [
    "select: {a: \"reverse('${secret:env/CANARY}')\"}",
    "sql: \"SELECT reverse('${secret:env/CANARY}') AS a FROM s\"",
    "filter: \"id <> '${secret:env/CANARY}'\"",
    "expect: {rules: {a: \"id <> '${secret:env/CANARY}'\"}}",
    "route: {to: {a: \"id = '${secret:env/CANARY}'\"}}",
    "join: {table: {path: './${secret:env/CANARY}.csv', schema: {id: string}}, on: [id]}",
]
SINKS = [
    "sqlite: {path: './${secret:env/CANARY}.db', table: t}",
    "files: {path: './${secret:env/CANARY}'}",
    "delta: {path: './${secret:env/CANARY}'}",
    "kafka: {bootstrap: 'h:9092', topic: t, options: {client.id: '${secret:env/CANARY}'}}",
    "kafka: {bootstrap: 'h:9092', topic: t, headers: {'${secret:env/CANARY}': id}}",
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedSite]:
    """A server whose operator gives pipelines one secret, for connections."""
    config = f"{LIGHT_TARGET}projects: {{one: {{labels: {{team: a}}, secrets: {{env: [CANARY]}}}}}}\n"
    with AttackedSite(tmp_path_factory.mktemp("secrets"), config, {"CANARY": CANARY, "OTHER": "other-value"}) as found:
        yield found


@pytest.fixture(scope="module")
def author(site: AttackedSite) -> Caller:
    return site.caller("author", team="a")


def with_step(step: str) -> str:
    return f"{HEAD}{ROWS}  steps: {{one: {{from: s, {step}}}}}\n  sinks: {{out: {{from: one, memory: {{}}}}}}\n"


def with_sink(sink: str) -> str:
    return f"{HEAD}{ROWS}  sinks: {{out: {{from: s, {sink}}}}}\n"


@pytest.mark.parametrize("text", [*map(with_step, STEPS), *map(with_sink, SINKS)])
def test_a_secret_is_refused_wherever_it_could_be_read_again(author: Caller, text: str) -> None:
    answer = author.validate(text)
    assert "SECRET_NOT_HERE" in codes(answer), answer.text
    problems = {problem["code"]: problem for problem in answer.json()["problems"]}
    place = problems["SECRET_NOT_HERE"]["location"]
    lines = text.splitlines()
    assert "${secret:env/CANARY}" in lines[place["line"] - 1]
    assert CANARY not in answer.text


def test_neither_a_preview_nor_a_run_takes_it(author: Caller) -> None:
    text = with_step(STEPS[0])
    for answer in (author.preview(text, "one"), author.apply(text)):
        assert answer.status_code == 422, answer.text
        assert "SECRET_NOT_HERE" in codes(answer)
        assert CANARY not in answer.text
        assert CANARY[::-1] not in answer.text


def test_a_connection_may_hold_the_secrets_that_the_operator_has_named(author: Caller) -> None:
    sink = "postgres: {url: 'postgresql://u:${secret:env/NAME}@h/x', table: t}"
    assert codes(author.validate(with_sink(sink.replace("NAME", "CANARY")))) == []
    for name in ("OTHER", "canary", "Canary", "CANARY2", "PATH", "PENSTOCK_TOKEN", "*", "CANAR?"):
        assert codes(author.validate(with_sink(sink.replace("NAME", name)))) == ["SECRET_NOT_ALLOWED"], name


def test_a_server_gives_pipelines_nothing_until_its_operator_says_so(author_a: Caller) -> None:
    answer = author_a.validate(with_sink("postgres: {url: 'postgresql://u:${secret:env/HOME}@h/x', table: t}"))
    assert codes(answer) == ["SECRET_NOT_ALLOWED"]
    assert "secrets: {env: [HOME]}" in answer.text


@pytest.mark.parametrize("key", ["/etc/shadow", "/etc/../etc/shadow", "etc/shadow", "~/.ssh/id", "/proc/self/environ"])
def test_no_file_is_a_secret_until_its_folder_was_named(author: Caller, key: str) -> None:
    sink = f"postgres: {{url: 'postgresql://u:${{secret:file/{key}}}@h/x', table: t}}"
    assert codes(author.validate(with_sink(sink))) == ["SECRET_NOT_ALLOWED"]


def test_a_file_full_of_broken_references_holds_nobody_up(author: Caller, site: AttackedSite) -> None:
    text = with_sink(f"files: {{path: '{'${secret:' * 16_000}'}}")
    slowest = 0.0
    over = threading.Event()

    def look() -> None:
        nonlocal slowest
        while not over.is_set():
            began = time.perf_counter()
            httpx.get(f"{site.site.server.url}/healthz", trust_env=False, timeout=60)
            slowest = max(slowest, time.perf_counter() - began)

    watch = threading.Thread(target=look)
    watch.start()
    try:
        answer = author.validate(text)
    finally:
        over.set()
        watch.join()
    assert codes(answer)[:1] == ["SECRET_SYNTAX"] or "PATH_NOT_ALLOWED" in codes(answer), answer.text[:500]
    # Before references had a limit, this took 16 seconds, in which the server did nothing else.
    assert slowest < 8
