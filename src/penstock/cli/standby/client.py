"""Hands a command over to a standby process, and starts one for the next command. Loads little, to be quick."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.cli.standby.place import SWITCH, private_folder, socket_path

_VERBS = ("validate", "explain", "test")
_ANSWER_SECONDS = 2.0
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_STREAMS = (0, 1, 2)


def is_for(arguments: Sequence[str]) -> bool:
    """Whether a command is one that a standby process runs: short work with Spark, by someone who waits for it."""
    switch = os.environ.get(SWITCH)
    if switch == "off" or not hasattr(socket, "send_fds") or {"-h", "--help"} & set(arguments):
        return False
    verb = next((argument for argument in arguments if not argument.startswith("-")), "")
    short = (verb in _VERBS and "--no-spark" not in arguments) or (verb == "run" and "--once" in arguments)
    return short and (switch == "on" or all(os.isatty(stream) for stream in _STREAMS))


def hand_over(arguments: Sequence[str], environment: Mapping[str, str]) -> int | None:
    """Lets a standby process run the command; its exit code, or None if there is none that takes it."""
    path = socket_path(environment)
    if path is None:
        return None
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_ANSWER_SECONDS)
        try:
            connection.connect(str(path))
            if peer_user(connection) not in (None, os.getuid()):
                return None
            channel = Channel(connection)
            channel.send({"arguments": list(arguments), "environment": dict(environment)}, _STREAMS)
            process = int(channel.receive()[0]["process"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        connection.settimeout(None)
        with _forwarded_to(process) as forwarded:
            try:
                return int(channel.receive()[0]["code"])
            except (OSError, ValueError, KeyError, TypeError):
                if forwarded:
                    return 128 + forwarded[-1]
                print(f"The standby process ended before the command did. Run it again; {SWITCH}=off does without.",
                      file=sys.stderr)  # fmt: skip
                return 1


@contextmanager
def _forwarded_to(process: int) -> Iterator[list[int]]:
    """Passes signals on; those that were."""
    passed: list[int] = []

    def forward(number: int, _: Any) -> None:
        passed.append(number)
        try:
            os.kill(process, number)
        except ProcessLookupError:
            return

    before = {number: signal.signal(number, forward) for number in _FORWARDED}
    try:
        yield passed
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def start_next(environment: Mapping[str, str]) -> None:
    """Starts a standby process for commands with these variables, unless there is one."""
    path, folder = socket_path(environment), private_folder()
    if path is None or folder is None or path.exists():
        return
    try:
        with (folder / "standby.log").open("wb") as log:
            # Not the folder of the command but only installed code is searched for modules, as in the command itself.
            command = [sys.executable, "-P", "-m", "penstock.cli.standby.server"]
            subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
    except OSError:
        return


def leave(path: Path) -> None:
    """Asks a standby process to end; one that does not answer has ended."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_ANSWER_SECONDS)
        try:
            connection.connect(str(path))
            channel = Channel(connection)
            channel.send({"leave": True})
            channel.receive()
        except (OSError, ValueError):
            path.unlink(missing_ok=True)


# --- messages: one line of JSON each, with the streams of the command beside the first ---------------------------


class Channel:
    """A connection on which both sides send messages."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._read = b""

    def send(self, message: object, streams: Sequence[int] = ()) -> None:
        data = json.dumps(message).encode() + b"\n"
        sent = socket.send_fds(self.connection, [data], list(streams)) if streams else 0
        if sent < len(data):
            self.connection.sendall(data[sent:])

    def receive(self) -> tuple[dict[str, Any], list[int]]:
        """The next message, and the streams that came with it; raises ValueError if the other side has gone."""
        streams = list[int]()
        while b"\n" not in self._read:
            piece, some, _, _ = socket.recv_fds(self.connection, 1 << 16, len(_STREAMS))
            streams += some
            if not piece:
                raise ValueError("the other side has gone")
            self._read += piece
        line, _, self._read = self._read.partition(b"\n")
        found = json.loads(line)
        if not isinstance(found, dict):
            raise ValueError("not a message")
        return found, streams


def peer_user(connection: socket.socket) -> int | None:
    """The user at the other end, where the system tells; elsewhere the folder lets nobody else in."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", data)[1])
