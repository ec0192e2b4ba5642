"""A Maven repository of a few jars on this machine, as a company has one."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType

NO_CENTRAL = "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=1"
"""For JAVA_TOOL_OPTIONS: what is not on this machine is not reached."""


class MavenRepository:
    """Serves what was published; counts the jars that were fetched."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.fetched: list[str] = []
        folder.mkdir(parents=True, exist_ok=True)
        handler = partial(_Handler, self.fetched, directory=str(folder))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"

    def publish(self, coordinate: str, content: bytes, needs: Sequence[str] = ()) -> None:
        """Puts a jar there, with what it needs: `group:artifact:version`, or with a classifier."""
        group, artifact, version, *_ = coordinate.split(":")
        folder = self._folder / group.replace(".", "/") / artifact / version
        folder.mkdir(parents=True, exist_ok=True)
        name = "-".join(coordinate.split(":")[1:])
        (folder / f"{name}.jar").write_bytes(content)
        if name == f"{artifact}-{version}":
            (folder / f"{name}.pom").write_text(_pom(group, artifact, version, needs), "utf-8")

    def __enter__(self) -> MavenRepository:
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(SimpleHTTPRequestHandler):
    def __init__(self, fetched: list[str], *args: object, directory: str) -> None:
        self._fetched = fetched
        super().__init__(*args, directory=directory)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        if self.path.endswith(".jar"):
            self._fetched.append(self.path.rpartition("/")[2])
        super().do_GET()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""


def _pom(group: str, artifact: str, version: str, needs: Sequence[str]) -> str:
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        f"{_named(group, artifact, version)}<dependencies>"
        + "".join(f"<dependency>{_named(*need.split(':'))}</dependency>" for need in needs)
        + "</dependencies></project>"
    )


def _named(group: str, artifact: str, version: str, classifier: str = "") -> str:
    further = f"<classifier>{classifier}</classifier>" if classifier else ""
    return f"<groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>{further}"
