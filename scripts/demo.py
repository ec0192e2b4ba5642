"""`make demo`: a server with three live pipelines, in a folder that is gone when the demo is over.

A server leaves its pipelines running when it ends. The demo does not: it stops them first.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from rich.text import Text

from penstock.cli import get
from penstock.cli.client import Client
from penstock.cli.files import collected
from penstock.cli.output import err, out, print_error
from penstock.cli.steer import stands
from penstock.errors import PenstockError

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
PIPELINES = ("demo", "campaigns", "machines")
PENSTOCK = (sys.executable, "-m", "penstock.cli.main")
PORT = 8080
CONFIG = 'targets: {local: {master: "local[2]", driverMemory: 1g}}\n'
_UP_SECONDS = 60.0
_STOP_SECONDS = 60.0
_END_SECONDS = 20.0


class Over(Exception):
    """Somebody has seen enough."""


def main() -> int:
    _on_signals(ENDING)
    folder = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    demo = Demo(folder)
    try:
        demo.start()
        demo.show()
    except Over:
        out.print(Text("\nstopping the pipelines; Ctrl-C again does not wait for their batches", "dim"))
    except PenstockError as error:
        print_error(error)
        return error.exit_code
    finally:
        demo.end()
        shutil.rmtree(folder, ignore_errors=True)
    out.print(Text("the demo is over; nothing of it is left", "dim"))
    return 0


class Ending:
    """What a signal does: it ends the demo, but not in the middle of starting something that would be forgotten."""

    def __init__(self) -> None:
        self._waits = self._asked = False

    def __call__(self, *_: object) -> None:
        self._asked = True
        if not self._waits:
            raise Over

    @contextmanager
    def after(self) -> Iterator[None]:
        self._waits = True
        try:
            yield
        finally:
            self._waits = False
        if self._asked:
            raise Over


ENDING = Ending()


def _on_signals(handler: Any) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handler)


class Demo:
    """A server over a folder, and what is shown of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.server: subprocess.Popen[bytes] | None = None
        self.client: Client | None = None

    def start(self) -> None:
        (self.folder / "serve.yaml").write_text(CONFIG, "utf-8")
        # Should something else have that port, any will do.
        for port in (PORT, 0):
            with ENDING.after():
                self.server = self._serve(port)
            if self._comes_up(self.server):
                self.client = Client(self.url, (self.data / "admin.token").read_text("utf-8").strip())
                return
        sys.stderr.write(self.printed)
        raise PenstockError.of("SERVER_ERROR", reason="the server did not start", advice="Its output is above.")

    @property
    def printed(self) -> str:
        return (self.folder / "serve.log").read_text("utf-8", "replace")

    @property
    def url(self) -> str:
        return next(word for word in self.printed.split() if word.startswith("http"))

    def _serve(self, port: int) -> subprocess.Popen[bytes]:
        """In a session of its own: a Ctrl-C is for the demo, which ends the server last."""
        options = ["--data", self.data, "--port", port, "--config", self.folder / "serve.yaml"]
        with (self.folder / "serve.log").open("wb") as log:
            return subprocess.Popen(
                [*PENSTOCK, "serve", *map(str, options)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _comes_up(self, server: subprocess.Popen[bytes]) -> bool:
        deadline = time.monotonic() + _UP_SECONDS
        while server.poll() is None and time.monotonic() < deadline:
            if "go on" in self.printed:
                return True
            time.sleep(0.1)
        return False

    def show(self) -> None:
        assert self.client is not None
        self.client.post("/apply", {"files": collected([EXAMPLES / f"{name}.yaml" for name in PIPELINES])})
        results = self.data / "files" / "out" / "demo.db"
        out.print(Text.assemble("Penstock serves ", (self.url, "bold green"), " with three live pipelines."))
        link = self.url + self.client.post("/login/links")["path"]
        out.print(Text.assemble("The console, logged in (works once, for ten minutes):\n\n  ", (link, "bold"), "\n"))
        token = self.data / "admin.token"
        out.print("Or look at them from another terminal:\n")
        for line in (
            f"export PATH={Path(sys.executable).parent}:$PATH",
            f"export PENSTOCK_URL={self.url} PENSTOCK_TOKEN=$(cat {token})",
            "penstock get",
            "penstock describe demo",
            "penstock logs -f",
            f"sqlite3 {results} 'SELECT article, sum(views) FROM top_articles GROUP BY 1 ORDER BY 2 DESC LIMIT 5'",
        ):
            out.print(Text(f"  {line}", "cyan"))
        out.print("\nSpark takes a while to start. Ctrl-C ends the demo.\n")
        get.follow(self.client, PIPELINES)

    # --- the end -----------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Stops the pipelines, then the server; what does not stop is killed."""
        if self.server is None:
            return
        try:
            self._stop_pipelines()
        except Over:
            out.print(Text("killing them", "dim"))
        except PenstockError as error:
            print_error(error)
        _on_signals(signal.SIG_IGN)
        left = self._started()
        self.server.terminate()
        try:
            self.server.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.server.kill()
            self.server.wait()
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, _END_SECONDS)

    def _stop_pipelines(self) -> None:
        if self.client is None:
            return
        names = [each["name"] for each in get.pipelines(self.client, None)]
        for name in names:
            self.client.post(f"/pipelines/{name}/stop")
        deadline = time.monotonic() + _STOP_SECONDS
        while not all(stands(each) for each in get.pipelines(self.client, names)):
            if time.monotonic() > deadline:
                err.print(Text("some did not stop in time, and are killed", "yellow"))
                return
            time.sleep(0.2)

    def _started(self) -> list[psutil.Process]:
        """What the server has started and what that has started, as far as it lives."""
        assert self.server is not None
        try:
            return psutil.Process(self.server.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []


if __name__ == "__main__":
    sys.exit(main())
