"""A schema registry for tests: Confluent's REST paths over real sockets, and the faults that a real one may have."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

Answer = tuple[int, bytes, dict[str, str]]


class SchemaRegistry:
    """Schemas by number and by subject and version."""

    def __init__(self) -> None:
        self.by_number: dict[int, dict[str, Any]] = {}
        self.by_subject: dict[tuple[str, int], dict[str, Any]] = {}
        self.login: tuple[str, str] | None = None
        self.faults: list[Answer | Callable[[], Answer]] = []
        """What is answered to the next requests, in place of the truth."""
        self.requests: list[str] = []
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.requests.append(self.path)
                status, content, headers = registry.answer(self.path, self.headers.get("Authorization"))
                self.send_response(status)
                for name, value in {"Content-Length": str(len(content)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def add(self, number: int, schema: Any, references: list[dict[str, Any]] | None = None, kind: str = "AVRO") -> None:
        found = {"schema": json.dumps(schema)}
        self.by_number[number] = found | ({"references": references} if references else {})
        if kind != "AVRO":
            self.by_number[number]["schemaType"] = kind

    def add_version(
        self, subject: str, version: int, schema: Any, references: list[dict[str, Any]] | None = None
    ) -> dict[str, Any]:
        """The reference by which other schemas name it."""
        found = {"subject": subject, "version": version, "schema": json.dumps(schema)}
        self.by_subject[subject, version] = found | ({"references": references} if references else {})
        return {"name": subject, "subject": subject, "version": version}

    def answer(self, path: str, authorization: str | None) -> Answer:
        if self.faults:
            fault = self.faults.pop(0)
            return fault() if callable(fault) else fault
        if self.login is not None:
            wanted = base64.b64encode(":".join(self.login).encode()).decode()
            if authorization != f"Basic {wanted}":
                return 401, b'{"error_code": 401, "message": "Unauthorized"}', {}
        parts = [unquote(part) for part in path.strip("/").split("/")]
        found = None
        if parts[:2] == ["schemas", "ids"]:
            found = self.by_number.get(int(parts[2]))
        elif parts[0] == "subjects":
            found = self.by_subject.get((parts[1], int(parts[3])))
        if found is None:
            return 404, b'{"error_code": 40403, "message": "Schema not found"}', {}
        return 200, json.dumps(found).encode(), {}

    @contextmanager
    def serving(self) -> Iterator[SchemaRegistry]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()
