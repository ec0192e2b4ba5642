"""A file that `penstock validate` finds wrong is refused by the server with the same words, at the same places."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.control.api.server import Server
from tests.control.files import PYTHON, SQL
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.control.auth.roles import Role

HEAD = "apiVersion: penstock/v1\nkind: Pipeline\nmetadata: {name: bad}\nspec:\n"
VIEWS = "  sources: {views: {memory: {schema: {id: string, at: timestamp}}, eventTime: {column: at}}}\n"
OUT = "  sinks: {out: {from: views, memory: {}}}\n"
TEXT = "format: {text: {}}"
AVRO = "format: {avro: {schema: {type: record, name: R, fields: [{name: a, type: nothing}]}}}"
KAFKA = 'bootstrap: "b:9092", topic: t'


def source(part: str) -> str:
    return f"{HEAD}  sources:\n    views: {{{part}}}\n{OUT}"


def sink(part: str) -> str:
    return f"{HEAD}{VIEWS}  sinks:\n    out: {{from: views, {part}}}\n"


def step(part: str) -> str:
    return f"{HEAD}{VIEWS}  steps:\n    some: {{from: views, {part}}}\n  sinks: {{out: {{from: some, memory: {{}}}}}}\n"


BAD = {
    "not-yaml": ("p.yaml", "a: [", ["YAML_SYNTAX"]),
    "empty": ("p.yaml", f"{HEAD}  sources: {{}}\n", ["PIPELINE_EMPTY", "PIPELINE_EMPTY"]),
    "component": ("p.yaml", sink("sqlit: {}"), ["COMPONENT_UNKNOWN"]),
    "key": ("p.yaml", sink("sqlite: {path: ./o.db, table: t, tabel: x}"), ["SPEC_UNKNOWN_KEY"]),
    "input": ("p.yaml", f"{HEAD}{VIEWS}  sinks: {{out: {{from: veiws, memory: {{}}}}}}\n", ["INPUT_UNKNOWN"]),
    "secret-syntax": ("p.yaml", sink('files: {path: "./${secret:env}"}'), ["SECRET_SYNTAX"]),
    "kafka-broker": ("p.yaml", source(f"kafka: {{bootstrap: nowhere, topic: t}}, {TEXT}"), ["SPEC_BAD_VALUE"]),
    "kafka-topic": ("p.yaml", source(f'kafka: {{bootstrap: "b:9092", topic: "a b"}}, {TEXT}'), ["SPEC_BAD_VALUE"]),
    "kafka-no-topic": ("p.yaml", source(f'kafka: {{bootstrap: "b:9092"}}, {TEXT}'), ["SPEC_MISSING_KEY"]),
    "kafka-pattern": (
        "p.yaml",
        source(f'kafka: {{bootstrap: "b:9092", topicPattern: "("}}, {TEXT}'),
        ["SPEC_BAD_VALUE"],
    ),
    "kafka-offsets": ("p.yaml", source(f"kafka: {{{KAFKA}, startingOffsets: soon}}, {TEXT}"), ["SPEC_BAD_VALUE"]),
    "kafka-option": (
        "p.yaml",
        source(f"kafka: {{{KAFKA}, options: {{sasl.jaas.config: x}}}}, {TEXT}"),
        ["SPEC_BAD_VALUE"],
    ),
    "kafka-login": (
        "p.yaml",
        source(f"kafka: {{{KAFKA}, security: {{username: me, certificate: c.pem}}}}, {TEXT}"),
        ["SPEC_MISSING_KEY", "SPEC_BAD_VALUE", "SPEC_MISSING_KEY"],
    ),
    "kafka-sink": (
        "p.yaml",
        sink(f"kafka: {{{KAFKA}, format: protobuf, delete: gone}}"),
        ["SPEC_MISSING_KEY", "SPEC_MISSING_KEY", "SPEC_MISSING_KEY"],
    ),
    "cdc": ("p.yaml", source("cdc: {schema: {id: variant}}"), ["SPEC_MISSING_KEY"]),
    "cdc-inner": (
        "p.yaml",
        source('cdc: {kafka: {bootstrap: "b:9092", topic: "a b"}, schema: {id: long}}'),
        ["SPEC_BAD_VALUE"],
    ),
    "avro": ("p.yaml", source(f"files: {{path: ./in}}, {AVRO}"), ["SPEC_BAD_VALUE"]),
    "history": (
        "p.yaml",
        f"{HEAD}  sources:\n    views:\n      memory: {{schema: {{a: timestamp}}}}\n      eventTime: {{column: a}}\n"
        f"      bootstrap: {{files: {{path: ./in}}, {AVRO}}}\n{OUT}",
        ["SPEC_BAD_VALUE"],
    ),
    "s3-bucket": ("p.yaml", sink('files: {path: "s3a://B_/x"}'), ["SPEC_BAD_VALUE"]),
    "s3-scheme": ("p.yaml", sink('files: {path: "s3://bucket/x"}'), ["SPEC_BAD_VALUE"]),
    "s3-nowhere": ("p.yaml", sink("delta: {path: ./x, s3: {region: eu}}"), ["SPEC_BAD_VALUE"]),
    "delta-version": ("p.yaml", source("delta: {path: ./delta, startingVersion: -1}"), ["SPEC_BAD_VALUE"]),
    "postgres-url": ("p.yaml", sink('postgres: {url: "postgresql://h:x/db", table: t}'), ["SPEC_BAD_VALUE"]),
    "postgres-password": (
        "p.yaml",
        sink('postgres: {url: "postgresql://u:pw@h/db", table: t}'),
        ["SECRET_IN_PLAIN_TEXT"],
    ),
    "mysql-option": ("p.yaml", sink('mysql: {url: "mysql://u@h/db?init=x", table: t}'), ["SPEC_BAD_VALUE"]),
    "sqlite-version": ("p.yaml", sink("sqlite: {path: ./o.db, table: t, version: at}"), ["SPEC_MISSING_KEY"]),
    "sql-poll": (
        "p.yaml",
        source('sql_poll: {url: "postgresql://h:x/db", table: t, order: [a, a]}'),
        ["SPEC_BAD_VALUE", "SPEC_BAD_VALUE"],
    ),
    "window": ("p.yaml", step("window: {size: 0 seconds, values: {n: count(*)}}"), ["SPEC_BAD_VALUE"]),
    "join": ("p.yaml", step("join: {table: {path: ./t}, on: [id]}"), ["SPEC_BAD_VALUE"]),
    "dead-letters": (
        "p.yaml",
        f"{HEAD}{VIEWS}{OUT}  deadLetters: {{sqlite: {{path: ./d.db, table: t, version: at}}}}\n",
        ["SPEC_MISSING_KEY"],
    ),
    "late": (
        "p.yaml",
        f"{HEAD}{VIEWS}{OUT}  late: {{policy: side, sink: {{sqlite: {{path: ./d.db, table: t, version: at}}}}}}\n",
        ["SPEC_MISSING_KEY"],
    ),
    "many": (
        "p.yaml",
        f"{HEAD}  sources:\n    views: {{kafka: {{bootstrap: nowhere, topic: t}}, {TEXT}}}\n"
        "    more: {memroy: {}}\n"
        "  sinks:\n    out: {from: views, sqlite: {path: ./o.db, table: t, version: at}}\n"
        "    lost: {from: nobody, memory: {}}\n",
        ["SPEC_BAD_VALUE", "COMPONENT_UNKNOWN", "SPEC_MISSING_KEY", "INPUT_UNKNOWN"],
    ),
    "sql": ("p.sql", SQL.replace("table: t", "table: t, version: at"), ["SPEC_MISSING_KEY"]),
    "python": ("p.py", PYTHON.replace('table="t"', 'table="t", version="at"'), ["SPEC_MISSING_KEY"]),
    "python-call": ("p.py", PYTHON.replace("rows.to(", "rows.two("), ["PYTHON_FILE_FAILED"]),
}  # fmt: skip


def told(problem: dict[str, Any]) -> tuple[Any, ...]:
    place = problem["location"]
    return problem["code"], problem["message"], problem["hint"], place["line"], place["column"]


@pytest.mark.parametrize("case", BAD)
def test_the_server_says_of_a_file_what_validate_says(server: Server, tmp_path: Path, case: str) -> None:
    name, text, codes = BAD[case]
    file = tmp_path / "sent" / name
    (file.parent / "in").mkdir(parents=True)
    (file.parent / "t").touch()
    file.write_text(text, "utf-8")

    validated = CliRunner().invoke(app, ["validate", "--no-spark", "-o", "json", str(file)])
    body = {"files": [{"path": str(file), "text": text}]}
    answer = server.client(Role.CODER).post("/api/v1/apply", body)

    (found,) = json.loads(validated.stdout)["files"]
    errors = [told(problem) for problem in found["problems"] if problem["severity"] == "error"]
    assert answer.status_code == 422
    assert [told(problem) for problem in answer.json()["problems"]] == errors
    assert [code for code, *_ in errors] == codes
    assert {problem["location"]["file"] for problem in answer.json()["problems"]} == {str(file)}
    assert server.client(Role.CODER).get("/api/v1/pipelines").json()["items"] == []


def test_what_the_machine_lacks_is_seen_where_it_runs(server: Server) -> None:
    """The server may be told of a broker, a folder and secrets that nobody could reach from here."""
    text = (
        f"{HEAD}  sources:\n"
        f'    views: {{kafka: {{bootstrap: "${{secret:env/NEVER_SET}}", topic: t}}, {TEXT}}}\n'
        f"    more: {{files: {{path: ./missing}}, {TEXT}}}\n"
        "  sinks:\n"
        '    out: {from: views, postgres: {url: "postgresql://u:${secret:env/NEVER_SET}@h.invalid/db", table: t}}\n'
        "    copy: {from: more, memory: {}}\n"
    )

    answer = server.client(Role.AUTHOR).post("/api/v1/validate", {"files": [{"path": "p.yaml", "text": text}]})

    assert (answer.status_code, answer.json().get("names")) == (200, ["bad"])
