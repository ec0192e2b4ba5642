"""Handing a command over: what a standby process is sent, and what happens if there is none, or no good one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.standby import client
from penstock.cli.standby.client import Channel, hand_over, is_for, leave
from penstock.cli.standby.place import socket_path

Serve = Callable[[Channel], None]


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder whose path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder)


def place() -> Path:
    found = socket_path(dict(os.environ))
    assert found is not None
    return found


@contextmanager
def listening(serve: Serve) -> Iterator[None]:
    """Something that takes one connection where the command looks for a standby process."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place()))
        listener.listen()

        def work() -> None:
            connection, _ = listener.accept()
            with connection:
                serve(Channel(connection))

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            thread.join(10)
            assert not thread.is_alive()


def handed_over() -> int | None:
    return hand_over(["validate", "p.yaml"], dict(os.environ))


def test_without_a_standby_process_the_command_runs_itself() -> None:
    assert handed_over() is None


def test_a_socket_that_nobody_serves_is_passed_over() -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place()))
    assert handed_over() is None


def test_it_gets_arguments_variables_and_streams_and_tells_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[dict[str, Any]] = []
    monkeypatch.setenv("COLOUR", "green")
    printed = tmp_path / "printed"

    def serve(channel: Channel) -> None:
        message, streams = channel.receive()
        seen.append(message)
        channel.send({"process": os.getpid()})
        os.write(streams[1], b"valid\n")
        for stream in streams:
            os.close(stream)
        channel.send({"code": 2})

    with printed.open("wb") as output:
        monkeypatch.setattr(client, "_STREAMS", (0, output.fileno(), 2))
        with listening(serve):
            assert handed_over() == 2
    assert seen[0]["arguments"] == ["validate", "p.yaml"]
    assert seen[0]["environment"]["COLOUR"] == "green"
    assert printed.read_text() == "valid\n"


@pytest.mark.parametrize("answer", [b"", b"no\n", b"[]\n", b"{}\n", b'{"process": "x"}\n'])
def test_one_that_does_not_take_the_command_is_passed_over(answer: bytes) -> None:
    def serve(channel: Channel) -> None:
        _, streams = channel.receive()
        for stream in streams:
            os.close(stream)
        channel.connection.sendall(answer)

    with listening(serve):
        assert handed_over() is None


def test_another_users_process_is_not_given_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "peer_user", lambda connection: os.getuid() + 1)
    got: list[bytes] = []
    with listening(lambda channel: got.append(channel.connection.recv(1))):
        assert handed_over() is None
    assert got == [b""]


def test_one_that_dies_with_the_command_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    def serve(channel: Channel) -> None:
        _, streams = channel.receive()
        for stream in streams:
            os.close(stream)
        channel.send({"process": os.getpid()})

    with listening(serve):
        assert handed_over() == 1
    assert "PENSTOCK_STANDBY=off" in capsys.readouterr().err


def test_ctrl_c_reaches_the_command() -> None:
    script = "import signal, sys; print('ready', flush=True); signal.sigwait([signal.SIGINT]); sys.exit(7)"
    masked = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT]); "
    before = signal.getsignal(signal.SIGINT)
    with subprocess.Popen([sys.executable, "-c", masked + script], stdout=subprocess.PIPE) as command:
        assert command.stdout is not None
        assert command.stdout.readline() == b"ready\n"

        def serve(channel: Channel) -> None:
            _, streams = channel.receive()
            for stream in streams:
                os.close(stream)
            channel.send({"process": command.pid})
            # The command has taken its process for good now; a terminal would signal it.
            while signal.getsignal(signal.SIGINT) is before:
                pass
            os.kill(os.getpid(), signal.SIGINT)
            channel.send({"code": command.wait(10)})

        with listening(serve):
            assert handed_over() == 7
    assert signal.getsignal(signal.SIGINT) is before


def test_a_process_that_is_asked_to_leave_hears_it() -> None:
    heard: list[dict[str, Any]] = []

    def serve(channel: Channel) -> None:
        heard.append(channel.receive()[0])
        channel.send({})

    with listening(serve):
        leave(place())
    assert heard == [{"leave": True}]


def test_the_socket_of_a_dead_process_is_removed() -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place()))
    leave(place())
    assert not place().exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["validate", "p.yaml"], True),
        (["--debug", "validate", "p.yaml"], True),
        (["explain", "p.yaml"], True),
        (["test", "p.yaml"], True),
        (["run", "p.yaml", "--once"], True),
        (["run", "p.yaml"], False),
        (["validate", "--no-spark", "p.yaml"], False),
        (["validate", "--help"], False),
        (["serve"], False),
        ([], False),
    ],
)
def test_short_work_with_spark_is_handed_over(
    arguments: list[str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_STANDBY", "on")
    assert is_for(arguments) is expected
    monkeypatch.setenv("PENSTOCK_STANDBY", "off")
    assert not is_for(arguments)


def test_without_a_terminal_nothing_is_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_STANDBY", raising=False)
    monkeypatch.setattr(os, "isatty", lambda stream: stream != 1)
    assert not is_for(["validate", "p.yaml"])
    monkeypatch.setattr(os, "isatty", lambda stream: True)
    assert is_for(["validate", "p.yaml"])
