"""Follows the logs of the executors of a standalone cluster, for the log of the run.

A thread beside the run asks the workers, at the addresses that Spark has reported, for what is new. Whatever goes wrong
here costs lines of executors and nothing else.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import httpx

from penstock.reports.values import Executor
from penstock.runner.executor_log import LOOK_BYTES, Allowance, Assembly, Tail, address, advance, read_chunk, skipped
from penstock.runner.spark_log import Record

if TYPE_CHECKING:
    from penstock.engine.session import Session

Take = Callable[[Record, Executor], None]
KINDS = ("stderr", "stdout")
_EVERY = 1.0
_PATIENCE = httpx.Timeout(3.0, connect=2.0)
_LONGEST_ANSWER = 4 * LOOK_BYTES
_ANSWER_SECONDS = 5.0
_LOOKS_AT_ONCE = 8
_MOST_BEHIND = 4 << 20
_LAST_SECONDS = 3.0
_SLOWEST = 60.0
_TOLD_AFTER = 3
"""A worker may be slow once or twice; after so many times it is told."""


@dataclass(frozen=True)
class Reported:
    """An executor as Spark reports it, with the pages of its logs."""

    executor: Executor
    active: bool
    pages: dict[str, str]


class LogLost(Exception):
    """A worker does not give a log."""


def follows(master: str) -> bool:
    """Whether executors run on workers that serve their logs: those of Spark's own cluster manager do."""
    return master.startswith(("spark://", "local-cluster["))


def follow_executors(session: Session, master: str, take: Take | None) -> ExecutorLogs | None:
    """Begins to follow, where there is something to follow."""
    if take is None or not follows(master):
        return None
    follower = ExecutorLogs(lambda: list(reported(session.spark.sparkContext)), take)
    follower.start()
    return follower


def reported(context: Any) -> Iterator[Reported]:
    """The executors that Spark knows of in this run, those that have ended too."""
    java = context._jvm.scala.jdk.javaapi.CollectionConverters
    for found in java.asJava(context._jsc.sc().statusStore().executorList(False)):
        if found.id() != "driver":
            executor = Executor(found.id(), found.hostPort().rpartition(":")[0])
            yield Reported(executor, found.isActive(), dict(java.asJava(found.executorLogs())))


@dataclass
class Followed:
    """One log of one executor: what was read, and what was said of it."""

    executor: Executor
    url: str
    tail: Tail = field(default_factory=Tail)
    assembly: Assembly = field(default_factory=Assembly)
    at_end: bool = False
    failures: int = 0
    not_before: float = 0.0
    told: bool = False


class ExecutorLogs(threading.Thread):
    """Asks for what is new every second until it is ended, and once more then."""

    def __init__(
        self,
        list_executors: Callable[[], list[Reported]],
        take: Take,
        *,
        clock: Callable[[], float] = time.monotonic,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        super().__init__(name="executor logs", daemon=True)
        self._list = list_executors
        self._take = take
        self._clock = clock
        self._transport = transport
        self._over = threading.Event()
        self._logs: dict[Executor, list[Followed]] = {}
        self._ended: set[Executor] = set()
        self._allowances: dict[Executor, Allowance] = {}
        self._left_out: dict[Executor, int] = {}

    @cached_property
    def _http(self) -> httpx.Client:
        """Workers are part of the cluster: a proxy of the network has no place in between."""
        return httpx.Client(
            headers={"Accept-Encoding": "identity"}, timeout=_PATIENCE, trust_env=False,
            verify=ssl.create_default_context(), transport=self._transport,
        )  # fmt: skip

    def run(self) -> None:
        while not self._over.wait(_EVERY):
            self._looked()
        self._looked(deadline=self._clock() + _LAST_SECONDS)
        for log in [log for logs in self._logs.values() for log in logs]:
            self._write(log.executor, log.assembly.end())
        with suppress(Exception):
            self._http.close()

    def end(self) -> None:
        """Ends it after a last look; one that hangs is left behind."""
        self._over.set()
        self.join(_LAST_SECONDS + 1)

    def _looked(self, deadline: float | None = None) -> None:
        # The JVM may be gone, or its gateway closed: the run tells of that.
        with suppress(Exception):
            self.look(deadline)

    def look(self, deadline: float | None = None) -> None:
        """Takes what is new from all executors."""
        for each in self._list():
            if each.executor in self._ended:
                continue
            if each.executor not in self._logs:
                self._logs[each.executor] = self._begun(each)
            for log in self._logs[each.executor]:
                if deadline is not None and self._clock() > deadline:
                    return
                self._read(log, last=deadline is not None or not each.active)
            self._tell_left_out(each.executor)
            if not each.active:
                self._let_go(each.executor)

    def _begun(self, each: Reported) -> list[Followed]:
        urls = [address(each.pages.get(kind, ""), kind) for kind in KINDS]
        if None in urls:
            self._say(each.executor, "its log is not followed: Spark reports no address for it; with "
                      "`spark.ui.reverseProxy` workers need `spark.ui.reverseProxyUrl`")  # fmt: skip
        return [Followed(each.executor, url) for url in urls if url is not None]

    def _let_go(self, executor: Executor) -> None:
        """Ends with one that has ended, once its log is read or its worker does not give it."""
        failed = any(log.failures for log in self._logs[executor])
        if not failed and not all(log.at_end for log in self._logs[executor]):
            return
        for log in self._logs.pop(executor):
            self._write(executor, log.assembly.end())
        if failed:
            self._say(executor, "it has ended, and its worker does not answer: its last lines may be missing")
        self._allowances.pop(executor, None)
        self._ended.add(executor)

    def _read(self, log: Followed, *, last: bool) -> None:
        if self._clock() < log.not_before and not last:
            return
        try:
            self._read_new(log, last=last)
            log.failures = 0
        except Exception as error:
            log.failures += 1
            log.not_before = self._clock() + min(2.0**log.failures, _SLOWEST)
            if log.failures >= _TOLD_AFTER and not log.told and not last:
                log.told = True
                self._say(log.executor, f"its log cannot be read for now: {str(error) or type(error).__name__}")

    def _read_new(self, log: Followed, *, last: bool) -> None:
        new = False
        for _ in range(_LOOKS_AT_ONCE):
            chunk = read_chunk(self._asked(log))
            if chunk is None:
                raise LogLost("the worker has no such log")
            gone = chunk.start != log.tail.offset or chunk.length < log.tail.length
            log.tail, lines = advance(log.tail, chunk, last=last)
            log.at_end, new = chunk.end >= chunk.length, new or bool(lines)
            if gone:
                self._say(log.executor, "some of its lines are lost: the worker has removed older parts of its log")
            self._write(log.executor, log.assembly.take(lines))
            if log.at_end:
                break
        log.tail, bytes_lost = skipped(log.tail, _MOST_BEHIND)
        if bytes_lost:
            self._say(log.executor, f"it writes more than can be followed: {bytes_lost:,} bytes are left out")
        if not new:
            self._write(log.executor, log.assembly.end())

    def _asked(self, log: Followed) -> bytes:
        """What the worker answers, as far as it is not too long and comes in time."""
        query = f"&offset={log.tail.offset}&byteLength={LOOK_BYTES}"
        deadline, found = self._clock() + _ANSWER_SECONDS, b""
        with self._http.stream("GET", log.url + query) as answer:
            if answer.status_code != 200:
                raise LogLost(f"the worker answers {answer.status_code}")
            for part in answer.iter_raw():
                found += part
                if len(found) > _LONGEST_ANSWER or self._clock() > deadline:
                    raise LogLost("its answer is too long or too slow")
        return found

    def _write(self, executor: Executor, records: Iterator[Record]) -> None:
        for record in records:
            if record.quiet:
                continue
            allowance, allowed = self._allowances.get(executor, Allowance(at=self._clock())).take(self._clock())
            self._allowances[executor] = allowance
            if allowed:
                self._take(record, executor)
            else:
                self._left_out[executor] = self._left_out.get(executor, 0) + 1

    def _tell_left_out(self, executor: Executor) -> None:
        lines = self._left_out.pop(executor, 0)
        if lines:
            self._say(executor, f"it writes more than can be followed: {lines:,} lines are left out")

    def _say(self, executor: Executor, text: str) -> None:
        self._take(Record("WARN", "penstock", text), executor)
