"""The standby process: starts Spark, waits for one command, runs it with the terminal of who sent it, and ends.

It runs one command only, so nothing that a command leaves in memory reaches another. It ends by itself when no command
has come for a while, and when another one is ready.
"""

from __future__ import annotations

import fcntl
import io
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from penstock.cli.standby.client import Channel, leave, peer_user
from penstock.cli.standby.place import private_folder, socket_path

_WAITS_SECONDS = 600.0
_MESSAGE_SECONDS = 2.0


def main() -> None:
    path, folder = socket_path(os.environ), private_folder()
    if path is None or folder is None:
        return
    signal.signal(signal.SIGTERM, _end)
    with (folder / "starting.lock").open("w") as door:
        try:
            fcntl.flock(door, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        _prepare()
        listener = _listen(path)
    channel, message, streams = _next_command(listener, path)
    listener.close()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    channel.send({"process": os.getpid()})
    _take_place(message["environment"], streams)
    threading.Thread(target=_end_with, args=(channel.connection,), daemon=True).start()
    code = _run(message["arguments"])
    sys.stdout.flush()
    sys.stderr.flush()
    # What is open still belongs to whoever sent the command, and waits for its end.
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    channel.send({"code": code})


def _end(*_: object) -> NoReturn:
    sys.exit(0)


def _prepare() -> None:
    """Loads the code of commands and warms a session up, which the command's session then is."""
    import penstock.cli.main
    import penstock.runner.loop
    import penstock.testing.harness  # noqa: F401
    from penstock.engine.session import Session, SessionOptions, hold
    from penstock.engine.warm import run_small_pipeline

    session = Session(SessionOptions())
    run_small_pipeline(session.spark)
    hold(session)


def _listen(path: Path) -> socket.socket:
    """Opens the socket, in the place of all that waited before."""
    for other in path.parent.glob("*.sock"):
        leave(other)
    listener = socket.socket(socket.AF_UNIX)
    hidden = path.with_suffix(f".{os.getpid()}")
    listener.bind(str(hidden))
    listener.listen()
    hidden.rename(path)
    return listener


def _next_command(listener: socket.socket, path: Path) -> tuple[Channel, dict[str, Any], list[int]]:
    """Waits for a command; ends the process if none comes."""
    deadline = time.monotonic() + _WAITS_SECONDS
    while True:
        listener.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            path.unlink(missing_ok=True)
            sys.exit(0)
        connection.settimeout(_MESSAGE_SECONDS)
        channel = Channel(connection)
        try:
            if peer_user(connection) not in (None, os.getuid()):
                raise ValueError("another user")
            message, streams = channel.receive()
        except (OSError, ValueError):
            connection.close()
            continue
        # Whatever was asked for, this process serves nobody else.
        path.unlink(missing_ok=True)
        connection.settimeout(None)
        if "arguments" not in message or len(streams) != 3:
            channel.send({})
            sys.exit(0)
        return channel, message, streams


def _take_place(environment: Mapping[str, str], streams: Sequence[int]) -> None:
    """Gives this process the terminal and the variables of the command."""
    os.environ.clear()
    os.environ.update(environment)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), encoding="utf-8")
    sys.stdout = _text(1, errors="strict")
    sys.stderr = _text(2, errors="backslashreplace")


def _text(stream: int, errors: str) -> io.TextIOWrapper:
    raw = io.BufferedWriter(io.FileIO(stream, "w", closefd=False))
    return io.TextIOWrapper(raw, encoding="utf-8", errors=errors, line_buffering=stream == 2 or os.isatty(stream))


def _end_with(connection: socket.socket) -> None:
    """Ends the command when who waited for it is gone."""
    try:
        if connection.recv(1):
            return
    except OSError:
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _run(arguments: Sequence[str]) -> int:
    from penstock.cli.main import main as run

    sys.argv = ["penstock", *arguments]
    try:
        run()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


if __name__ == "__main__":
    main()
