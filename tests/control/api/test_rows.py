"""The ledger, dead letters, late rows and replays over the API are those of the commands."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.control.api.server import Server, listening
from tests.engine.running import json_lines, run
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.control import asking
from penstock.control.auth.roles import Role
from penstock.control.launch.access import NOTHING
from penstock.control.launch.launcher import Launcher
from penstock.engine.inspection.writing import plain
from penstock.runner.state import Target, overview, shown
from penstock.testing import shared_session

if TYPE_CHECKING:
    from tests.conftest import Project

PIPELINE = """
    sources:
      rows:
        files: {path: ./in, maxFilesPerBatch: 1}
        format: {json: {schema: {id: int, at: timestamp}}}
        eventTime: {column: at, maxDelay: 0 seconds}
    steps:
      minutes: {from: rows, window: {size: 1 minute, values: {n: count(*)}}}
    sinks:
      out: {from: minutes, sqlite: {path: out.db, table: t, key: [window_start]}}
    late: side
    ledger: {window: 1 hour}
"""


def row(id: int, minute: int) -> dict[str, object]:
    return {"id": id, "at": f"2024-01-01T00:{minute:02d}:00Z"}


@pytest.mark.spark
def test_what_became_of_rows_is_told_and_they_are_fed_back(
    server: Server, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = project.write(PIPELINE).read_text("utf-8")
    operator = server.client(Role.OPERATOR)
    applied = server.client(Role.AUTHOR).post("/api/v1/apply", {"files": [{"path": "p.yaml", "text": text}]})
    assert applied.status_code == 200, applied.text
    never = operator.get("/api/v1/pipelines/demo/ledger")
    assert (never.status_code, never.json()["code"]) == (404, "STATE_MISSING")
    assert str(server.services.folder.path) not in never.text

    state = server.services.folder.state("demo")
    for number, rows in enumerate(([row(1, 1), row(2, 30)], [row(4, 31)], [row(3, 2), row(5, 40)])):
        project.put(f"in/{number}.json", json_lines(rows) + ("broken\n" if number == 1 else ""))
    run(project.build(PIPELINE), state)

    def command(*arguments: str) -> str:
        return CliRunner().invoke(app, [*arguments, "-o", "json"], catch_exceptions=False).stdout

    file = [str(project.folder / "p.yaml"), "--state-dir", str(state)]
    ledger = operator.get("/api/v1/pipelines/demo/ledger?last=2").json()
    assert ledger == json.loads(command("ledger", *file, "--last", "2"))
    assert ledger["totals"]["in"] == {"rows": 6}
    windows = operator.get("/api/v1/pipelines/demo/ledger/windows").json()
    assert windows["items"] == json.loads(command("ledger", *file, "--windows"))
    assert len(windows["items"]) == 1

    dead = operator.get("/api/v1/pipelines/demo/dead").json()
    (letter,) = dead["items"]
    assert (letter["node"], letter["batch"], letter["stage"], letter["raw"]) == ("rows", 1, "parse", "broken")
    assert (dead["storedIn"], dead["replayable"]) == (None, {"rows": 1})
    late = operator.get("/api/v1/pipelines/demo/late").json()
    assert [(item["node"], item["row"]["id"]) for item in late["items"]] == [("minutes", 3)]
    assert operator.get("/api/v1/pipelines/demo/dead?limit=0").status_code == 422
    assert server.client(Role.VIEWER).get("/api/v1/pipelines/demo/dead").status_code == 403

    kept = operator.get("/api/v1/pipelines/demo/state").json()
    (held,) = overview(Target(state), spark=shared_session()).steps
    assert [(one["step"], one["rows"], one["bytes"]) for one in kept["steps"]] == [(held.step, held.rows, held.bytes)]
    of_step = operator.get("/api/v1/pipelines/demo/state/minutes").json()
    with shown(Target(state), "minutes", spark=shared_session()) as found:
        rows = [plain(each) for table in found.tables for each in table.to_pylist()]
    assert (of_step["rows"], of_step["whole"], of_step["batch"]) == (rows, True, kept["batch"])
    assert server.client(Role.VIEWER).get("/api/v1/pipelines/demo/state/minutes").status_code == 403
    assert operator.get("/api/v1/pipelines/demo/state?savepoint=none").status_code == 404
    assert operator.get("/api/v1/pipelines/demo/state/nobody").status_code in (404, 422)

    with listening(server) as url:
        monkeypatch.setenv("PENSTOCK_URL", url)
        monkeypatch.setenv("PENSTOCK_TOKEN", server.token(Role.OPERATOR))
        monkeypatch.chdir(project.folder)
        assert json.loads(command("ledger", "demo", "--windows")) == windows["items"]
        lines = CliRunner().invoke(app, ["state", "demo", "--step", "minutes"]).stdout.splitlines()
        assert lines[0].startswith("minutes after batch"), lines
        assert len(lines) == len(rows) + 2
        told = CliRunner().invoke(app, ["ledger", "demo"])
        assert (told.exit_code, "rows 6" in told.stdout) == (0, True)
        dry = json.loads(command("replay", "dead", "demo", "--dry-run"))
        assert dry == {"running": False, "dryRun": True, "nodes": [{"node": "rows", "rows": 1}]}
        done = CliRunner().invoke(app, ["replay", "dead", "demo"])
        assert done.stdout.splitlines() == ["rows: 1 dead letter fed back", "the next run takes them in"]
        again = json.loads(command("replay", "late", "demo", "--step", "minutes"))
        assert again["steps"] == [{"step": "minutes", "rows": 1, "tooOld": 0}]
        wrong = CliRunner().invoke(app, ["replay", "dead", "demo", "--node", "nobody"])
        assert "REPLAY_IMPOSSIBLE" in str(wrong.exception)
    assert operator.get("/api/v1/pipelines/demo/dead").json()["replayable"] == {}
    (noted, *_) = server.client(Role.ADMIN).get("/api/v1/audit").json()["items"]
    assert (noted["action"], noted["object"]) == ("pipeline.replay", "demo")


def test_a_question_that_takes_too_long_or_fails_is_told(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.client(Role.AUTHOR).apply("a")
    server.services.folder.state("a").mkdir(parents=True)

    def refuse(*_: object, **__: object) -> None:
        raise asking.NoAnswer("it was not done within 60 seconds")

    monkeypatch.setattr("penstock.control.api.state.ask", refuse)
    answer = server.client(Role.VIEWER).get("/api/v1/pipelines/a/ledger")
    assert (answer.status_code, answer.json()["code"]) == (409, "LEDGER_NOT_READ")


def test_no_more_than_a_few_ask_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_TURN_SECONDS", 0.01)
    for _ in range(3):
        asking._AT_ONCE.acquire()
    try:
        with pytest.raises(asking.NoAnswer, match="at once"):
            asking.ask(Launcher(), "penstock.runner.asked", [], NOTHING, 1)
    finally:
        for _ in range(3):
            asking._AT_ONCE.release()
