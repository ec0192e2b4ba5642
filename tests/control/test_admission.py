"""What is asked before a run starts: the rules of its project, its targets and its quotas."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.control.api.server import Server
from tests.control.files import yaml

from penstock.control.admission import ProjectAdmission
from penstock.control.auth.roles import Role
from penstock.control.config import ServerConfig
from penstock.control.policies import Policies
from penstock.control.projects import Projects
from penstock.control.supervisor.decide import Decision, refused
from penstock.control.supervisor.ports import Refusal, Wanted

WANTED = Wanted("a", "running", 1, 1, "a.yaml", labels={"team": "a"})


def config(**project: Any) -> ServerConfig:
    targets = {name: {"master": "local[2]", "driverMemory": "1g"} for name in ("local", "other")}
    project = {"labels": {"team": "a"}, "targets": ["local"], **project}
    return ServerConfig.model_validate({"targets": targets, "projects": {"a": project}})


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path, config())
    assert server.client(Role.AUTHOR).apply("a", labels="{team: a}").status_code == 200
    yield server
    server.close()


def admission(server: Server, now: ServerConfig, used: int | None = None) -> ProjectAdmission:
    data = server.services.folder.path
    return ProjectAdmission(Projects(now, data), Policies(data), server.store, lambda _: used)


def code(refusal: Refusal | None) -> str | None:
    return None if refusal is None else str(refusal.problem["code"])


def test_a_version_that_its_project_allows_runs_in_the_folder_of_the_project(server: Server) -> None:
    found = admission(server, config())
    assert found.refusal(WANTED, "local") is None
    assert found.folder(WANTED) == server.services.folder.path / "projects" / "a" / "files"
    assert [*found.targets(WANTED)] == ["local"]


def test_targets_of_a_project_load_what_was_locked_for_them(server: Server) -> None:
    data, locked = server.services.folder.path, {"local": {"a:b:1": "0" * 64}, "other": {"a:c:1": "1" * 64}}
    found = ProjectAdmission(Projects(config(), data), Policies(data), server.store, jars=locked)
    assert {name: target.jars for name, target in found.targets(WANTED).items()} == {"local": locked["local"]}


def test_targets_of_others_are_refused(server: Server) -> None:
    assert code(admission(server, config()).refusal(WANTED, "other")) == "TARGET_NOT_ALLOWED"


def test_a_version_is_judged_by_the_configuration_of_now(server: Server) -> None:
    text = yaml("a", labels="{team: a}").replace("./out.db", "/srv/exchange/out.db")
    wide = config(paths={"allowed": ["/srv/exchange"]})
    again = Server(server.services.folder.path, wide, server.store)
    files = [{"path": "a.yaml", "text": text}]
    assert again.client(Role.ADMIN, {"team": "a"}).post("/api/v1/apply", {"files": files}).status_code == 200
    assert admission(server, wide).refusal(WANTED, "local", 2) is None
    refusal = admission(server, config()).refusal(WANTED, "local", 2)
    assert code(refusal) == "PATH_NOT_ALLOWED"
    assert refusal is not None
    assert refusal.reason.startswith("project 'a' does not allow this version:")
    assert not refusal.may_pass
    assert admission(server, config()).refusal(WANTED, "local", 1) is None


def test_what_is_over_a_quota_waits(server: Server) -> None:
    limited = admission(server, config(quotas={"cores": 4}))
    others = [(Wanted(name, "running", 1, 1, "", labels={"team": "a"}), "local") for name in "bc"]
    strangers = [(Wanted("x", "running", 1, 1, "", labels={"team": "x"}), "local")] * 5
    assert limited.refusal(WANTED, "local", running=lambda: [*others[:1], *strangers]) is None
    refusal = limited.refusal(WANTED, "local", running=lambda: others)
    assert (code(refusal), refusal is not None and refusal.may_pass) == ("QUOTA_EXCEEDED", True)
    # A run that is there already is not asked how much it takes.
    assert limited.refusal(WANTED, "local") is None
    full = admission(server, config(quotas={"disk": "1g"}), used=2 * 1024**3)
    assert code(full.refusal(WANTED, "local", running=list)) == "QUOTA_EXCEEDED"


def test_what_is_refused_is_stopped_waits_or_fails() -> None:
    refusal = Refusal({"code": "PATH_NOT_ALLOWED", "owner": "author"}, "it may not")
    later = Refusal({"code": "QUOTA_EXCEEDED", "owner": "operator"}, "not now", may_pass=True)
    start, adopt = Decision("start", "it should run", "STARTING"), Decision("adopt", "it runs", "RUNNING")
    found = (refused(start, refusal), refused(start, later), refused(adopt, refusal))
    assert [(each.kind, each.state) for each in found] == [
        ("give_up", "FAILED"), ("wait", "BACKING_OFF"), ("stop", "STOPPING"),
    ]  # fmt: skip
