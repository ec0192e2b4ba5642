"""The verbs that ask a server, over a real one whose runners are fake."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pexpect
import pytest
from ruamel.yaml import YAML
from tests.control.files import yaml
from tests.control.supervisor.fake_savepoints import put_state
from tests.e2e.commands import Answer, Command, write_marked
from tests.e2e.serving import Site

from penstock.cli.steer import runs
from penstock.errors import PenstockError
from penstock.reports.folder import RunFolder
from penstock.testing.processes import Process, is_running, until


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One server for all tests that leave it as they found it."""
    with Site(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest.fixture
def site(shared: Site, monkeypatch: pytest.MonkeyPatch, penstock: Command) -> Iterator[Site]:
    use(shared, monkeypatch)
    yield shared
    left = [pipeline["name"] for pipeline in shared.ask("/pipelines")["items"]]
    if left:
        penstock("delete", *left, "--yes", "--wait")


def use(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_URL", site.server.url)
    monkeypatch.setenv("PENSTOCK_TOKEN", site.token)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "pipelines"
    found.mkdir()
    for name in ("clicks", "orders"):
        (found / f"{name}.yaml").write_text(yaml(name, labels="{team: news}"), "utf-8")
    return found


def lines(answer: Answer) -> list[str]:
    return answer.out.splitlines()


def told_json(answer: Answer) -> Any:
    assert answer.code == 0, answer.text
    return json.loads(answer.out)


# --- serve ---------------------------------------------------------------------------------------------------


def test_the_first_start_prints_the_token_once_and_keeps_it_for_its_owner(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        assert site.server.text.count(site.token) == 1
        assert (site.data / "admin.token").stat().st_mode & 0o777 == 0o600
        assert site.data.stat().st_mode & 0o777 == 0o700
        assert (site.data / "files").is_dir()
        ready = httpx.get(f"{site.server.url}/readyz", trust_env=False)
        assert (ready.status_code, ready.json()["status"]) in ((200, "ready"), (503, "not ready"))
        until(lambda: httpx.get(f"{site.server.url}/readyz", trust_env=False).status_code == 200, "ready", 90)
        metrics = httpx.get(
            f"{site.server.url}/metrics", headers={"Authorization": f"Bearer {site.token}"}, trust_env=False
        )
        assert "penstock_store_up 1.0" in metrics.text
        site.server.signal(signal.SIGTERM)
        assert site.server.wait(90) == 0
        again = site.serve()
        assert "pst_" not in again.text


def test_what_keeps_a_server_from_starting_is_told(penstock: Command, tmp_path: Path, shared: Site) -> None:
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    port = taken.getsockname()[1]
    (tmp_path / "file").touch()
    (tmp_path / "bad.yaml").write_text("targets:\n  a: {mastr: local}\n", "utf-8")
    (tmp_path / "tls.yaml").write_text("tls: {cert: ./none.pem, key: ./none.key}\n", "utf-8")
    cases: list[tuple[str, int, list[object]]] = [
        ("PORT_TAKEN", 1, ["--port", port]),
        ("BIND_REFUSED", 4, ["--host", "0.0.0.0"]),
        ("PATH_NOT_WRITABLE", 1, ["--data", tmp_path / "file" / "data"]),
        ("SERVER_RUNNING", 1, ["--data", shared.data]),
        ("SERVER_STORE_DOWN", 1, ["--store", "postgresql://nobody:hush@127.0.0.1:1/x"]),
        ("STORE_UNUSABLE", 1, ["--store", "oracle://x/y"]),
        ("SPEC_UNKNOWN_KEY", 2, ["--config", tmp_path / "bad.yaml"]),
        ("FILE_NOT_FOUND", 2, ["--config", tmp_path / "none.yaml"]),
        ("CERTIFICATE_UNUSABLE", 1, ["--config", tmp_path / "tls.yaml"]),
    ]
    os.umask(mask := os.umask(0))
    for code, exit_code, options in cases:
        answer = penstock("serve", "--data", tmp_path / "data", "--port", 0, *options)
        assert f"error[{code}] " in answer.err, answer.text
        assert answer.code == exit_code, answer.text
        assert "hush" not in answer.text
    assert "bad.yaml:2:7: error[SPEC_UNKNOWN_KEY]" in penstock(
        "serve", "--data", tmp_path / "data", "--config", tmp_path / "bad.yaml"
    ).err  # fmt: skip
    assert os.umask(mask) == mask, "only a server that runs closes its files to other users"
    taken.close()


def test_a_server_that_ends_or_is_killed_leaves_runs_alone_and_the_next_adopts_them(
    tmp_path: Path, folder: Path, penstock: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Site(tmp_path) as site:
        use(site, monkeypatch)
        assert penstock("apply", "-f", folder, "--yes").code == 0
        for name in ("clicks", "orders"):
            site.wait_for(name, "RUNNING", "IDLE")
        before = {each["name"]: each["run"] for each in site.ask("/pipelines")["items"]}
        runners = [pid for pid in site.processes() if pid != site.server.pid]
        for number in (signal.SIGKILL, signal.SIGTERM):
            site.server.signal(number)
            site.server.wait(90)
            assert [pid for pid in runners if is_running(pid)] == runners
            counted = batches(site)
            site.serve()
            use(site, monkeypatch)
            until(lambda: {e["name"]: e["run"] for e in site.ask("/pipelines")["items"]} == before, "adopted", 90)
            now = batches(site)
            assert now.keys() == counted.keys() == {"clicks", "orders"}
            assert all(now[name] > counted[name] for name in now)
        assert "2 pipelines go on" in (tmp_path / "serve-2.log").read_text("utf-8")
        kinds = [event["kind"] for event in site.ask("/events?pipeline=clicks&kind=adopt")["items"]]
        assert kinds == ["adopt", "adopt"]
        assert penstock("stop", "clicks", "orders", "--wait").code == 0
        for name in ("clicks", "orders"):
            found = site.pipeline(name)
            assert found["rowsIn"] == found["rowsOut"] == batches(site)[name]


def batches(site: Site) -> dict[str, int]:
    """How many batches the one run of each pipeline has reported."""
    runs = sorted(site.data.glob("pipelines/*/runs/*"))
    return {run.parts[-3]: len(RunFolder(run).read_batches()[0]) for run in runs}


def test_runners_do_not_get_the_secrets_of_the_server(
    tmp_path: Path, folder: Path, penstock: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "serve.yaml"
    text = 'notify: {ops: {webhook: {url: "${secret:env/HOOK_URL}"}}}\nruns: {environment: ["THEI*", "HOOK_*"]}\n'
    config.write_text(text, "utf-8")
    secrets = {"HOOK_URL": "http://127.0.0.1:1/canary-hook", "PENSTOCK_TOKEN_X": "canary-token", "THEIRS": "pipeline",
               "DATABASE_URL": "canary-database", "MAILPASS": "canary-mail"}  # fmt: skip
    with Site(tmp_path, "--config", config, env=secrets) as site:
        use(site, monkeypatch)
        penstock("apply", "-f", folder / "clicks.yaml", "-y")
        site.wait_for("clicks", "RUNNING", "IDLE")
        (runner,) = [pid for pid in site.processes() if pid != site.server.pid]
        seen = Path(f"/proc/{runner}/environ").read_bytes()
        assert b"THEIRS=pipeline" in seen
        assert b"canary" not in seen
        wrong = folder / "wrong.yaml"
        (place,) = write_marked(wrong, yaml("wrong", "alerts: [{when: watermark_lag > 1 minute, notify: [«opps]}]"))
        refused = penstock("apply", "-f", wrong, "-y")
        assert refused.code == 2
        assert f"wrong.yaml:{place[0]}:{place[1]}: error[ALERT_CHANNEL_UNKNOWN]" in refused.err
        assert "Did you mean 'ops'?" in refused.err


# --- desired state -------------------------------------------------------------------------------------------


def test_applying_creates_upgrades_changes_nothing_twice_and_prunes(
    site: Site, folder: Path, penstock: Command
) -> None:
    planned = penstock("plan", "-f", folder)
    assert (planned.code, lines(planned)[-1]) == (0, "2 to create")
    assert penstock("get").out == "there are no pipelines\n"
    applied = penstock("apply", "-f", folder, "--yes")
    assert lines(applied) == [
        "+ create    clicks  it is new",
        "+ create    orders  it is new",
        "2 to create",
        "2 created",
    ]
    again = penstock("apply", "-f", folder)
    assert (again.code, lines(again)[-1]) == (0, "nothing to change in 2 pipelines")
    (folder / "clicks.yaml").write_text(yaml("clicks", labels="{team: news}").replace("100", "200"), "utf-8")
    planned = penstock("plan", "-f", folder)
    assert lines(planned)[:4] == [
        "~ upgrade   clicks  1 change",
        "    ~ sources.views.generator.rows  100 → 200",
        "        restart: it holds from the next start on",
        "    costs: restart; stop → start",
    ]
    assert told_json(penstock("plan", "-f", folder, "-o", "json"))["changes"] is True
    assert penstock("apply", "-f", folder, "-y").code == 0
    assert site.pipeline("clicks")["version"] == 2
    (folder / "orders.yaml").unlink()
    assert "nothing to change in 1 pipeline" in penstock("apply", "-f", folder, "-y").out
    kept = penstock("apply", "-f", folder, "--prune", "-l", "team=sport", "-y")
    assert "nothing to change" in kept.out
    pruned = penstock("apply", "-f", folder, "--prune", "-y")
    assert lines(pruned)[-1] == "1 deleted, 1 unchanged"
    until(lambda: penstock("get", "orders").code == 3, "orders is gone", 90)


def test_savepoints_and_state_of_a_pipeline_by_its_name(site: Site, folder: Path, penstock: Command) -> None:
    def said(*words: object) -> str:
        answer = penstock(*words)
        assert answer.code == 0, answer.text
        return answer.out

    site.mode("clicks", "run")
    said("apply", "-f", folder, "--yes")
    site.wait_for("clicks", "RUNNING")
    run = site.pipeline("clicks")["run"]
    assert said("savepoint", "create", "clicks", "--name", "one", "--note", "why").startswith(
        "savepoint one after batch"
    )
    assert site.pipeline("clicks")["run"] == run
    said("savepoint", "create", "clicks", "--name", "two")
    assert [line.split()[0] for line in said("savepoint", "list", "clicks").splitlines()] == ["name", "one", "two"]
    assert "why" in said("savepoint", "show", "one", "clicks")
    assert said("savepoint", "diff", "one", "two", "clicks").split()[:2] == ["before", "after"]
    assert json.loads(said("savepoint", "verify", "two", "clicks", "-o", "json"))["name"] == "two"
    assert said("savepoint", "delete", "two", "clicks") == "deleted two\n"
    assert penstock("savepoint", "show", "two", "clicks").code == 3
    assert penstock("savepoint", "create", "clicks", "--state-dir", "x").code == 2
    refused = penstock("savepoint", "create", "clicks", "--name", "bad")
    assert (refused.code, "[SAVEPOINT_NOTHING]" in refused.err) == (4, True)

    document = site.ask("/pipelines/clicks/description")["document"]
    put_state(site.data / "pipelines" / "clicks" / "state", document)
    planned = said("plan", folder / "clicks.yaml", "--against", "clicks")
    assert "nothing to change in 1 pipeline" in planned
    assert "is to be divided into 8 partitions" in said("rescale", "clicks", "--partitions", 8, "--no-wait")
    until(lambda: site.ask("/pipelines/clicks/operations")["items"][0]["state"] == "done", "that it is done", 90)
    assert "goes on after batch 7" in said("savepoint", "restore", "one", "clicks")
    site.wait_for("clicks", "RUNNING")
    assert site.pipeline("clicks")["run"] != run
    own = folder / "copied.yaml"
    own.write_text(yaml("copied", table="copied"), "utf-8")
    assert said("savepoint", "fork", "one", "clicks", own) == "copied begins from savepoint one of clicks\n"
    said("stop", "clicks", "--savepoint", "--note", "the end", "--wait")
    told = said("describe", "clicks")
    assert "the end" in told
    assert [word for word in ("savepoint", "rescale", "restore") if word not in told] == []


def test_mistakes_are_told_as_validate_tells_them_and_change_nothing(
    site: Site, folder: Path, penstock: Command
) -> None:
    (place,) = write_marked(folder / "wrong.yaml", yaml("wrong").replace("dataset", "«datset"))
    local = penstock("validate", "--no-spark", folder / "wrong.yaml")
    sent = penstock("apply", "-f", folder, "--yes")
    assert (local.code, sent.code) == (2, 2)
    assert f"wrong.yaml:{place[0]}:{place[1]}: error[SPEC_UNKNOWN_KEY]" in sent.err
    assert sent.err == local.err
    assert penstock("get").out == "there are no pipelines\n"
    assert penstock("apply", "-f", folder / "none.yaml").code == 2
    (folder / "empty").mkdir()
    assert "there are no pipeline files in" in penstock("plan", "-f", folder / "empty").err


def test_folders_are_read_with_those_below_and_without_tests_in_python(
    site: Site, folder: Path, penstock: Command
) -> None:
    (folder / "below" / ".hidden").mkdir(parents=True)
    (folder / "below" / "more.yml").write_text(yaml("more"), "utf-8")
    (folder / "below" / ".hidden" / "not.yaml").write_text("nonsense", "utf-8")
    (folder / "test_clicks.py").write_text("def test(): ...", "utf-8")
    found = told_json(penstock("plan", "-f", folder, "-f", folder / "clicks.yaml", "-o", "json"))
    assert [step["name"] for step in found["steps"]] == ["clicks", "more", "orders"]


def test_a_yes_is_asked_for_at_a_terminal_and_nowhere_else(site: Site, folder: Path, penstock: Command) -> None:
    refused = penstock("apply", "-f", folder)
    assert refused.code == 4
    assert "error[REFUSED] there is no terminal to ask at" in refused.err
    environment: Any = {**os.environ, "TERM": "xterm"}
    for answer, code in (("n", 4), ("y", 0)):
        arguments = ["-m", "penstock.cli.main", "apply", "-f", str(folder)]
        with pexpect.spawn(
            sys.executable, arguments, dimensions=(40, 80), encoding="utf-8", timeout=30, env=environment
        ) as terminal:
            terminal.expect(r"Apply these changes\? \[y/N\] ")
            assert site.ask("/pipelines")["items"] == []
            terminal.sendline(answer)
            terminal.expect(pexpect.EOF)
        assert terminal.exitstatus == code, terminal.before
    assert len(site.ask("/pipelines")["items"]) == 2


# --- looking and steering ------------------------------------------------------------------------------------


def test_get_shows_a_table_json_and_yaml(site: Site, folder: Path, penstock: Command) -> None:
    penstock("apply", "-f", folder, "-y")
    site.wait_for("clicks", "RUNNING", "IDLE")
    until(lambda: site.pipeline("clicks")["rowsIn"] > 0, "rows are counted", 90)
    shown = penstock("get")
    head, first, second = lines(shown)
    assert head.split("  ")[0] == "NAME"
    assert re.fullmatch(r"clicks +(RUNNING|IDLE) +running +1 +· +\d+ +\d+", first)
    assert second.startswith("orders")
    listed = told_json(penstock("get", "-o", "json"))
    assert [each["name"] for each in listed] == ["clicks", "orders"]
    assert {"state", "desired", "generation", "watermark", "rowsIn", "rowsOut"} <= listed[0].keys()
    assert [each["name"] for each in YAML(typ="safe").load(penstock("get", "orders", "-o", "yaml").out)] == ["orders"]
    assert told_json(penstock("get", "-l", "team=sport", "-o", "json")) == []


def test_start_and_stop_change_what_is_wanted_and_a_failed_run_is_tried_again(
    site: Site, folder: Path, penstock: Command
) -> None:
    penstock("apply", "-f", folder / "clicks.yaml", "--no-start", "-y")
    assert site.pipeline("clicks")["desired"] == "stopped"
    started = penstock("start", "clicks", "--wait")
    assert started.code == 0
    assert re.fullmatch(r"clicks is to run\nclicks: (RUNNING|IDLE)\n", started.out)
    assert penstock("stop", "clicks", "--wait").out == "clicks is to stop\nclicks: STOPPED\n"
    site.mode("clicks", "mistake")
    assert penstock("start", "clicks").code == 0
    site.wait_for("clicks", "FAILED")
    with pytest.raises(PenstockError, match="clicks failed: "):
        runs(site.pipeline("clicks"))
    site.mode("clicks", "run")
    assert penstock("start", "clicks", "--wait").code == 0
    described = penstock("describe", "clicks")
    assert described.code == 0
    for part in ("Runs", "Last errors", "[SQL_SYNTAX]", "Events", "pipeline.start", "evidence", "stopped"):
        assert part in described.out, part
    found = told_json(penstock("describe", "clicks", "-o", "json"))
    assert found["pipeline"]["generation"] == site.pipeline("clicks")["generation"] >= 4
    assert [each["code"] for each in found["exceptions"]] == ["SQL_SYNTAX"]


def test_logs_of_several_pipelines_are_filtered_and_followed(
    site: Site, folder: Path, penstock: Command, tmp_path: Path
) -> None:
    penstock("apply", "-f", folder, "-y")
    for name in ("clicks", "orders"):
        site.wait_for(name, "RUNNING", "IDLE")
    found = lines(penstock("logs"))
    assert len(found) == 2
    assert all(
        re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ (clicks|orders) INFO    run r\w+ of ", line) for line in found
    )
    assert len(lines(penstock("logs", "clicks", "--since", "1h"))) == 1
    assert penstock("logs", "--grep", "nonsense").out == ""
    assert penstock("logs", "--since", "2100-01-01T00:00:00Z").out == ""
    assert "error[USAGE] --since soon is no time" in penstock("logs", "--since", "soon").err
    assert penstock("logs", "nobody").code == 3
    with Process(["logs", "-f", "clicks", "--level", "error"], tmp_path / "logs.txt") as process:
        site.mode("clicks", "mistake")
        process.wait_until(lambda: "ERROR" in process.text, "the error comes", every=0.1)
        process.signal(signal.SIGINT)
        assert process.wait(90) == 130
    assert "begins" not in process.text
    assert process.text.count("\n    org.apache.spark.Something: it went wrong\n") == 1


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def write_lines(log: Path, numbers: range) -> str:
    """Lines that are all of one moment, so that only their places tell them apart; the last one's text."""
    with log.open("a", encoding="utf-8") as file:
        for number in numbers:
            line = {"at": "2026-03-01T12:00:00+00:00", "level": "INFO", "logger": "x", "text": f"<{number}>"}
            file.write(json.dumps(line) + "\n")
    return f"<{numbers[-1]}>"


def shows(process: Process, text: str, times: int = 1) -> None:
    process.wait_until(lambda: process.text.count(text) >= times, text, every=0.1)


def test_who_follows_goes_on_when_the_server_is_back_and_sees_every_line_once(
    tmp_path: Path, folder: Path, penstock: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Site(tmp_path, "--port", free_port()) as site:
        use(site, monkeypatch)
        penstock("apply", "-f", folder, "-y")
        for name in ("clicks", "orders"):
            site.wait_for(name, "RUNNING", "IDLE")
        token = penstock("token", "create", "reader", "--role", "viewer").out.strip()
        (log,) = site.data.glob("pipelines/clicks/runs/*/log/run.jsonl")
        write_lines(log, range(10))
        with (
            Process(["logs", "-f"], tmp_path / "logs.txt") as logs,
            Process(["get", "-w"], tmp_path / "get.txt") as states,
            Process(["logs", "-f", "clicks"], tmp_path / "refused.txt", {"PENSTOCK_TOKEN": token}) as refused,
            Process(["logs", "-f", "orders"], tmp_path / "gone.txt") as gone,
        ):
            followers = (logs, states, refused, gone)
            for process, text in zip(followers, ("<9>", "orders", "<9>", "begins"), strict=True):
                shows(process, text)

            shows(logs, write_lines(log, range(10, 60)))
            write_lines(log, range(60, 80))
            site.server.signal(signal.SIGKILL)
            site.server.wait(90)
            for process in followers:
                shows(process, "trying again")
            last = write_lines(log, range(80, 100))
            site.serve()
            shows(logs, last)
            for process in followers:
                shows(process, "the server answers again")

            listed = told_json(penstock("token", "list", "-o", "json"))
            penstock("token", "revoke", next(each["id"] for each in listed if each["name"] == "reader"))
            assert penstock("delete", "orders", "--yes", "--wait").code == 0
            site.server.signal(signal.SIGTERM)
            assert site.server.wait(90) == 0
            for process in (logs, states):
                shows(process, "trying again", 2)
            last = write_lines(log, range(100, 120))
            site.serve()
            assert (refused.wait(90), gone.wait(90)) == (4, 3)
            shows(logs, last)
            assert penstock("stop", "clicks", "--wait").code == 0
            shows(states, "clicks STOPPED")
            for process in (logs, states):
                assert process.text.count("trying again") == process.text.count("the server answers again") == 2
                assert process.text.count("no server answers at") == 2
                process.signal(signal.SIGINT)
                assert process.wait(90) == 130
        shown = [int(number) for number in re.findall(r"clicks INFO    <(\d+)>", logs.text)]
        assert shown == list(range(120))
        assert logs.text.count("begins") == 2
        assert "error[UNAUTHENTICATED]" in refused.text
        assert "error[PIPELINE_UNKNOWN]" in gone.text


def test_alerts_and_silences(site: Site, folder: Path, penstock: Command) -> None:
    penstock("apply", "-f", folder, "-y")
    assert penstock("alerts").out == "nothing is pending or fires\n"
    assert told_json(penstock("alerts", "--all", "-o", "json")) == []
    made = penstock("alerts", "silence", "clicks", "--rule", "watermark_lag", "--for", "2h", "--why", "it moves")
    found = re.fullmatch(r"silence (\d+): nobody is told of 'watermark_lag' of clicks until \S+ \S+Z\n", made.out)
    assert found is not None, made.text
    assert "it moves" in penstock("alerts", "silences").out
    assert penstock("alerts", "unsilence", found[1]).code == 0
    assert penstock("alerts", "silences").out == "there are no silences\n"
    assert penstock("alerts", "silence", "nobody").code == 3
    assert penstock("alerts", "silence", "clicks", "--for", "soon").code == 2


def test_tokens_open_what_their_role_and_scope_say_until_they_are_revoked(
    site: Site, folder: Path, penstock: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    penstock("apply", "-f", folder, "-y")
    made = penstock("token", "create", "reader", "--role", "viewer", "--scope", "team=news", "--for", "2h")
    assert re.fullmatch(r"pst_\S{43}\n", made.out)
    listed = {each["name"]: each for each in told_json(penstock("token", "list", "-o", "json"))}
    assert listed["reader"]["scope"] == {"team": "news"}
    assert made.out.strip() not in penstock("token", "list").text
    admin = os.environ["PENSTOCK_TOKEN"]
    monkeypatch.setenv("PENSTOCK_TOKEN", made.out.strip())
    assert penstock("get", "clicks").code == 0
    refused = penstock("stop", "clicks")
    assert (refused.code, "error[FORBIDDEN]" in refused.err) == (4, True)
    monkeypatch.setenv("PENSTOCK_TOKEN", admin)
    assert penstock("token", "revoke", listed["reader"]["id"]).code == 0
    last = penstock("token", "revoke", listed["first admin"]["id"])
    assert (last.code, "the last token of an admin" in last.err) == (4, True)
    monkeypatch.setenv("PENSTOCK_TOKEN", made.out.strip())
    assert penstock("get").code == 4


def test_a_server_that_cannot_be_asked_is_told(
    penstock: Command, monkeypatch: pytest.MonkeyPatch, shared: Site
) -> None:
    monkeypatch.setenv("PENSTOCK_URL", shared.server.url)
    monkeypatch.delenv("PENSTOCK_TOKEN", raising=False)
    answer = penstock("get")
    assert (answer.code, "error[TOKEN_MISSING]" in answer.err) == (4, True)
    monkeypatch.setenv("PENSTOCK_TOKEN", "pst_nonsense")
    assert penstock("get").code == 4
    monkeypatch.setenv("PENSTOCK_URL", "http://127.0.0.1:1")
    answer = penstock("get")
    assert (answer.code, "error[SERVER_UNREACHABLE]" in answer.err) == (1, True)
    monkeypatch.setenv("PENSTOCK_URL", "127.0.0.1:8080")
    assert penstock("get").code == 2
