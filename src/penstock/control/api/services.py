"""What the API stands on: the store, the configuration, and the parts of the server that act."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from penstock.capacity.autoscale.decide import Decision
from penstock.control.api.queues import Queues
from penstock.control.api.rates import RequestRates
from penstock.control.api.readiness import Readiness
from penstock.control.api.sent_rules import SentRules
from penstock.control.auth.attempts import FailedLogins
from penstock.control.auth.links import LoginLinks
from penstock.control.auth.oidc import Oidc
from penstock.control.auth.roles import Grant
from penstock.control.auth.tokens import Doorman
from penstock.control.bench import Bench
from penstock.control.config import ServerConfig
from penstock.control.console import FOLDER, Console, read_console
from penstock.control.files import DataFolder
from penstock.control.launch.user import SystemUser
from penstock.control.policies import Policies
from penstock.control.projects import Project, Projects, accesses_of
from penstock.control.store import pipelines
from penstock.control.store.database import Store
from penstock.control.submitted import RulesOf
from penstock.control.supervisor.ports import Notice
from penstock.control.supervisor.watched import Live
from penstock.reports.state_folder import StateFacts, state_facts

_KEPT_SECONDS = 1.0
_EXPLAINED = 200


def _nothing(*_: object) -> None:
    """For a server without a supervisor."""


def _unknown(_: object) -> None:
    """For a server that does not measure."""


def wall() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class Briefly:
    """What takes long to compute and is kept for a second: those who ask meanwhile get the same."""

    def __init__(self, compute: Callable[[], bytes]) -> None:
        self._compute = compute
        self._lock = threading.Lock()
        self._known = b""
        self._until = 0.0

    def __call__(self) -> bytes:
        with self._lock:
            if time.monotonic() >= self._until:
                self._known = self._compute()
                self._until = time.monotonic() + _KEPT_SECONDS
            return self._known


class Recent:
    """As many answers as are wanted, by what they were made from; those not asked for longest make room for others."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: OrderedDict[str, Any] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str) -> Any:
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
            return self._known.get(key)

    def put(self, key: str, value: Any) -> None:
        with self._lock:
            self._known[key] = value
            while len(self._known) > self._most:
                self._known.popitem(last=False)


@dataclass(frozen=True)
class Services:
    """All that routes use. The defaults are those of a server that supervises nothing."""

    store: Store
    config: ServerConfig
    folder: DataFolder
    now: Callable[[], dt.datetime] = wall
    live: Callable[[], Mapping[str, Live]] = dict
    """What the supervisor last saw of each pipeline."""
    wake: Callable[[], None] = _nothing
    """Lets the supervisor see at once to what has changed."""
    reclaim: Callable[[Notice], None] = _nothing
    """Tells that a target will be taken away."""
    withdraw: Callable[[str], None] = _nothing
    """Tells that a target stays after all."""
    metrics: Callable[[], bytes] = bytes
    """The metrics, as Prometheus reads them."""
    scaling: Callable[[str], Decision | None] = _unknown
    """What was decided last of how many cores a pipeline should have."""
    troubles: Callable[[], list[str]] = list
    """Why the server is not ready, beside its store."""
    oidc: Oidc | None = None
    disk_use: Callable[[Project], int | None] = _unknown
    """The bytes that a project takes on the disk, as they were last measured."""
    secure: bool = False
    """Whether the server speaks TLS, so that cookies are for TLS only."""
    bench: Bench = field(default_factory=Bench)
    """Where pipelines are tried out."""
    user: SystemUser | None = None
    """Who processes of pipelines run as; None for the server's own user."""
    console_folder: Path = FOLDER
    """Where the console was built."""

    @cached_property
    def console(self) -> Console:
        return read_console(self.console_folder)

    @cached_property
    def explained(self) -> Recent:
        """What is known of pipelines that somebody has looked at, by their text and the project they belong to."""
        return Recent(_EXPLAINED)

    def state_facts(self, pipeline: str) -> StateFacts | None:
        """What is known of the state of a pipeline."""
        return state_facts(self.folder.state(pipeline))

    @cached_property
    def scraped(self) -> Briefly:
        """The metrics, as they are or just were."""
        return Briefly(self.metrics)

    @cached_property
    def attempts(self) -> FailedLogins:
        return FailedLogins(self.config.limits.failed_logins)

    @cached_property
    def links(self) -> LoginLinks:
        return LoginLinks()

    @cached_property
    def readiness(self) -> Readiness:
        return Readiness(self.store.check, self.troubles)

    @cached_property
    def queues(self) -> Queues:
        return Queues()

    @cached_property
    def rates(self) -> RequestRates:
        return RequestRates(self.config.limits.requests)

    @cached_property
    def doorman(self) -> Doorman:
        return Doorman(self.store, lambda groups: accesses_of(self.config, groups))

    @cached_property
    def projects(self) -> Projects:
        return Projects(self.config, self.folder.path)

    @cached_property
    def policies(self) -> Policies:
        return Policies(self.folder.path, self.user)

    def rules(self, grant: Grant, forked: pipelines.Pipeline | None = None) -> RulesOf:
        """By whose rules files are judged that somebody sends; a fork has those of the pipeline it begins as."""
        return SentRules(self.store, self.projects, self.policies, grant, forked)

    def project_of(self, found: pipelines.Pipeline) -> Project:
        return self.projects.of(found.labels, found.scope)
