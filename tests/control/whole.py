"""API, store and supervisor together, with runners that report as real ones do."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.control.api.server import Client, Server
from tests.control.supervisor.world import FAKE, FAKE_WORKER

from penstock.control.admission import ProjectAdmission
from penstock.control.auth.roles import Role
from penstock.control.config import ServerConfig
from penstock.control.launch.granted import access_of
from penstock.control.policy import Policy
from penstock.control.store.supervision import SupervisorStore
from penstock.control.supervisor.act import Processes
from penstock.control.supervisor.loop import Supervisor
from penstock.control.supervisor.ports import Wanted
from penstock.reports.folder import RunFolder
from penstock.testing.processes import end_below, until


class Whole:
    """A server as `penstock serve` puts it together, but for its sockets and threads."""

    def __init__(self, folder: Path, runner: Sequence[str] = FAKE, config: ServerConfig | None = None) -> None:
        config = config or ServerConfig()
        self._runner = runner
        self.folder = folder
        self.server = Server(folder, config)
        self.store = SupervisorStore(
            self.server.store,
            self.server.services.folder,
            config.default_target,
            default_of=lambda found: self.server.services.project_of(found).default_target,
        )
        self.start()
        self.author: Client = self.server.client(Role.AUTHOR)

    def start(self) -> None:
        """A supervisor that has just started."""
        self.supervisor = Supervisor(
            self.store,
            self.server.services.folder,
            lambda: self.server.services.config.supervised,
            base=self.server.services.policies.of(self.server.services.projects.default).folder,
            admission=self._admission(),
            processes=Processes(self._runner, worker=FAKE_WORKER),
            access=lambda wanted, versions: access_of(
                self._policy_of(wanted), self.store.references(wanted.name, versions)
            ),
        )

    def _policy_of(self, wanted: Wanted) -> Policy:
        services = self.server.services
        return services.policies.of(services.projects.of(wanted.labels, wanted.scope))

    def _admission(self) -> ProjectAdmission:
        services = self.server.services
        return ProjectAdmission(
            services.projects, services.policies, services.store, lambda project: services.disk_use(project)
        )

    def until(self, condition: Callable[[], object], what: str, seconds: float = 90, every: float = 0.02) -> None:
        def look() -> object:
            self.server.time = dt.datetime.now(dt.UTC)
            self.supervisor.tick()
            self.server.live = self.supervisor.live()
            return condition()

        until(look, what, seconds, every=every)

    def state(self, name: str = "a") -> str:
        return str(self.author.get(f"/api/v1/pipelines/{name}").json().get("state"))

    def runs(self) -> list[RunFolder]:
        return [RunFolder(path) for path in self.folder.glob("pipelines/*/runs/*")]

    def close(self) -> None:
        """Kills what was started, also what has not reported yet that it is there."""
        end_below(self.folder)
        self.server.close()
