"""What stands between a browser and a server, and can be cut."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit


class Between:
    """Hands bytes on, both ways, until it is cut; mended, it is reached at the same address."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._to = (str(parts.hostname), int(parts.port or 80))
        self._open: set[socket.socket] = set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._port = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self._begin()

    def cut(self) -> None:
        # Closing alone does not wake the thread that waits for the next caller.
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for each in list(self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", self._port))
        self._begin()

    def _begin(self) -> None:
        threading.Thread(target=self._accept, args=(self._listening,), daemon=True).start()

    def _accept(self, listening: socket.socket) -> None:
        with suppress(OSError):
            while True:
                caller, _ = listening.accept()
                server = socket.create_connection(self._to)
                for one, other in ((caller, server), (server, caller)):
                    threading.Thread(target=self._hand_on, args=(one, other), daemon=True).start()

    def _hand_on(self, one: socket.socket, other: socket.socket) -> None:
        self._open.add(one)
        with suppress(OSError):
            while part := one.recv(65_536):
                other.sendall(part)
        for each in (one, other):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._open.discard(one)
        one.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()
