"""Starts runner processes as a server does: an order in a folder, and reports in the same folder."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.frontends.load import load
from penstock.reports.folder import RunFolder
from penstock.reports.values import RunOrder
from penstock.testing.processes import Process, is_stopped, until

QUICK = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
"""Spark options that halve what a short run costs: the JVM compiles lightly."""


class RunnerProcess(Process):
    """One runner. Leaving the context kills it and its children if they still live."""

    def __init__(self, folder: RunFolder, order: RunOrder, env: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        folder.make()
        folder.write_order(order)
        super().__init__([folder.path], folder.printed, env, module="penstock.runner.main")

    @property
    def text(self) -> str:
        """What it has printed and logged so far."""
        logged = "".join(file.read_text("utf-8", "replace") for file in self.folder.log_files())
        return super().text + logged

    def wait_for_batch(self, number: int) -> None:
        """Waits until it has reported a batch as finished."""

        def reported() -> bool:
            status = self.folder.status
            return status is not None and status.last_batch is not None and status.last_batch.batch >= number

        self.wait_until(reported, f"batch {number}", every=0.05)

    def wait_until_stopped(self) -> int:
        """Waits until it stands still where `PENSTOCK_STOP_AT` says, and stops its JVM too; which process that is."""
        self.wait_until(lambda: is_stopped(self.pid), "that it stands still", every=0.05)
        jvm = self.jvm()
        os.kill(jvm, signal.SIGSTOP)
        until(lambda: is_stopped(jvm), "that its JVM stands still")
        return jvm

    def wake(self, jvm: int) -> None:
        for pid in (jvm, self.pid):
            os.kill(pid, signal.SIGCONT)


class Runners:
    """A pipeline that is run by one runner after the other, or by two at once, over the same state."""

    def __init__(self, pipeline: Path, folder: Path, env: Mapping[str, str] | None = None, **options: Any) -> None:
        self.pipeline = pipeline
        self.folder = folder
        self.state = folder / "state"
        self._env = dict(env or {})
        self._order = RunOrder(
            run="", pipeline=load(pipeline).pipeline.name, version=1, file=str(pipeline), folder=str(pipeline.parent),
            state_dir=str(self.state), **{"master": "local[2]", "conf": QUICK, **options},
        )  # fmt: skip
        self._count = 0

    def start(self, *, take_over: bool = False, env: Mapping[str, str] | None = None) -> RunnerProcess:
        self._count += 1
        order = replace(self._order, run=f"r{self._count:012x}", take_over=take_over)
        return RunnerProcess(RunFolder(self.folder / "runs" / order.run), order, {**self._env, **(env or {})})
