"""A real server as its attackers see it: tokens with a role and a scope, and what the server answers to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
from tests.e2e.serving import Site

from penstock.control.projects import scope_id

LIGHT_TARGET = """\
targets:
  local: {master: "local[1]", driverMemory: 512m, conf: {spark.driver.extraJavaOptions: -XX:TieredStopAtLevel=1}}
"""
"""A server configuration whose runs cost little; put further keys behind it."""


@dataclass(frozen=True)
class Caller:
    """One token at one server."""

    url: str
    token: str

    def request(self, method: str, path: str, *, timeout: float = 120, **content: Any) -> httpx.Response:
        """Sends a request to `/api/v1` + path."""
        headers = {"Authorization": f"Bearer {self.token}", **content.pop("headers", {})}
        return httpx.request(
            method, f"{self.url}/api/v1{path}", headers=headers, trust_env=False, timeout=timeout, **content
        )

    def get(self, path: str, **content: Any) -> httpx.Response:
        return self.request("GET", path, **content)

    def post(self, path: str, json: Any = None, **content: Any) -> httpx.Response:
        return self.request("POST", path, json=json, **content)

    def delete(self, path: str, **content: Any) -> httpx.Response:
        return self.request("DELETE", path, **content)

    def validate(self, text: str, name: str = "p.yaml") -> httpx.Response:
        return self.post("/validate", {"files": [{"path": name, "text": text}]})

    def preview(self, text: str, node: str, name: str = "p.yaml") -> httpx.Response:
        """The first rows of a node of a pipeline that is being written."""
        return self.post("/preview", {"file": {"path": name, "text": text}, "node": node})

    def apply(self, *texts: str, **more: Any) -> httpx.Response:
        files = [{"path": f"{number}.yaml", "text": text} for number, text in enumerate(texts)]
        return self.post("/apply", {"files": files, **more})


@dataclass
class AttackedSite:
    """`penstock serve` as a process of its own, with real runners; leaving it ends all it has started."""

    folder: Path
    config: str = LIGHT_TARGET
    env: Mapping[str, str] = field(default_factory=dict)
    options: Sequence[object] = ()
    site: Site = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "serve.yaml").write_text(self.config, "utf-8")
        self.site = Site(
            self.folder, "--config", self.folder / "serve.yaml", *self.options, fake=False, env=dict(self.env)
        )

    @property
    def data(self) -> Path:
        return self.site.data

    @property
    def admin(self) -> Caller:
        return Caller(self.site.server.url, self.site.token)

    def files(self, **scope: str) -> Path:
        """Where relative paths of pipelines start that a token with this scope has made, with no project configured."""
        return self.data / "projects" / scope_id(scope) / "files"

    def caller(self, role: str, **scope: str) -> Caller:
        """A new token with this role, limited to pipelines with these labels."""
        answer = self.admin.post("/tokens", {"name": f"{role} {scope}", "role": role, "scope": scope})
        assert answer.status_code == 201, answer.text
        return Caller(self.site.server.url, answer.json()["token"])

    def __enter__(self) -> AttackedSite:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.site.__exit__(kind, error, trace)


def folder_of(caller: Caller, data: Path, text: str) -> Path:
    """Where relative paths of a new caller's pipelines start: a folder that its first file makes."""
    before = set(data.glob("projects/*/files"))
    caller.validate(text)
    (found,) = set(data.glob("projects/*/files")) - before
    return found


def codes(answer: httpx.Response) -> list[str]:
    """The codes of all problems that an answer reports."""
    content = answer.json()
    problems = content.get("problems", [])
    found = [problem["code"] for problem in problems]
    return found or ([content["code"]] if "code" in content else [])
