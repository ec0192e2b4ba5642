"""What the servers for tests share: a child process that dies with its parent, a free port, a temporary folder."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from penstock.engine.jars import cache_folder

HOST = "127.0.0.1"
USER = "penstock"
PASSWORD = "not-a-secret"
_PR_SET_PDEATHSIG = 1
_START_SECONDS = 90.0
_STOP_SECONDS = 30.0
# Its input ends when the tests end, in whatever way; a server that is dying may still write, so it tries again.
_CLEAN_UP = 'read -r _; for _ in 1 2 3 4 5; do rm -rf "$1" && [ ! -e "$1" ] && exit; sleep 1; done'


class Unavailable(Exception):
    """Says in one line why a server cannot be had here."""


def server_cache() -> Path:
    """Where programs fetched for tests are kept."""
    return cache_folder() / "servers"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def answers(port: int) -> bool:
    """Whether something listens on a port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0


class Server:
    """One server in a folder of its own. `user` is who runs it if the tests run as root."""

    title: ClassVar[str]
    user: ClassVar[str | None] = None
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    death_signal: ClassVar[signal.Signals] = signal.SIGKILL
    """What the kernel sends when the tests are killed."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"penstock-{self.title.lower()}-"))
        self._janitor = subprocess.Popen(
            ["sh", "-c", _CLEAN_UP, "janitor", str(self.folder)], stdin=subprocess.PIPE, start_new_session=True
        )
        self.process: subprocess.Popen[bytes] | None = None
        if self._account:
            shutil.chown(self.folder, self._account, self._account)

    @property
    def _account(self) -> str | None:
        return self.user if os.geteuid() == 0 else None

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    def run(self, *command: str) -> None:
        """Runs a preparing command as the server's user; its last line is the reason if it fails."""
        done = subprocess.run(
            command,
            cwd=self.folder,
            user=self._account,
            group=self._account,
            extra_groups=[] if self._account else None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode != 0:
            raise Unavailable(f"{Path(command[0]).name} failed: {_last_line(done.stdout)}")

    def launch(self, command: Sequence[str], ready: Callable[[], bool], env: Mapping[str, str] | None = None) -> None:
        """Starts the server and waits until it answers. Call it from the main thread: the kernel's promise needs it."""
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                command,
                cwd=self.folder,
                env={**os.environ, **(env or {})},
                user=self._account,
                group=self._account,
                extra_groups=[] if self._account else None,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with(os.getpid(), self.death_signal),
            )
        deadline = time.monotonic() + _START_SECONDS
        while not ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.end()
                raise Unavailable(f"did not start: {_last_line(self.log.read_text('utf-8', 'replace'))}")
            time.sleep(0.05)

    def end(self) -> None:
        """Ends the process and keeps its data."""
        if self.process is None:
            return
        self.process.send_signal(self.stop_signal)
        try:
            self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def kill(self) -> None:
        """Ends the process as a power cut would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None

    def close(self) -> None:
        """Ends it and removes its folder."""
        self.end()
        assert self._janitor.stdin is not None
        self._janitor.stdin.close()
        self._janitor.wait(_STOP_SECONDS)


def program(name: str, folders: Sequence[Path], package: str) -> Path:
    """A program of the system; its Debian package is installed if the tests run as root."""
    found = _find(name, folders)
    if found is None:
        _install(package)
        found = _find(name, folders)
    if found is None:
        raise Unavailable(f"{name} was not found, also after installing {package}")
    return found


def _find(name: str, folders: Sequence[Path]) -> Path | None:
    path = os.pathsep.join([*map(str, folders), os.environ.get("PATH", ""), "/usr/sbin"])
    found = shutil.which(name, path=path)
    return Path(found) if found else None


def _install(package: str) -> None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise Unavailable(f"not installed; install {package} with your system's package manager")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # Another process may be installing something too.
    command = ["apt-get", "-o", "DPkg::Lock::Timeout=300", "install", "-y", "--no-install-recommends", package]
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise Unavailable(f"apt-get install {package} failed: {_last_line(done.stderr)}")


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no output"


def die_with(parent: int, number: signal.Signals) -> Callable[[], None] | None:
    """Run in the child after it has become its user, as a change of user takes the promise back."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def promise() -> None:
        prctl(_PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:
            os._exit(1)

    return promise
