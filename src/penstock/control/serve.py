"""The server as a whole: store, API, supervisor, notices and alerts, put together, started and ended.

Ending it ends no pipeline: runs go on by themselves, and the next server adopts them.
"""

from __future__ import annotations

import datetime as dt
import logging
import os
import ssl
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import uvicorn
from sse_starlette.sse import AppStatus

from penstock.control import metrics, samples
from penstock.control.admission import ProjectAdmission
from penstock.control.alerts.service import AlertService
from penstock.control.api.app import create_app
from penstock.control.api.connections import BoundedConnection
from penstock.control.api.listen import listen
from penstock.control.api.services import Services
from penstock.control.auth.oidc import Oidc, login_key
from penstock.control.auth.tokens import ensure_admin
from penstock.control.autoscale.service import ScalingService
from penstock.control.bench import Bench
from penstock.control.cleaning import Removed, remove_some
from penstock.control.clock import Clock
from penstock.control.config import ServerConfig, read_server_config
from penstock.control.disk_use import DiskUse
from penstock.control.files import DataFolder
from penstock.control.launch.granted import access_of
from penstock.control.launch.user import SystemUser, choose_user
from penstock.control.launch.warnings import warnings_of
from penstock.control.packages import locked_jars
from penstock.control.policies import Policies
from penstock.control.policy import Policy
from penstock.control.projects import Projects, accesses_of, unguarded_secrets
from penstock.control.store import access, history
from penstock.control.store.database import Store
from penstock.control.store.lease import lease_of, locked
from penstock.control.store.supervision import SupervisorStore
from penstock.control.store.thin import thin
from penstock.control.supervisor import act
from penstock.control.supervisor.loop import Supervisor
from penstock.control.supervisor.notices.base import Herald, Listening
from penstock.control.supervisor.notices.file import FileNotices
from penstock.control.supervisor.notices.hook import HookNotices
from penstock.control.supervisor.notices.metadata import CLOUDS, MetadataNotices
from penstock.control.supervisor.ports import Wanted
from penstock.errors import PenstockError
from penstock.spec.secrets import hide

THIN_SECONDS = 60.0
STANDS_STILL = dt.timedelta(seconds=30)
"""A supervisor that has not ticked for so long is not well."""
_BETWEEN_STEPS = 0.05
"""Seconds between two steps of removing files."""
_DRAIN_SECONDS = 2
"""How long requests and streams may go on when the server ends."""
_JOIN_SECONDS = 15.0
RUNNER: Sequence[str] = act.RUNNER
"""What a run is started with."""
WORKER: Sequence[str] = act.WORKER
"""What an operation is started with."""
_log = logging.getLogger("penstock.server")

_Running = Callable[[], object]
_Closing = Callable[[], object]


@dataclass(frozen=True)
class ServeOptions:
    """What `penstock serve` was told."""

    data: Path
    host: str = "127.0.0.1"
    port: int = 8080
    store: str | None = None
    """The URL of the database; None for a file in the data folder."""
    config: Path | None = None
    insecure: bool = False


class PenstockServer:
    """One server over one data folder; `start` raises whatever keeps it from serving, and has then left nothing."""

    def __init__(self, options: ServeOptions) -> None:
        self.options = options
        self.config: ServerConfig = read_server_config(options.config)
        self._jars = locked_jars(self.config, options.config)
        self.url = ""
        self.token: str | None = None
        """The token of the first admin, if this start has made it."""
        self._closing: list[_Closing] = []

    def start(self) -> None:
        """Listens and supervises, in threads of its own."""
        try:
            self._start()
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Ends the server; runs go on. What was started last ends first."""
        while self._closing:
            self._closing.pop()()

    def __enter__(self) -> PenstockServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    # --- putting it together ---------------------------------------------------------------------------------

    def _start(self) -> None:
        options, config = self.options, self.config
        data = make_folder(options.data)
        self._closing.append(lock_folder(data).close)
        socket = listen(options.host, options.port, tls=config.tls is not None, insecure=options.insecure)
        self._closing.append(socket.close)
        self.url = _url(options.host, socket.getsockname()[1], secure=config.tls is not None)
        self.store = self._open_store(data)
        self.clock = Clock(file=data / "clock.json")
        self.token = ensure_admin(self.store, data, self.clock.now())
        folder, hook = DataFolder(data), HookNotices()
        self.projects = Projects(config, data)
        user = self._user(data)
        self.policies = Policies(data, user)
        for project in (self.projects.default, *self.projects.configured):
            self.policies.of(project)
        self.launcher = self.policies.of(self.projects.default).launcher
        self.disk = DiskUse(self.projects, self.policies, self.store, folder)
        self.supervisor = self._supervisor(folder, hook)
        self.alerts = AlertService(
            self.store, self._seen, config.notify, self.clock, acts=self._acts, channels_of=self._channels_of
        )
        self.scaling = ScalingService(self.store, self.supervisor.live, config.targets, self.clock, acts=self._acts)
        self.services = Services(
            self.store,
            config,
            folder,
            now=self.clock.now,
            live=self.supervisor.live,
            wake=self.supervisor.wake,
            reclaim=hook.tell,
            withdraw=hook.withdraw,
            metrics=self._metrics,
            scaling=self.scaling.decision,
            troubles=self.troubles,
            oidc=None
            if config.oidc is None
            else Oidc(
                config.oidc, self.clock.now, key=login_key(data), accesses=lambda groups: accesses_of(config, groups)
            ),
            disk_use=self.disk.of,
            secure=config.tls is not None,
            bench=Bench(launcher=self.launcher),
            user=user,
        )
        self._closing.append(self.services.bench.close)
        web = self._web()
        AppStatus.should_exit = False
        keeper = _Keeper(self.store, config, self.clock, folder)
        self._thread("alerts", self.alerts.run, self.alerts.end)
        self._thread("scaling", self.scaling.run, self.scaling.end)
        self._thread("keeper", keeper.run, keeper.end)
        self._thread("disk use", self.disk.run, self.disk.end)
        self._thread("supervisor", self.supervisor.run, self.supervisor.end)
        self._thread("web", lambda: web.run([socket]), lambda: _end_web(web))
        self._closing.append(_end_streams)

    def _user(self, data: Path) -> SystemUser | None:
        """Who pipelines run as; raises RUN_AS_IMPOSSIBLE."""
        for file in data.iterdir():
            if file.is_file() and not file.is_symlink():
                file.chmod(0o600)
        policies = [Policies(data).of(project) for project in (self.projects.default, *self.projects.configured)]
        folders = dict.fromkeys(folder for policy in policies for folder in policy.folders)
        user, self._no_other_user = choose_user(self.config.run_as, data, folders)
        return user

    def _open_store(self, data: Path) -> Store:
        store = Store(self.options.store) if self.options.store else Store.in_folder(data)
        self._closing.append(store.close)
        self.lease = lease_of(store.url)
        self._closing.append(self.lease.close)
        try:
            self.lease.take()
            store.migrate()
        except PenstockError as error:
            if error.code == "STORE_DOWN":
                raise PenstockError.of("SERVER_STORE_DOWN", reason=error.problems[0].params["reason"]) from error
            raise
        return store

    def _supervisor(self, folder: DataFolder, hook: HookNotices) -> Supervisor:
        config = self.config
        notices = _existing(folder.path / "notices")
        heralds: list[Herald] = [FileNotices(notices, config.targets), hook]
        if config.cloud is not None:
            heralds.append(MetadataNotices(CLOUDS[config.cloud], config.local_targets, self.clock.now))
        listening = Listening(heralds)
        listening.start()
        self._closing.append(listening.end)
        known = SupervisorStore(
            self.store,
            folder,
            config.default_target,
            self.clock.now,
            default_of=lambda found: self.projects.of(found.labels, found.scope).default_target,
        )
        return Supervisor(
            known,
            folder,
            lambda: config.supervised,
            base=self.policies.of(self.projects.default).folder,
            admission=ProjectAdmission(self.projects, self.policies, self.store, self.disk.of, self._jars),
            processes=act.Processes(RUNNER, WORKER, self.launcher),
            limits=lambda wanted: self._policy_of(wanted).access,
            access=lambda wanted, versions: access_of(self._policy_of(wanted), known.references(wanted.name, versions)),
            listening=listening,
            lease=self.lease,
            clock=self.clock,
        )

    def _web(self) -> uvicorn.Server:
        tls = self.config.tls
        settings = uvicorn.Config(
            create_app(self.services),
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            http=BoundedConnection,
            ws="none",
            timeout_graceful_shutdown=_DRAIN_SECONDS,
            ssl_certfile=None if tls is None else tls.cert,
            ssl_keyfile=None if tls is None else tls.key,
        )
        try:
            settings.load()
        except (OSError, ssl.SSLError) as error:
            assert tls is not None
            reason = error.strerror or str(error)
            raise PenstockError.of("CERTIFICATE_UNUSABLE", cert=tls.cert, key=tls.key, reason=reason) from error
        return uvicorn.Server(settings)

    def _thread(self, name: str, run: _Running, end: _Closing) -> None:
        thread = threading.Thread(target=run, name=name, daemon=True)

        def close() -> None:
            end()
            thread.join(_JOIN_SECONDS)

        self._closing.append(close)
        thread.start()

    # --- what it tells of itself -----------------------------------------------------------------------------

    def _seen(self) -> list[samples.Seen]:
        return samples.seen(self.store, self.supervisor.live(), self.clock)

    def _channels_of(self, seen: samples.Seen) -> Collection[str]:
        """The channels by which alerts of a pipeline may be told."""
        return self.projects.of(seen.labels, seen.scope).config.notify

    def _policy_of(self, wanted: Wanted) -> Policy:
        return self.policies.of(self.projects.of(wanted.labels, wanted.scope))

    def _acts(self) -> bool:
        """Whether this server, and no other, acts for the store's pipelines."""
        return self.lease.trouble is None

    def _metrics(self) -> bytes:
        live, seconds = self.supervisor.live(), self.supervisor.last_tick_seconds
        return metrics.scrape(self.store, live, self.clock, tick_seconds=seconds)

    def warnings(self) -> list[str]:
        """What is less safe here than it could be, and what to do about it."""
        return [*warnings_of(self.launcher, self._no_other_user), *unguarded_secrets(self.projects)]

    def troubles(self) -> list[str]:
        """Why the server is not ready, for anybody to read; the log says more."""
        found = []
        last = self.supervisor.last_tick
        if self.supervisor.trouble is not None:
            found.append("the supervisor fails")
        elif last is None or self.clock.steady() - last > STANDS_STILL:
            found.append("the supervisor has not looked at the pipelines yet" if last is None else "it stands still")
        if self.lease.trouble is not None:
            found.append(self.lease.trouble)
        if self.alerts.trouble is not None:
            found.append("alerts are not evaluated")
        if self.scaling.trouble is not None:
            found.append("scaling is not evaluated")
        return found


def _end_web(web: uvicorn.Server) -> None:
    web.should_exit = True


def _end_streams() -> None:
    """Streams have no end of their own, and would keep the server from ending."""
    AppStatus.should_exit = True


class _Keeper:
    """Thins the history every minute, and removes the files of pipelines that were deleted long ago."""

    def __init__(self, store: Store, config: ServerConfig, clock: Clock, folder: DataFolder) -> None:
        self._store = store
        self._clock = clock
        self._folder = folder
        self._deleted = dt.timedelta(milliseconds=config.history.deleted.millis)
        self._keep = config.history.keep
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(THIN_SECONDS):
            try:
                self.thin()
                self.clean()
            except Exception as error:
                # The next minute is another chance.
                _log.warning("history could not be thinned: %s", hide(str(error)))

    def thin(self) -> None:
        done = 1
        while done and not self._over.is_set():
            with self._store.writing() as connection:
                done = thin(connection, self._keep, self._clock.cautious())

    def clean(self) -> None:
        """Removes the files of deleted pipelines that have been kept for long enough, and says so."""
        for path in self._folder.deleted_before(self._clock.cautious() - self._deleted):
            done = step = Removed(files=1)
            while step.files and not step.whole and not self._over.is_set():
                step = remove_some(path)
                done.add(step)
                # Others want the disk too.
                self._over.wait(_BETWEEN_STEPS)
            if step.whole:
                self._note(path.name, done)
            elif not step.files:
                _log.warning("%s cannot be removed; remove it as the user who owns its files", path)

    def _note(self, name: str, done: Removed) -> None:
        now, pipeline = self._clock.now(), name.rpartition("-")[0]
        detail = {"folder": name, "files": done.files - 1, "bytes": done.bytes}
        text = f"the files of deleted pipeline '{pipeline}' were removed, {done.bytes // 1_000_000:,} MB"
        with self._store.writing() as connection:
            history.add_event(connection, "files_removed", text, now=now, data=detail)
            access.add_audit(
                connection, now=now, who="server", role="admin", action="pipeline.purge", what=pipeline, detail=detail
            )

    def end(self) -> None:
        self._over.set()


def make_folder(path: Path) -> Path:
    """The folder of the server, made for its owner alone if it is new; raises PATH_NOT_WRITABLE."""
    found = _existing(path.expanduser().resolve())
    if not os.access(found, os.W_OK | os.X_OK):
        raise PenstockError.of("PATH_NOT_WRITABLE", path=found, reason="Permission denied")
    return found


def _existing(folder: Path) -> Path:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise PenstockError.of("PATH_NOT_WRITABLE", path=folder, reason=error.strerror or str(error)) from error
    return folder


def lock_folder(data: Path) -> IO[str]:
    """A lock that ends with this process, so that one server at a time uses the folder; raises SERVER_RUNNING."""
    lock, holder = locked(data / "serve.lock")
    if lock is None:
        raise PenstockError.of("SERVER_RUNNING", path=data, pid=holder)
    return lock


def _url(host: str, port: int, *, secure: bool) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if secure else 'http'}://{shown}:{port}"
