"""Asks a server over HTTP at a steady rate, with as little work of its own as possible.

Requests are due at fixed times, and each is timed from when it was due: one that had to wait for others to be answered
counts with its wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

_CONNECTIONS = 32


@dataclass(frozen=True)
class Asked:
    path: str
    status: int
    seconds: float
    bytes: int


def ask(port: int, token: str, paths: Sequence[str], rate: float) -> list[Asked]:
    """Asks for each path in turn, `rate` a second."""
    return asyncio.run(_ask(port, token, paths, rate))


async def _ask(port: int, token: str, paths: Sequence[str], rate: float) -> list[Asked]:
    free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    for _ in range(_CONNECTIONS):
        free.put_nowait(await asyncio.open_connection("127.0.0.1", port, limit=2**22))
    began = time.perf_counter() + 0.1

    async def one(number: int, path: str) -> Asked:
        due = began + number / rate
        await asyncio.sleep(max(due - time.perf_counter(), 0))
        connection = await free.get()
        try:
            status, size = await _exchange(*connection, path, token)
        finally:
            free.put_nowait(connection)
        return Asked(path, status, time.perf_counter() - due, size)

    try:
        return list(await asyncio.gather(*(one(number, path) for number, path in enumerate(paths))))
    finally:
        while not free.empty():
            free.get_nowait()[1].close()


async def _exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, token: str
) -> tuple[int, int]:
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    size = int(head.split("content-length:")[1].split("\r\n")[0])
    await reader.readexactly(size)
    return int(head.split()[1]), size
