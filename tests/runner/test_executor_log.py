"""What workers serve of the logs of executors: no line is lost or doubled, and what belongs together stays together."""

from __future__ import annotations

import datetime as dt
import json
from itertools import pairwise
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.reports.folder import RunFolder
from penstock.reports.log import read_log
from penstock.reports.values import Executor, LogLine
from penstock.runner.executor_log import Allowance, Assembly, Chunk, Tail, address, advance, read_chunk, skipped
from penstock.runner.executors import ExecutorLogs, Reported, follows
from penstock.runner.logs import RunLog
from penstock.runner.spark_log import Record, read_record

NOW = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
PAGE = "http://10.0.0.7:8081/logPage/?appId=app-1&executorId=3&logType=stderr"


def served(log: bytes, offset: int, most: int) -> bytes:
    """What a worker answers: bytes as text, in which what is no text is replaced."""
    start = min(max(offset, 0), len(log))
    end = min(start + most, len(log))
    text = log[start:end].decode("utf-8", "replace")
    return f"==== Bytes {start}-{end} of {len(log)} of /work/app-1/3/stderr ====\n{text}".encode()


def chunk_of(log: bytes, offset: int, most: int) -> Chunk:
    found = read_chunk(served(log, offset, most))
    assert found is not None
    return found


# --- where to ask --------------------------------------------------------------------------------------------


def test_only_pages_of_workers_are_asked_and_only_as_they_are_reported() -> None:
    plain = "http://10.0.0.7:8081/log/?appId=app-1&executorId=3&logType=stdout"
    assert address(PAGE, "stdout") == plain
    assert address(f"{PAGE}&offset=5#x", "stdout") == plain
    behind = "https://spark.example.com/base/proxy/worker-1/logPage/?appId=a%26b&executorId=3&logType=stderr"
    assert address(behind, "stderr") == (
        "https://spark.example.com/base/proxy/worker-1/log/?appId=a%26b&executorId=3&logType=stderr"
    )
    for other in (
        "", "/proxy/worker-1/logPage/?appId=a&executorId=3", "file:///logPage/?appId=a&executorId=3", "http://[x",
        "http:///logPage/?appId=a&executorId=3", "http://u:p@h/logPage/?appId=a&executorId=3", "http://h/other?appId=a",
        "http://h/logPage/?appId=a",
    ):  # fmt: skip
        assert address(other, "stderr") is None, other


def test_only_workers_of_a_standalone_cluster_serve_logs() -> None:
    masters = ("spark://a:7077,b:7077", "local-cluster[2,1,1024]", "local", "local[*]", "yarn", "k8s://https://h")
    assert [follows(master) for master in masters] == [True, True, False, False, False, False]


# --- which lines are new -------------------------------------------------------------------------------------


def followed(log: bytes, cuts: list[int], most: int) -> list[str]:
    """The lines of a log that is looked at while it grows: at each of these lengths, and at its end."""
    tail, found = Tail(), []
    for length in [*sorted(cut % (len(log) + 1) for cut in cuts), len(log)]:
        while True:
            last = length == len(log)
            before = tail
            tail, lines = advance(tail, chunk_of(log[:length], tail.offset, most), most, last=last)
            found += lines
            if tail.offset == before.offset:
                break
    return found


@given(
    lines=st.lists(st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=6)),
    end=st.sampled_from(["", "\n"]),
    cuts=st.lists(st.integers(0, 200), max_size=6),
    most=st.integers(26, 60),
)
def test_however_a_log_grows_each_line_comes_once(lines: list[str], end: str, cuts: list[int], most: int) -> None:
    text = "\n".join(lines) + end
    expected = text.split("\n")
    if expected[-1] == "":
        expected.pop()
    assert followed(text.encode(), cuts, most) == expected


@given(log=st.binary(max_size=200), cuts=st.lists(st.integers(0, 200), max_size=6), most=st.integers(8, 60))
def test_whatever_the_bytes_are_it_comes_to_the_end_and_loses_no_line(log: bytes, cuts: list[int], most: int) -> None:
    found = followed(log, cuts, most)
    readable = [line for line in log.split(b"\n") if line.isascii() and line.isalnum() and len(line) < most // 2]
    left = iter(found)
    assert all(any(line.decode() in other for other in left) for line in readable)


def test_a_line_longer_than_a_look_comes_in_pieces() -> None:
    assert followed(b"a" * 25 + b"\nb\n", [], 10) == ["a" * 10, "a" * 10, "a" * 5, "b"]


def test_when_the_worker_has_removed_older_parts_it_goes_on_at_the_end() -> None:
    tail, _ = advance(Tail(), chunk_of(b"one\ntwo\n" * 10, 0, 1000))
    assert tail.offset == 80
    tail, lines = advance(tail, chunk_of(b"three\nfo", tail.offset, 1000))
    assert (tail.offset, lines) == (8, [])
    _, lines = advance(tail, chunk_of(b"three\nfour\nfive\n", tail.offset, 1000))
    assert lines == ["five"]


def test_who_is_too_far_behind_leaves_bytes_out_and_begins_with_a_whole_line() -> None:
    log = b"".join(b"line %04d\n" % number for number in range(1000))
    near = Tail(9_000, 10_000)
    assert skipped(near, 1_000, look=95) == (near, 0)
    tail, lost = skipped(Tail(0, 10_000), 1_000, look=95)
    assert lost == 9_905
    assert advance(tail, chunk_of(log, tail.offset, 1000))[1] == [f"line {number:04d}" for number in range(991, 1000)]


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"<html>",
        b"==== Bytes 0-0 of 0 of x ====\nError: invalid log directory x",
        b"==== Bytes 5-2 of 9 of x ====\n",
    ],
)
def test_what_is_no_log_is_not_read_as_one(answer: bytes) -> None:
    assert read_chunk(answer) is None


@given(st.binary())
def test_no_answer_makes_reading_fail(answer: bytes) -> None:
    read_chunk(answer)
    chunk = read_chunk(b"==== Bytes 0-20 of 30 of x ====\n" + answer)
    assert chunk is not None
    advance(Tail(), chunk)


# --- what belongs together -----------------------------------------------------------------------------------


LOG = """\
26/11/16 13:58:53 INFO Executor: Running task 0.0 in stage 1.0 (TID 1)
said in between
26/11/16 13:58:53 INFO RocksDB StateStoreProviderId[ storeId=StateStoreId[ operatorId=0 ] ]: Committed 7, {"a": 1}
26/11/16 13:58:53 ERROR Executor: Exception in task 0.0 in stage 1.0 (TID 1)
org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] Thrown: Traceback (most recent call last):
  File "worker.py", line 4327, in invoke_udf
ValueError: odd value
 SQLSTATE: 38000
\tat org.apache.spark.api.python.PythonRunner.read(PythonRunner.scala:1097)
Caused by: java.io.IOException: x
\t... 12 more
said after a trace
2026-11-16T13:58:54,123 WARN org.apache.spark.storage.BlockManager: slow
2026-11-16 13:58:54,123 INFO my_module: of Python's own logging
Traceback (most recent call last):
  File "x.py", line 1, in <module>
ValueError: printed
said after that
"""
RECORDS = [
    ("INFO", "Executor", "Running task 0.0 in stage 1.0 (TID 1)", 0),
    ("", "output", "said in between", 0),
    ("INFO", "RocksDB", 'Committed 7, {"a": 1}', 0),
    ("ERROR", "Executor", "Exception in task 0.0 in stage 1.0 (TID 1)", 7),
    ("", "output", "said after a trace", 0),
    ("WARN", "BlockManager", "slow", 0),
    ("", "output", "2026-11-16 13:58:54,123 INFO my_module: of Python's own logging", 0),
    ("", "output", "Traceback (most recent call last):", 2),
    ("", "output", "said after that", 0),
]


@given(st.lists(st.integers(0, len(LOG.splitlines()))))
def test_traces_stay_with_what_they_belong_to_wherever_the_looks_are_cut(cuts: list[int]) -> None:
    lines, assembly = LOG.splitlines(), Assembly()
    found: list[Record] = []
    for start, end in pairwise([0, *sorted(cuts), len(lines)]):
        found += assembly.take(lines[start:end])
    found += assembly.end()
    assert [(each.level, each.logger, each.text, each.more.count("\n")) for each in found] == RECORDS


def test_sparks_structured_log_is_read_too() -> None:
    frame = {"class": "x.Y", "method": "z", "file": "Y.scala", "line": "7"}
    error = {"class": "java.io.IOException", "msg": "odd", "stacktrace": [frame]}
    line = {
        "ts": "2026-11-16T13:58:53Z",
        "level": "ERROR",
        "msg": "it failed",
        "exception": error,
        "logger": "a.Executor",
    }
    (found,) = _records([json.dumps(line, separators=(",", ":"))])
    assert found == Record("ERROR", "Executor", "it failed", "java.io.IOException: odd\n\tat x.Y.z(Y.scala:7)")
    assert _records(['{"ts":1}', '{"ts":']) == [Record("", "output", '{"ts":1}'), Record("", "output", '{"ts":')]


def _records(lines: list[str]) -> list[Record]:
    assembly = Assembly()
    return [*assembly.take(lines), *assembly.end()]


@given(st.lists(st.text()))
def test_any_lines_can_be_put_together(lines: list[str]) -> None:
    assert len(_records(lines)) <= len(lines)


def test_records_pass_the_filter_of_the_drivers_lines() -> None:
    assert read_record(Record("INFO", "Executor", "Running task"), NOW) is None
    assert read_record(Record("WARN", "NativeCodeLoader", "Unable to load native-hadoop library"), NOW) is None
    assert read_record(Record("", "output", 'Spark Executor Command: "java" "-Dx=y"'), NOW) is None
    assert read_record(Record("", "output", "=" * 40), NOW) is None
    assert read_record(Record("", "output", ""), NOW) is None
    assert read_record(Record("", "output", "said"), NOW) == LogLine(NOW, "INFO", "output", "said")
    failed = read_record(_records(LOG.splitlines())[3], NOW)
    assert failed is not None
    assert (failed.level, failed.text) == ("ERROR", "ValueError: odd value")
    assert "Caused by: java.io.IOException: x" in (failed.more or "")
    printed = read_record(_records(LOG.splitlines())[7], NOW)
    assert printed is not None
    assert (printed.level, printed.text) == ("ERROR", "ValueError: printed")


@given(steps=st.lists(st.tuples(st.floats(0, 3), st.integers(0, 30)), max_size=20))
def test_no_more_lines_are_written_than_allowed(steps: list[tuple[float, int]]) -> None:
    allowance, now, taken = Allowance(burst=20, per_second=5, left=20.0), 0.0, 0
    for pause, lines in steps:
        now += pause
        for _ in range(lines):
            allowance, allowed = allowance.take(now)
            taken += allowed
    assert taken <= 20 + 5 * now + 1e-6
    assert taken >= min(sum(lines for _, lines in steps), 20)


# --- asking workers ------------------------------------------------------------------------------------------


class Workers(httpx.MockTransport):
    """Workers with the logs of executors; those of a host in `gone` do not answer."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.logs: dict[tuple[str, str], bytes] = {}
        self.gone: set[str] = set()
        self.asked: list[str] = []

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(str(request.url))
        if request.url.host in self.gone:
            raise httpx.ConnectError("refused")
        asked = {key: values[0] for key, values in parse_qs(urlsplit(str(request.url)).query).items()}
        log = self.logs.get((asked["executorId"], asked["logType"]), b"")
        answer = served(log, int(asked["offset"]), int(asked["byteLength"]))
        return httpx.Response(200, stream=httpx.ByteStream(answer))


class Site:
    """An application on workers, and the log of its run."""

    def __init__(self, folder: Path) -> None:
        self.workers = Workers()
        self.executors: list[Reported] = []
        self.now = 0.0
        self.folder = RunFolder(folder)
        self.folder.make()
        self.log = RunLog(self.folder.lines)
        self.follower = ExecutorLogs(
            lambda: list(self.executors), self.log.take_record, clock=lambda: self.now, transport=self.workers
        )

    def runs_on(self, id: str, host: str, *, active: bool = True) -> None:
        pages = {
            kind: f"http://{host}:8081/logPage/?appId=app-1&executorId={id}&logType={kind}"
            for kind in ("stdout", "stderr")
        }
        executor = Executor(id, host)
        self.executors = [each for each in self.executors if each.executor != executor]
        self.executors.append(Reported(executor, active, pages))

    def writes(self, id: str, text: str, kind: str = "stderr") -> None:
        self.workers.logs[id, kind] = self.workers.logs.get((id, kind), b"") + text.encode()

    def look(self, seconds: float = 1.0) -> None:
        self.now += seconds
        self.follower.look()

    def lines(self) -> list[tuple[str, str]]:
        return [(line.executor.id if line.executor else "", line.text) for line in read_log(self.folder)[0]]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_executors_that_come_and_go_are_followed(site: Site) -> None:
    site.runs_on("0", "a")
    site.writes("0", "one\ntw")
    site.look()
    site.writes("0", "o\n")
    site.writes("1", "said by another\n", "stdout")
    site.runs_on("1", "b")
    site.look()
    site.writes("0", "last words")
    site.runs_on("0", "a", active=False)
    site.look()
    asked = len(site.workers.asked)
    site.look()
    assert site.lines() == [("0", "one"), ("0", "two"), ("1", "said by another"), ("0", "last words")]
    assert len(site.workers.asked) == asked + 2, "one that has ended is asked no more"


def test_a_worker_that_dies_with_its_executor_costs_its_last_lines_and_nothing_else(site: Site) -> None:
    site.runs_on("0", "a")
    site.runs_on("1", "b")
    site.writes("0", "one\n")
    site.look()
    site.workers.gone.add("a")
    site.writes("1", "goes on\n")
    site.look()
    site.runs_on("0", "a", active=False)
    site.look()
    site.look()
    lost = "it has ended, and its worker does not answer: its last lines may be missing"
    assert site.lines() == [("0", "one"), ("1", "goes on"), ("0", lost)]


def test_a_worker_that_does_not_answer_is_asked_less_often_and_told_once(site: Site) -> None:
    site.runs_on("0", "a")
    site.workers.gone.add("a")
    for _ in range(100):
        site.look()
    assert len(site.workers.asked) < 20
    assert {text for _, text in site.lines()} == {"its log cannot be read for now: refused"}
    assert len(site.lines()) == 2, "of each of its two logs"
    site.workers.gone.clear()
    site.writes("0", "back\n")
    site.look(61)
    assert site.lines()[-1] == ("0", "back")


def test_an_executor_that_writes_without_end_is_bounded(site: Site) -> None:
    site.runs_on("0", "a")
    site.writes("0", "".join(f"line {number}\n" for number in range(5_000)))
    site.look()
    texts = [text for _, text in site.lines()]
    assert texts == [*(f"line {number}" for number in range(1_000)),
                     "it writes more than can be followed: 4,000 lines are left out"]  # fmt: skip
    site.writes("0", "26/11/16 13:58:53 INFO Executor: quiet\n" * 300_000 + "loud\n")
    asked = len(site.workers.asked)
    site.look(100)
    assert len(site.workers.asked) - asked <= 9
    site.look(100)
    texts = [text for _, text in site.lines()]
    assert texts[-1] == "loud"
    assert texts[-2].startswith("it writes more than can be followed: 10,")


def test_an_executor_without_an_address_is_told(site: Site) -> None:
    site.executors.append(Reported(Executor("0", "a"), True, {"stderr": "/proxy/w/logPage/?appId=a&executorId=0"}))
    site.look()
    site.look()
    ((_, text),) = site.lines()
    assert "reverseProxyUrl" in text
    assert site.workers.asked == []


def test_secrets_are_hidden_even_where_a_line_is_cut(site: Site) -> None:
    site.log.hidden = ["canary-17"]
    site.runs_on("0", "a")
    site.writes("0", "x" * 495 + "canary-17\n")
    site.look()
    assert "cana" not in site.folder.lines.read_text("utf-8")


def test_following_ends_with_the_run_and_takes_what_was_written_last(site: Site) -> None:
    site.runs_on("0", "a")
    site.writes("0", "26/11/16 13:58:53 WARN Executor: slow\nwithout an end")
    site.follower.start()
    site.follower.end()
    assert not site.follower.is_alive()
    assert site.lines() == [("0", "slow"), ("0", "without an end")]


def test_a_jvm_that_is_gone_ends_nothing(site: Site) -> None:
    def fails() -> list[Reported]:
        raise ConnectionError("the gateway is closed")

    follower = ExecutorLogs(fails, site.log.take_record, transport=site.workers)
    follower.start()
    follower.end()
    assert not follower.is_alive()
