"""Starts the JVM that Spark runs in, and sees to it that it ends with this process, however this process ends.

PySpark's own launcher goes through two shell scripts and a second JVM, and its JVM can outlive a killed Python
process. Here the JVM is one child, started from an argument list, in a process group of its own (Ctrl-C does not
reach it), with the kernel's promise to kill it when its parent dies.
"""

from __future__ import annotations

import ctypes
import json
import os
import queue
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from penstock.engine.jvm_files import as_arguments, as_properties, write_private
from penstock.errors import PenstockError

JAVA_NEEDED = 17
_PR_SET_PDEATHSIG = 1
_START_SECONDS = 120
_HOME = Path(pyspark.__file__).parent
_OPENED = (
    "java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util",
    "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs",
    "sun.security.action", "sun.util.calendar",
)  # fmt: skip
MODULE_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "--add-modules=jdk.incubator.vector",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)
"""What Spark itself passes to Java; a test compares it with the list in Spark's jar."""


@dataclass(frozen=True)
class JvmOptions:
    """How the JVM is started. `conf` holds Spark options, `scratch` everything temporary."""

    scratch: Path
    log: Path
    conf: Mapping[str, str] = field(default_factory=dict)
    memory: str = "1g"
    packages: Sequence[str] = ()
    hidden: Sequence[str] = ()
    """Texts that must not appear in the log: the values of secrets."""
    take_line: Callable[[str], None] | None = None
    """Called with each line that the JVM, Spark's log and the Python workers write, instead of a log file."""
    quick: bool = False
    """Compile lightly: starts faster and runs slower, for short work such as validation and tests."""
    archive_to: Path | None = None
    """Write the class-data archive when the JVM ends, instead of using it."""


_LOG_FILE = "log4j2.properties"
_LOG_LINES = "log4j2-lines.properties"
_LONGEST_LINE = 1 << 20
_ARCHIVED = 3
"""Counts what the archive is made of: with a new number it is made anew."""


def archive_path() -> Path:
    """The class-data archive that shortens start-up; it fits one Spark installation and lies beside it."""
    return Path(sys.prefix) / "share" / "penstock" / f"spark-{pyspark.__version__}-{_ARCHIVED}.jsa"


def find_java() -> str:
    """The `java` to use; raises JAVA_MISSING if there is none or it is too old."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else None
    java = java or shutil.which("java")
    if java is None:
        raise PenstockError.of("JAVA_MISSING", needed=JAVA_NEEDED, reason="no `java` on the PATH, JAVA_HOME not set")
    release = _release(Path(os.path.realpath(java)).parent.parent)
    if release is not None and release < JAVA_NEEDED:
        raise PenstockError.of("JAVA_MISSING", needed=JAVA_NEEDED, reason=f"{java} is version {release}")
    return java


def _release(home: Path) -> int | None:
    """The major version from a Java installation's `release` file, which is quicker than asking `java`."""
    try:
        found = re.search(r'JAVA_VERSION="(?:1\.)?(\d+)', (home / "release").read_text("utf-8"))
    except OSError:
        return None
    return int(found[1]) if found else None


def command(java: str, options: JvmOptions, folder: Path) -> list[str]:
    """The argument list of the JVM; nothing in it passes a shell.

    Values of Spark's options stand in files that are written into `folder`, and are read once as the JVM starts.
    """
    conf = dict(options.conf)
    extra = as_arguments(shlex.split(conf.pop("spark.driver.extraJavaOptions", "")))
    extra_options = [f"@{write_private(folder / 'java.options', extra)}"] if extra else []
    properties = write_private(folder / "spark.properties", as_properties(conf))
    home = [f"-Duser.home={os.environ['HOME']}"] if os.environ.get("HOME") else []
    classpath = [str(_HOME / "conf") + os.sep, str(_HOME / "jars" / "*")]
    if "spark.driver.extraClassPath" in conf:
        classpath.append(conf["spark.driver.extraClassPath"])
    # Without the second compiler Java keeps little room for compiled code, which a long session fills.
    tuning = ["-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m"] if options.quick else []
    if options.archive_to is not None:
        tuning.append(f"-XX:ArchiveClassesAtExit={options.archive_to}")
    elif archive_path().exists():
        tuning += [f"-XX:SharedArchiveFile={archive_path()}", "-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr"]
    logging = _LOG_FILE if options.take_line is None else _LOG_LINES
    arguments = ["--properties-file", str(properties), "--load-spark-defaults"]
    if options.packages:
        arguments += ["--packages", ",".join(options.packages)]
    # Plans of many stateful steps are deep, and are written by recursion; too small a stack would end the context.
    # The heap begins small and grows when collecting takes a twentieth of the time, so that a small pipeline stays so.
    return [
        java, "-cp", os.pathsep.join(classpath), f"-Xmx{options.memory}", "-Xms64m", "-Xss4m", "-XX:+UseParallelGC",
        "-XX:GCTimeRatio=19", "-XX:-UsePerfData",
        *MODULE_OPTIONS, *tuning,
        f"-Djava.io.tmpdir={options.scratch}",
        *home,
        f"-Dlog4j2.configurationFile={Path(__file__).with_name(logging)}",
        f"-Dpenstock.log={options.log}",
        *extra_options,
        "org.apache.spark.deploy.SparkSubmit", *arguments, "pyspark-shell",
    ]  # fmt: skip


class _Starter:
    """A thread that starts children and then waits as long as the process lives.

    The kernel ties its promise to the thread that started the child, not to the process: a JVM that is started in a
    thread of passing work would be killed when that work is done.
    """

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._pid = 0

    def run(self, start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        started: Future[subprocess.Popen[bytes]] = Future()

        def answer() -> None:
            try:
                started.set_result(start())
            except BaseException as error:
                started.set_exception(error)

        with self._lock:
            if self._pid != os.getpid():
                self._asked = queue.SimpleQueue()
                threading.Thread(target=self._serve, args=(self._asked,), name="starts Java", daemon=True).start()
                self._pid = os.getpid()
        self._asked.put(answer)
        return started.result()

    def _serve(self, asked: queue.SimpleQueue[Callable[[], None]]) -> None:
        while True:
            asked.get()()


_STARTER = _Starter()


class Jvm:
    """A running JVM with PySpark's gateway inside."""

    def __init__(self, options: JvmOptions) -> None:
        self.options = options
        self.output = options.scratch / "jvm.out"
        options.scratch.mkdir(parents=True, exist_ok=True)
        options.log.parent.mkdir(parents=True, exist_ok=True)
        self._last: deque[str] = deque(maxlen=3)
        with tempfile.TemporaryDirectory(dir=options.scratch) as folder, self.output.open("wb") as output:
            connection = Path(folder) / "connection"
            environment = {
                **os.environ,
                "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection),
                "SPARK_HOME": str(_HOME),
                "SPARK_CONNECT_MODE": "0",
                "PYSPARK_PYTHON": sys.executable,
                "PYSPARK_DRIVER_PYTHON": sys.executable,
            }
            # Memory that RocksDB and Arrow gave back would stay in one arena for each of the JVM's threads.
            environment.setdefault("MALLOC_ARENA_MAX", "2")
            if options.hidden:
                environment["PENSTOCK_HIDE"] = "|".join(re.escape(text) for text in options.hidden)
            arguments = command(find_java(), options, Path(folder))
            self.process = _STARTER.run(
                lambda: subprocess.Popen(
                    arguments,
                    stdin=subprocess.PIPE,
                    stdout=output if options.take_line is None else subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,
                    preexec_fn=_die_with(os.getpid()),
                )
            )
            if options.take_line is not None:
                threading.Thread(target=self._pass_on, args=(options.take_line,), daemon=True).start()
            self.port, self.secret = self._wait_for(connection)

    def _pass_on(self, take: Callable[[str], None]) -> None:
        """Hands on what the JVM writes until it has ended; it must be read, or the JVM would wait for that."""
        assert self.process.stdout is not None
        while raw := self.process.stdout.readline(_LONGEST_LINE):
            line = raw.decode("utf-8", "replace").rstrip("\n")
            if line.strip():
                self._last.append(line)
                # A line that cannot be kept, on a full disk, is lost; the run is not.
                with suppress(Exception):
                    take(line)

    def _last_words(self) -> list[str]:
        if self.options.take_line is not None:
            return [_words(line) for line in self._last]
        return [line for line in self.output.read_text("utf-8", "replace").splitlines() if line.strip()][-3:]

    def _wait_for(self, connection: Path) -> tuple[int, str]:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            # The file is made first and filled after, so its length is checked too.
            content = connection.read_bytes() if connection.exists() else b""
            if len(content) >= 8 and len(content) >= 8 + struct.unpack("!i", content[4:8])[0]:
                return struct.unpack("!i", content[:4])[0], content[8:].decode()
            time.sleep(0.01)
        self.kill()
        reason = " ".join(self._last_words()) or "no answer"
        raise PenstockError.of("JVM_FAILED", reason=reason, log=self.options.log)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> None:
        """Ends it in order: the gateway leaves when its input is closed."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def _words(line: str) -> str:
    """What a line of the log says, if it is one."""
    try:
        return str(json.loads(line)["text"])
    except (ValueError, KeyError, TypeError):
        return line


def _die_with(parent: int) -> Callable[[], None] | None:
    """Run in the child before `java`: be killed when the parent dies, and at once if it has died already."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def promise() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return promise
