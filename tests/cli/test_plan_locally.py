"""`penstock plan NEW --against OLD`: without a server, and without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.engine.savepoints.made import made
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.engine.savepoints.take import Wish
from penstock.errors import PenstockError
from penstock.runner.savepoints import create

OLD = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {name: demo}
spec:
  sources:
    views: {memory: {schema: {id: string, ts: timestamp}}, eventTime: {column: ts}}
  steps:
    hourly: {from: views, window: {size: 1 hour, by: [id], values: {n: count(*)}}}
  sinks:
    store: {from: hourly, memory: {}}
"""


def told(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, ["plan", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def test_a_new_value_takes_a_restart(tmp_path: Path) -> None:
    old = write(tmp_path, "old.yaml", OLD)
    new = write(tmp_path, "new.yaml", OLD.replace("{n: count(*)}", "{n: count(*), last: max(ts)}"))
    found = json.loads(told(new, "--against", old, "-o", "json"))
    assert (found["cost"], found["stages"], found["loses"], found["command"]) == (
        "restart",
        ["stop", "start"],
        [],
        None,
    )
    assert [(change["path"], change["cost"]) for change in found["changes"]] == [
        ("steps.hourly.window.values", "restart")
    ]
    assert "only rows that come from now on" in told(new, "--against", old)


def test_a_step_that_is_gone_is_named_with_the_command(tmp_path: Path) -> None:
    old = write(tmp_path, "old.yaml", OLD)
    new = write(tmp_path, "new.yaml", OLD.replace("hourly", "per_hour"))
    found = json.loads(told(new, "--against", old, "-o", "json"))
    assert found["cost"] == "loses state"
    assert found["loses"] == ["hourly"]
    assert found["command"] == f"penstock upgrade {new} --lose hourly"
    text = told(new, "--against", old)
    assert "- views → hourly (window)" in text
    assert "+ views → per_hour (window)" in text
    renamed = write(tmp_path, "new.yaml", OLD.replace("hourly: {", "per_hour: {renamedFrom: hourly, ").replace(
        "from: hourly", "from: per_hour"))  # fmt: skip
    found = json.loads(told(renamed, "--against", old, "-o", "json"))
    assert (found["cost"], found["loses"], found["renamed"]) == ("restart", [], {"per_hour": "hourly"})
    assert found["stages"] == ["stop", "savepoint", "graft", "start"]


def test_a_savepoint_tells_what_was_there(tmp_path: Path) -> None:
    known = made(tmp_path)
    _, folder = create(known.file, known.state, Wish("first"))
    new = write(tmp_path, "new.yaml", known.path.read_text("utf-8").replace("store:", "kept:"))
    found = json.loads(told(new, "--against", folder, "-o", "json"))
    assert sorted((change["path"], change["cost"]) for change in found["changes"]) == [
        ("sinks.kept", "restart"), ("sinks.store", "restart"),
    ]  # fmt: skip


def test_what_was_read_before_is_offered_to_steps_that_begin_anew(tmp_path: Path) -> None:
    files = OLD.replace("memory: {schema: {id: string, ts: timestamp}}", "files: {path: ./in}, format: {json: {schema: "
                        "{id: string, ts: timestamp}}}")  # fmt: skip
    old = write(tmp_path, "old.yaml", files)
    wider = write(tmp_path, "wider.yaml", files.replace("1 hour", "2 hours"))
    found = json.loads(told(wider, "--against", old, "-o", "json"))
    assert found["bootstrap"] == {"hourly": {"command": f"penstock upgrade {wider} --bootstrap hourly", "reason": None}}
    assert "or, with all that was read before:" in told(wider, "--against", old)

    once = write(tmp_path, "once.yaml", OLD)
    wider = write(tmp_path, "wider.yaml", OLD.replace("1 hour", "2 hours"))
    found = json.loads(told(wider, "--against", once, "-o", "json"))
    assert found["bootstrap"]["hourly"] == {
        "command": None, "reason": "source 'views' (memory) gives its rows once",
    }  # fmt: skip
    assert "cannot be given what was read before" in told(wider, "--against", once)


def test_a_savepoint_is_known_by_its_name_too(tmp_path: Path) -> None:
    known = made(tmp_path)
    create(known.file, known.state, Wish("first"))
    assert "nothing has changed" in told(known.path, "--against", "first")
    with pytest.raises(PenstockError) as raised:
        told(known.path, "--against", "second")
    assert raised.value.code == "SAVEPOINT_UNKNOWN"


def test_nothing_to_compare_with_is_a_mistake(tmp_path: Path) -> None:
    new = write(tmp_path, "new.yaml", OLD)
    for arguments in ((new,), ("--against", new), ()):
        with pytest.raises(PenstockError) as raised:
            told(*arguments)
        assert raised.value.code == "USAGE"
    assert "nothing has changed" in told(new, "--against", new)
