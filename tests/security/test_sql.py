"""SQL runs no program, calls no Java and reads nothing but its inputs: neither in a preview nor in a run."""

from __future__ import annotations

import http.server
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.security.attacker import AttackedSite, Caller, codes

from penstock.testing.processes import until

pytestmark = pytest.mark.spark
CANARY = "canary-of-the-server"


class Listener:
    """A server beside the pipelines that notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        asked = self.asked

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def listener() -> Iterator[Listener]:
    found = Listener()
    yield found
    found.server.shutdown()
    found.server.server_close()


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file that no pipeline may read."""
    path = tmp_path / "secret.txt"
    path.write_text(CANARY, "utf-8")
    return path


def attacks(mark: Path, secret: Path, url: str) -> dict[str, str]:
    """Steps by name, as YAML, that would write `mark`, read `secret` or ask `url`."""
    call = "IDENTIFIER('ref' || 'lect')('java.lang.System', 'getProperty', 'user.dir')"
    dtd = f"xpath_string('<!DOCTYPE a SYSTEM \\\"{url}/dtd\\\"><a/>', '/a')"
    schema = f"from_xml('<a/>', 'a INT', map('ROWVALIDATIONXSDPATH', '{url}/schema'))"
    return {
        "shell": f"sql: \"SELECT TRANSFORM(country) USING 'touch {mark}; cat {secret}' AS (x STRING) FROM s\"",
        "mapped": f"sql: \"FROM s MAP country USING 'touch {mark}' AS x\"",
        "nested": f"sql: \"SELECT x FROM (SELECT TRANSFORM(country) USING 'touch {mark}' AS (x STRING) FROM s)\"",
        "java": f'sql: "SELECT {call} AS x FROM s"',
        "hidden": f'sql: "WITH a AS (SELECT {call} AS x) SELECT x FROM a"',
        "file": f'sql: "SELECT value AS x FROM text.`{secret}`"',
        "schema": f'sql: "SELECT {schema} AS x FROM s"',
        "dtd": f'sql: "SELECT {dtd} AS x FROM s"',
        "kept": f"filter: \"{call} = 'x'\"",
        "asked": f"filter: \"{dtd} = 'x'\"",
        "chosen": f'select: {{x: "{call}"}}',
        "met": f'expect: {{x: "{call} IS NOT NULL"}}',
        "dealt": f'route: {{to: {{x: "{call} IS NOT NULL", y: otherwise}}}}',
        "summed": f'window: {{size: 1 minute, values: {{x: "count(*) filter (where {call} = country)"}}}}',
        "having": f'window: {{size: 1 minute, values: {{x: count(*)}}, having: "{call} IS NULL"}}',
        "rolled": f'rolling: {{over: 1 minute, by: [country], values: {{x: "max({call})"}}}}',
    }


def pipeline(name: str, steps: dict[str, str], sink: str) -> str:
    """All these steps over one source, each on a line of its own, and their rows together in one sink."""
    last = [f"{step}.x" if step == "dealt" else step for step in steps]
    return "\n".join(
        [
            "apiVersion: penstock/v1",
            "kind: Pipeline",
            f"metadata: {{name: {name}, labels: {{team: a}}}}",
            "spec:",
            "  sources:",
            "    s: {generator: {dataset: page_views, rows: 10}, eventTime: {column: ts}}",
            "  steps:",
            *(f"    {step}: {{from: s, {written}}}" for step, written in steps.items()),
            f"    all: {{from: [{', '.join(last)}], union: {{}}}}",
            "  sinks:",
            f"    out: {{from: all, {sink}}}",
            "",
        ]
    )


def tried(caller: Caller, text: str, node: str) -> httpx.Response:
    """The answer to a preview; on a machine that is busy the first may take too long while Spark starts."""
    answer = caller.preview(text, node)
    for _ in range(2):
        if "BENCH_FAILED" in codes(answer):
            answer = caller.preview(text, node)
    return answer


def test_no_step_of_an_author_reaches_out_in_a_preview(
    attacked: AttackedSite, author_a: Caller, listener: Listener, secret: Path, tmp_path: Path
) -> None:
    steps = attacks(tmp_path / "mark", secret, listener.url)
    text = pipeline("sql-attack", steps, "sqlite: {path: ./x.db, table: t}")
    answer = tried(author_a, text, "all")
    assert answer.status_code in (400, 422), answer.text
    assert set(codes(answer)) == {"SQL_NOT_ALLOWED"}
    lines = {problem["location"]["line"] for problem in answer.json()["problems"]}
    assert lines == {8 + number for number in range(len(steps))}
    assert not (tmp_path / "mark").exists()
    assert listener.asked == []
    assert CANARY not in answer.text


def test_no_step_reaches_out_in_a_run(listener: Listener, secret: Path, tmp_path: Path) -> None:
    """A file that no server has judged: it lies on the machine that runs it."""
    steps = attacks(tmp_path / "mark", secret, listener.url)
    file = tmp_path / "p.yaml"
    file.write_text(pipeline("p", steps, f"sqlite: {{path: {tmp_path}/x.db, table: t}}"), "utf-8")
    command = [
        sys.executable,
        "-m",
        "penstock.cli.main",
        "run",
        str(file),
        "--once",
        "--state-dir",
        str(tmp_path / "state"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    told = done.stdout + done.stderr
    assert {int(line) for line in re.findall(r"p\.yaml:(\d+):\d+: error\[SQL_NOT_ALLOWED\]", told)} == {
        8 + number for number in range(len(steps))
    }
    assert "Traceback" not in told
    assert "at org.apache" not in told
    assert not (tmp_path / "mark").exists()
    assert listener.asked == []
    assert CANARY not in told


def test_no_step_of_an_author_reaches_out_in_a_run_of_the_server(
    attacked: AttackedSite, author_a: Caller, listener: Listener, secret: Path, tmp_path: Path
) -> None:
    steps = attacks(tmp_path / "mark", secret, listener.url)
    answer = author_a.apply(pipeline("sql-applied", steps, "sqlite: {path: ./sql-applied.db, table: t}"))
    try:
        # Applying asks no Spark, so it is the run that refuses.
        assert answer.status_code == 200, answer.text
        until(lambda: author_a.get("/pipelines/sql-applied").json()["state"] == "FAILED", "it fails", every=0.2)
        described = author_a.get("/pipelines/sql-applied/description").text
        assert "SQL_NOT_ALLOWED" in described
        assert CANARY not in described
        assert not (tmp_path / "mark").exists()
        assert listener.asked == []
        assert not (attacked.files(team="a") / "sql-applied.db").exists()
    finally:
        author_a.delete("/pipelines/sql-applied")


def test_sql_sees_no_variables_of_the_server(attacked: AttackedSite, author_a: Caller) -> None:
    shown = "sql: \"SELECT '${env:PATH} ${system:user.dir} ${spark.driver.host}' AS x FROM s\""
    text = pipeline("sql-variables", {"shown": shown}, "sqlite: {path: ./x.db, table: t}")
    answer = tried(author_a, text, "shown")
    assert answer.status_code == 200, answer.text
    assert answer.json()["rows"][0] == {"x": "${env:PATH} ${system:user.dir} ${spark.driver.host}"}
