"""A proxy between a client and a server that cuts the connection at a chosen moment."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType

from tests.servers.base import HOST


class CuttingProxy:
    """Passes bytes on in both directions. Once armed, it cuts when the client sends `text`.

    With `delivered` the server gets the text and has answered before the cut, so only the answer is lost.
    """

    def __init__(self, port: int, text: bytes = b"COMMIT") -> None:
        self.target = port
        self.text = text
        self.cuts = 0
        self._armed: bool | None = None
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, *, delivered: bool) -> None:
        self._armed = delivered

    def __enter__(self) -> CuttingProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Closing alone would not wake the thread that waits for clients.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection((HOST, self.target))
                link = _Link(self, client, server)
                threading.Thread(target=link.upward, daemon=True).start()
                threading.Thread(target=link.downward, daemon=True).start()


class _Link:
    def __init__(self, proxy: CuttingProxy, client: socket.socket, server: socket.socket) -> None:
        self.proxy = proxy
        self.client = client
        self.server = server
        self.cutting = False
        self.answered = threading.Event()

    def upward(self) -> None:
        with suppress(OSError):
            while data := self.client.recv(1 << 16):
                delivered = self.proxy._armed
                if delivered is None or self.proxy.text not in data:
                    self.server.sendall(data)
                    continue
                self.proxy._armed = None
                self.proxy.cuts += 1
                self.cutting = True
                if delivered:
                    self.server.sendall(data)
                    self.answered.wait(10)
                break
        self._close()

    def downward(self) -> None:
        with suppress(OSError):
            while data := self.server.recv(1 << 16):
                if self.cutting:
                    self.answered.set()
                    return
                self.client.sendall(data)
        self._close()

    def _close(self) -> None:
        for end in (self.client, self.server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
