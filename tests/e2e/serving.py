"""A server as a process of its own, with runners that are real or, where Spark does not matter, fake ones."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from penstock.testing.processes import Process, kill, until, with_variable

ROOT = Path(__file__).parents[2]
_MARK = "PENSTOCK_TEST_SERVER"


class Serving(Process):
    """`penstock serve` over a data folder. Runners go on when it ends; `Site` ends them."""

    def __init__(self, data: Path, log: Path, *options: object, fake: bool, env: Mapping[str, str]) -> None:
        paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
        super().__init__(
            ["serve", "--data", data, "--port", 0, *options],
            log,
            {"PYTHONPATH": paths, **env},
            module="tests.control.fake_serve" if fake else "penstock.cli.main",
        )
        self.wait_until(lambda: "go on" in self.text, "that it serves", every=0.05)
        found = re.search(r"serves (http\S+)", self.text)
        assert found is not None, self.text
        self.url = found[1]


class Site:
    """A data folder and the servers that use it one after the other; leaving it ends all they have started."""

    def __init__(self, folder: Path, *options: object, fake: bool = True, env: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.data = folder / "data"
        self._options = options
        self._fake = fake
        self._mark = uuid.uuid4().hex
        self._env = {**(env or {}), _MARK: self._mark}
        self._count = 0
        self.server = self.serve()

    def serve(self) -> Serving:
        self._count += 1
        log = self.folder / f"serve-{self._count}.log"
        self.server = Serving(self.data, log, *self._options, fake=self._fake, env=self._env)
        return self.server

    @property
    def token(self) -> str:
        return (self.data / "admin.token").read_text("utf-8").strip()

    def ask(self, path: str) -> Any:
        answer = httpx.get(
            f"{self.server.url}/api/v1{path}",
            headers={"Authorization": f"Bearer {self.token}"},
            trust_env=False,
            timeout=30,
        )
        assert answer.status_code == 200, answer.text
        return answer.json()

    def pipeline(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ask(f"/pipelines/{name}")
        return found

    def wait_for(self, name: str, *states: str, seconds: float = 90) -> None:
        seen: dict[str, Any] = {}

        def reached() -> bool:
            seen.update(self.pipeline(name))
            return seen["state"] in states

        try:
            until(reached, f"{name} is {' or '.join(states)}", seconds, every=0.1)
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {seen}") from None

    def mode(self, name: str, mode: str) -> None:
        """What the fake runner of a pipeline does from now on."""
        state = self.data / "pipelines" / name / "state"
        state.mkdir(parents=True, exist_ok=True)
        (state / "mode").write_text(mode, "utf-8")

    def processes(self) -> list[int]:
        """All that the servers have started and themselves, as far as it runs."""
        return with_variable(_MARK, self._mark)

    def __enter__(self) -> Site:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        scratch = _scratch_folders(self.processes())
        # The server first: it would start anew what is killed.
        kill(self.server.pid)
        self.server.wait(90)
        for pid in self.processes():
            kill(pid)
        until(lambda: not self.processes(), "that all has ended", 90)
        for folder in scratch:
            shutil.rmtree(folder, ignore_errors=True)


def _scratch_folders(processes: Sequence[int]) -> set[Path]:
    """Where previews and questions work, which a server that is killed does not remove."""
    found = set()
    for pid in processes:
        with suppress(OSError):
            found.add(Path(os.readlink(f"/proc/{pid}/cwd")))
    return {folder for folder in found if folder.match(f"{tempfile.gettempdir()}/penstock-*")}
