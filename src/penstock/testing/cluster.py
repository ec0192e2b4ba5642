"""A real Spark cluster on this machine, for tests: a standalone master and workers, each a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

from penstock.engine.jvm import MODULE_OPTIONS, find_java
from penstock.testing.processes import descendants, is_running, kill, until

_HOME = Path(pyspark.__file__).parent
_ADDRESS = re.compile(r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
_REGISTERED = "Successfully registered with master"
_LOG = """\
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_OUT
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%n%ex
"""


class Member:
    """A master or a worker."""

    def __init__(self, folder: Path, name: str, arguments: Sequence[str]) -> None:
        self.log = folder / f"{name}.log"
        settings = folder / "log4j2.properties"
        settings.write_text(_LOG, "utf-8")
        command = [
            find_java(), "-cp", str(_HOME / "jars" / "*"), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            *MODULE_OPTIONS, f"-Dlog4j2.configurationFile={settings}", *arguments,
        ]  # fmt: skip
        environment = {**os.environ, "SPARK_HOME": str(_HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=folder
            )

    @property
    def text(self) -> str:
        return self.log.read_text("utf-8", "replace")

    def wait_for(self, pattern: str) -> re.Match[str]:
        until(lambda: re.search(pattern, self.text) or self.process.poll() is not None, f"{self.log.name}: {pattern}")
        found = re.search(pattern, self.text)
        assert found is not None, self.text
        return found

    def kill(self) -> None:
        """Kills it together with the executors it has started."""
        for pid in (self.process.pid, *descendants(self.process.pid)):
            if is_running(pid):
                kill(pid)
        self.process.wait()


class Cluster:
    """Master and workers on 127.0.0.1; leaving the context ends them.

    >>> with Cluster(tmp_path, workers=2) as cluster:                          # doctest: +SKIP
    ...     run("pipeline.yaml", master=cluster.master, conf=cluster.conf)
    ...     cluster.kill_worker(0)
    """

    def __init__(self, folder: Path, workers: int = 2, cores: int = 1, memory: str = "512m") -> None:
        self._folder = folder
        self._wanted = workers
        self._cores = cores
        self._memory = memory
        self.members: list[Member] = []
        self.workers: list[Member] = []
        self.master = ""

    @property
    def conf(self) -> dict[str, str]:
        """Spark options that a driver on this machine needs, with which executors find the same Python modules."""
        return {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": self._memory,
            "spark.executor.cores": str(self._cores),
            "spark.executorEnv.PYTHONPATH": os.pathsep.join(item for item in sys.path if item),
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }

    def __enter__(self) -> Self:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            arguments = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
            master = Member(self._folder, "master", ["org.apache.spark.deploy.master.Master", *arguments])
            self.members.append(master)
            self.master = master.wait_for(_ADDRESS.pattern)[1]
            for number in range(self._wanted):
                self.workers.append(self._start_worker(number))
            for worker in self.workers:
                worker.wait_for(_REGISTERED)
        except BaseException:
            self._end()
            raise
        return self

    def _start_worker(self, number: int) -> Member:
        arguments = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0", "--cores", str(self._cores)]
        arguments += ["--memory", "1g", "--work-dir", str(self._folder / f"work-{number}"), self.master]
        worker = Member(self._folder, f"worker-{number}", ["org.apache.spark.deploy.worker.Worker", *arguments])
        self.members.append(worker)
        return worker

    def kill_worker(self, number: int) -> None:
        """Kills a worker and its executors, as a machine does that goes away."""
        self.workers[number].kill()

    def _end(self) -> None:
        for member in reversed(self.members):
            member.kill()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
