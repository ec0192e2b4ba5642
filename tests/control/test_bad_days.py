"""Bad input and bad days of a server. What the API refuses by itself is tested with its routes.

| What comes | Test |
|---|---|
| an invalid file | api/test_pipelines.py::test_a_mistake_in_a_file_is_told_as_the_command_tells_it |
| an unknown name | test_bad_days.py::test_an_unknown_name_is_told_on_every_route |
| a stale version | api/test_pipelines.py::test_a_stale_etag_is_refused_and_nothing_changes |
| a stale version | api/test_pipelines.py::test_what_was_planned_is_what_is_done |
| a forbidden role | api/test_access.py::test_every_route_refuses_lesser_roles_and_takes_its_own_and_greater_ones |
| a body that is too large | api/test_pipelines.py::test_a_body_that_is_too_large_is_refused_whether_it_says_so_or_not |
| malformed JSON | api/test_pipelines.py::test_bad_requests_are_told |
| tricks with paths | security/test_table.py::test_no_route_leads_out_of_its_folder |
| two applies at once | api/test_pipelines.py::test_two_applies_at_once_leave_one_whole_result |
| a locked store | test_whole.py::test_while_the_store_is_locked_runs_go_on_and_nothing_is_lost |
| a store that is down | test_bad_days.py::test_while_the_store_is_down_reads_say_so_and_pipelines_go_on |
| a port that is taken | api/test_listen.py::test_a_port_that_is_taken_is_told |
| a full disk | test_bad_days.py::test_a_full_disk_is_said_and_with_more_space_all_goes_on |
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.routing import APIRoute
from tests.control.api.server import Server
from tests.control.files import yaml
from tests.control.whole import Whole
from tests.faults.disks import fill, mounted
from typer.testing import CliRunner

from penstock.cli.main import app as commands
from penstock.control.auth.roles import Role
from penstock.control.config import ServerConfig
from penstock.control.files import DataFolder
from penstock.control.store import database, pipelines
from penstock.control.store.supervision import SupervisorStore
from penstock.control.supervisor import decide

TESTS = Path(__file__).parent


def test_every_test_of_the_table_is_there() -> None:
    rows = re.findall(r"^\| [^|]+ \| ([\w/]+\.py)::(\w+) \|$", __doc__ or "", re.MULTILINE)
    assert len(rows) == 13
    for file, name in rows:
        assert f"def {name}(" in (TESTS / file).read_text("utf-8"), (file, name)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path, ServerConfig())
    yield server
    server.close()


def test_an_unknown_name_is_told_on_every_route(server: Server) -> None:
    admin = server.client(Role.ADMIN)
    admin.apply("orders")
    told = 0
    for route in server.app.routes:
        if isinstance(route, APIRoute) and route.path.startswith("/api/v1/pipelines/{name}"):
            path = route.path.replace("{name}", "ordres").replace("{number}", "1")
            for method in route.methods or ():
                answer = admin.request(method, path)
                assert (answer.status_code, answer.json()["code"]) == (404, "PIPELINE_UNKNOWN"), path
                assert "ordres" in answer.json()["title"]
                told += 1
    assert told >= 10
    for path in ("/api/v1/pipelines/orders/versions/2", "/api/v1/runs/r0123456789ab", "/api/v1/alerts/1"):
        assert (admin.get(path).status_code, admin.get(path).json()["code"]) == (404, "NOT_FOUND")
    answer = admin.post("/api/v1/pipelines/orders/start", {"version": 2})
    assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")


MISTAKES = {
    "no YAML": "a: [",
    "no pipeline": "{}",
    "unknown key": yaml("a", "sinsk: {}"),
    "unknown input": yaml("a").replace("from: views", "from: veiws"),
    "bad name": yaml("a").replace("name: a", "name: A B"),
    "several": yaml("a", "nonsense: 1").replace("sqlite:", "sqlit:"),
}


@pytest.mark.parametrize("text", MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_has_the_code_and_place_that_the_command_gives_it(server: Server, tmp_path: Path, text: str) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(text, "utf-8")
    printed = CliRunner().invoke(commands, ["validate", "--no-spark", "-o", "json", str(file)]).output
    answer = server.client(Role.AUTHOR).post("/api/v1/validate", {"files": [{"path": str(file), "text": text}]})
    of_command = [(each["code"], each["location"]) for each in json.loads(printed)["files"][0]["problems"]]
    assert of_command
    assert answer.status_code == 422
    assert [(each["code"], each["location"]) for each in answer.json()["problems"]] == of_command


# --- bad days ----------------------------------------------------------------------------------------------


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Whole]:
    monkeypatch.setattr(database, "_PATIENCE", 0.1)
    monkeypatch.setattr(decide, "FIRST_PAUSE", 0.05)
    with mounted(tmp_path / "server", "size=8m") as folder:
        found = Whole(folder)
        yield found
        found.close()


def batches(whole: Whole) -> int:
    return sum(len(run.read_batches()[0]) for run in whole.runs())


def test_a_full_disk_is_said_and_with_more_space_all_goes_on(whole: Whole) -> None:
    author = whole.author
    author.apply("a")
    whole.until(lambda: whole.state() == "RUNNING" and batches(whole) > 3, "it runs")
    filler = fill(whole.folder)
    whole.until(lambda: whole.supervisor.store_down is not None, "the store takes no more")
    refused = author.apply("b")
    assert (refused.status_code, refused.json()["code"]) == (503, "STORE_DOWN")
    assert "full" in refused.json()["title"]
    found = author.get("/api/v1/pipelines/a")
    assert (found.status_code, author.get("/healthz").status_code) == (200, 200)

    filler.unlink()
    assert author.apply("b").status_code == 200
    whole.until(lambda: (whole.state("a"), whole.state("b")) == ("RUNNING", "RUNNING"), "both run", 60)
    author.post("/api/v1/pipelines/a/stop")
    whole.until(lambda: whole.state() == "STOPPED", "it stopped")
    kept = author.get("/api/v1/pipelines/a/batches?limit=1000").json()["items"]
    mine = [run for run in whole.runs() if run.path.parts[-3] == "a"]
    written = {(run.path.name, line.batch) for run in mine for line in run.read_batches()[0]}
    assert {(each["run"], each["batch"]) for each in kept} >= written
    assert len(kept) == len({(each["run"], each["batch"]) for each in kept})


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Whole]:
    monkeypatch.setattr(database, "_PATIENCE", 0.1)
    found = Whole(tmp_path)
    yield found
    found.close()


def test_while_the_store_is_down_reads_say_so_and_pipelines_go_on(small: Whole) -> None:
    author = small.author
    author.apply("a")
    small.until(lambda: small.state() == "RUNNING", "it runs")
    (run,) = small.runs()
    engine = small.server.store.engine
    engine.dispose()
    file = small.folder / "penstock.db"
    away = file.with_name("away.db")
    for each in small.folder.glob("penstock.db*"):
        shutil.move(each, away.with_name(each.name.replace("penstock", "away")))
    file.mkdir()
    before = batches(small)
    small.until(lambda: batches(small) >= before + 10, "it goes on")
    assert small.supervisor.store_down is not None
    for path in ("pipelines", "pipelines/a", "events", "runs"):
        answer = author.get(f"/api/v1/{path}")
        assert (answer.status_code, answer.json()["code"]) == (503, "STORE_DOWN"), path
    assert author.get("/readyz").status_code == 503
    assert small.supervisor.live()["a"].status is not None

    file.rmdir()
    for each in small.folder.glob("away.db*"):
        shutil.move(each, each.with_name(each.name.replace("away", "penstock")))
    small.until(lambda: small.supervisor.store_down is None, "the store is back")
    assert [item.path for item in small.runs()] == [run.path]
    author.post("/api/v1/pipelines/a/stop")
    small.until(lambda: small.state() == "STOPPED", "it stopped")
    kept = author.get("/api/v1/pipelines/a/batches?limit=1000").json()["items"]
    assert sorted(each["batch"] for each in kept) == list(range(batches(small)))


def test_one_pipeline_whose_file_cannot_be_written_does_not_stop_the_others(small: Whole) -> None:
    author = small.author
    author.apply("a", "b")
    in_the_way = small.folder / "pipelines" / "b"
    in_the_way.parent.mkdir(exist_ok=True)
    in_the_way.write_text("not a folder", "utf-8")
    small.until(lambda: small.state("a") == "RUNNING" and small.state("b") == "BACKING_OFF", "one runs")
    assert "cannot be written" in author.get("/api/v1/pipelines/b").json()["reason"]
    in_the_way.unlink()
    author.post("/api/v1/pipelines/b/start")
    small.until(lambda: small.state("b") == "RUNNING", "both run")


def test_one_pipeline_whose_files_cannot_be_put_aside_does_not_stop_the_others(small: Whole) -> None:
    store, folder = small.server.store, DataFolder(small.folder)
    small.author.apply("a", "b", start=False)
    port = SupervisorStore(store, folder, "local")
    port.load(small.server.time)
    (small.folder / "deleted").write_text("in the way", "utf-8")
    with store.writing() as connection:
        pipelines.mark_for_deletion(connection, "a", revision=1, now=small.server.time)
    assert [wanted.name for wanted in port.load(small.server.time).pipelines] == ["a", "b"]
    (small.folder / "deleted").unlink()
    assert [wanted.name for wanted in port.load(small.server.time).pipelines] == ["b"]
