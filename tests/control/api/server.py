"""An API over a store of its own, asked in the process or, for streams, over a socket."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from tests.control.files import yaml
from tests.control.supervisor.fake_savepoints import put_savepoint, put_state

from penstock.control.api.app import create_app
from penstock.control.api.services import Services
from penstock.control.auth.oidc import Oidc
from penstock.control.auth.roles import Role
from penstock.control.auth.tokens import digest, new_token
from penstock.control.config import ServerConfig
from penstock.control.files import DataFolder
from penstock.control.store import access, pipelines, savepoints
from penstock.control.store.database import Store
from penstock.control.supervisor.ports import Changes, Notice
from penstock.control.supervisor.savepoints import SavepointWatch
from penstock.control.supervisor.watched import Live

T0 = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)


class Server:
    """What the server was told to do is noted in `woken`, `reclaimed` and `withdrawn`."""

    def __init__(
        self, folder: Path, config: ServerConfig, store: Store | None = None, oidc: Oidc | None = None
    ) -> None:
        self.store = store or Store.in_folder(folder)
        self.store.migrate()
        self.time = T0
        self.woken = 0
        self.reclaimed: list[Notice] = []
        self.withdrawn: list[str] = []
        self.live: dict[str, Live] = {}
        self.troubles: list[str] = []
        self.services = Services(
            self.store,
            config,
            DataFolder(folder),
            now=lambda: self.time,
            live=lambda: self.live,
            wake=self._wake,
            reclaim=self.reclaimed.append,
            withdraw=self.withdrawn.append,
            metrics=lambda: b"penstock_up 1\n",
            troubles=lambda: self.troubles,
            oidc=oidc,
        )
        self.app = create_app(self.services)
        self._tokens: dict[tuple[str, str], str] = {}
        self._clients: list[httpx.Client] = []

    def _wake(self) -> None:
        self.woken += 1

    def token(self, role: Role, scope: Mapping[str, str] | None = None) -> str:
        key = (str(role), str(scope))
        if key not in self._tokens:
            self._tokens[key] = new_token()
            with self.store.writing() as connection:
                access.add_token(
                    connection, f"the {role}", digest(self._tokens[key]), role=role, now=self.time, scope=scope
                )
        return self._tokens[key]

    def client(self, role: Role | None, scope: Mapping[str, str] | None = None, **more: Any) -> Client:
        headers = {} if role is None else {"Authorization": f"Bearer {self.token(role, scope)}"}
        return Client(self.app, headers, **more)

    def close(self) -> None:
        self.store.close()


class Client:
    """Asks the application directly, each request in an event loop of its own."""

    def __init__(self, app: Any, headers: Mapping[str, str], address: str = "127.0.0.1") -> None:
        self._app = app
        self.headers = dict(headers)
        self._address = address

    def request(self, method: str, path: str, **content: Any) -> httpx.Response:
        import anyio

        headers = {**self.headers, **content.pop("headers", {})}

        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self._app, raise_app_exceptions=False, client=(self._address, 5))
            async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
                return await client.request(method, path, headers=headers, **content)

        return anyio.run(ask)

    def get(self, path: str, **content: Any) -> httpx.Response:
        return self.request("GET", path, **content)

    def post(self, path: str, json: Any = None, **content: Any) -> httpx.Response:
        return self.request("POST", path, json=json, **content)

    def delete(self, path: str, **content: Any) -> httpx.Response:
        return self.request("DELETE", path, **content)

    def apply(self, *names: str, table: str = "t", labels: str = "{}", **more: Any) -> httpx.Response:
        files = [{"path": f"{name}.yaml", "text": yaml(name, table=table, labels=labels)} for name in names]
        return self.post("/api/v1/apply", {"files": files, **more})


def with_state(server: Server, pipeline: str, savepoint: str | None = None, **more: Any) -> None:
    """State of the version that a pipeline has, as if it had run, and a savepoint that the server has seen."""
    state = server.services.folder.state(pipeline)
    with server.store.reading() as connection:
        found = pipelines.get(connection, pipeline)
        document = pipelines.version(connection, pipeline, found.version).document
    put_state(state, document, **more)
    if savepoint is not None:
        put_savepoint(state, savepoint, document)
        changes = Changes()
        SavepointWatch(server.services.folder).look(changes, pipeline)
        with server.store.writing() as connection:
            savepoints.keep_in_step(connection, changes.savepoints, now=server.time)


@contextmanager
def listening(server: Server) -> Iterator[str]:
    """The application on a port of this machine."""
    server.services = replace(server.services, now=lambda: dt.datetime.now(dt.UTC))
    server.app.state.services = server.services
    config = uvicorn.Config(server.app, host="127.0.0.1", port=0, log_level="error")
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    while not running.started:
        time.sleep(0.01)
    try:
        port = running.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        running.should_exit = running.force_exit = True
        thread.join(10)
