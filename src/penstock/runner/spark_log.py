"""Spark's log in words: noise is left out, an error is told in one line, and what Spark wrote stands beneath it.

Pure functions over lines as `engine/log4j2-lines.properties` writes them. Whatever else comes the same way was printed:
by the JVM itself, or by a Python worker.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from dataclasses import dataclass, replace

from penstock.engine.spark_errors import runtime_problem
from penstock.reports.values import LogLine

_LONGEST_TEXT = 500
_LONGEST_MORE = 32_000
_LEVELS = {"FATAL": "ERROR", "ERROR": "ERROR", "WARN": "WARNING", "INFO": "INFO", "DEBUG": "DEBUG", "TRACE": "DEBUG"}

_NOISE = tuple(
    (re.compile(logger), re.compile(text))
    for logger, text in (
        ("NativeCodeLoader", ""),
        ("ResolveWriteToStream", "adaptive|temporary checkpoint"),
        ("SparkStringUtils|StringUtils", "Truncated the string representation"),
        ("GarbageCollectionMetrics", ""),
        ("ProcfsMetricsGetter", ""),
        ("MetricsConfig", ""),
        ("Utils", "Your hostname.* resolves to|Set SPARK_LOCAL_IP|Service '.*' could not bind on port"),
        ("SparkConf", "spark.local.dir will be overridden"),
        ("MicroBatchExecution", "Disabling AQE"),
        ("WindowExec", "No Partition Defined"),
        ("HeartbeatReceiver", "Removing executor driver"),
        ("SQLConf", "The SQL config '.*' has been deprecated|is deprecated"),
        ("KafkaDataConsumer", "not running in UninterruptibleThread"),
        ("AdminClientConfig|ConsumerConfig|ProducerConfig", "These configurations .* were supplied but are not used"),
        ("BlockManager", "Block .* (already exists|was not removed)|Putting block .* failed"),
        ("CheckpointFileManager", "Could not use FileContext API"),
        ("DAGScheduler", "Broadcasting large task binary"),
        ("SparkContext", "Another SparkContext is being constructed"),
        ("RocksDB.*", "^(?:.*) (Loaded|Committed|Rolled back)"),
        (".*", r"^Map state \w+ doesn't contain key|^No more data to read from the socket"),
        ("PythonUDFRunner|PythonRunner|BasePythonRunner|ArrowPythonRunner", "Incomplete task .* interrupted"),
    )
)
"""What is said in any healthy run, by logger and text."""

_PRINTED_NOISE = re.compile(
    r"WARNING: Using incubator modules|Picked up JAVA_TOOL_OPTIONS|Setting default log level"
    r"|Starting Streaming \w+ Python worker|Streaming \w+ Python worker "
    r"|Spark Executor Command: |={20,}$|Using Spark's default log4j profile|HashMap\("
)

_SENTENCES = tuple(
    (re.compile(pattern), sentence)
    for pattern, sentence in (
        (
            r"Current batch is falling behind\. The trigger interval is (\d+) milliseconds, but spent (\d+) milli",
            "a batch took {1} ms, longer than `run.trigger` ({0} ms)",
        ),
        (r"Lost executor (\S+) on (\S+): (.+)", "executor {0} on {1} is lost: {2}"),
        (
            r"Lost task \S+ in stage \S+ \(TID \d+\) \((\S+) executor (\S+)\): ExecutorLostFailure",
            "a task was lost with executor {1} on {0}; it runs again elsewhere",
        ),
        (r"Lost task (\S+) in stage (\S+) ", "task {0} of stage {1} failed and is tried again"),
        (r"Task (\d+) in stage (\S+) failed (\d+) times; aborting job", "task {0} of stage {1} failed {2} times"),
        (
            r"Initial job has not accepted any resources",
            "the cluster has no free cores or memory for this pipeline: tasks wait",
        ),
        (r"Exception in connection from /(\S+)", "the connection to {0} broke"),
        (r"RECEIVED SIGNAL TERM", "it was told to end"),
        (r"Disconnected from Spark cluster", "the connection to the Spark master is lost"),
        (r"All masters are unresponsive", "the Spark master does not answer"),
        (r"Query (\S+) \[id = .*terminated with error", "the query of '{0}' ended with an error"),
        (r"Not enough space to cache \S+ in memory", "memory is short: rows of this batch are kept on disk"),
    )
)
_OURS = re.compile(r"error\[([A-Z][A-Z0-9_]+)\]: ([^\n]+)")


def read_line(text: str, now: dt.datetime) -> LogLine | None:
    """What is to be kept of a line that came from the JVM; None if it is noise."""
    found = _parsed(text)
    if found is None:
        if _PRINTED_NOISE.match(text):
            return None
        return LogLine(now, "INFO", "output", _cut(text, _LONGEST_TEXT), None, _beyond(text))
    line = _log_line(found, now)
    return None if _is_noise(line) else explained(line)


@dataclass(frozen=True)
class Record:
    """What an executor has written as one: a line of Spark's log with its trace, or what was printed.

    `level` is the one of log4j; "" for what was printed.
    """

    level: str
    logger: str
    text: str
    more: str = ""

    @property
    def quiet(self) -> bool:
        """Whether it is less than a warning. The driver does not log that either; on an executor it stays there."""
        return bool(self.level) and _LEVELS.get(self.level, "INFO") in ("INFO", "DEBUG")


def read_record(record: Record, now: dt.datetime) -> LogLine | None:
    """What is to be kept of it; None if it is noise."""
    if not record.level:
        if record.more:
            return _of_a_python_trace(f"{record.text}\n{record.more}".rstrip(), now)
        return read_line(record.text, now) if record.text.strip() else None
    level, more = _LEVELS.get(record.level, "INFO"), record.more.strip("\n") or None
    line = LogLine(now, level, record.logger, record.text.strip(), None, more)
    return None if record.quiet or _is_noise(line) else explained(line)


def _of_a_python_trace(trace: str, now: dt.datetime) -> LogLine:
    """What was raised is its last line."""
    return LogLine(
        now, "ERROR", "output", _cut(trace.rpartition("\n")[2], _LONGEST_TEXT), None, _cut(trace, _LONGEST_MORE)
    )


def explained(line: LogLine) -> LogLine:
    """The line with one sentence as its text; what was written stands beneath if that was more."""
    original = f"{line.text}\n{line.more}" if line.more else line.text
    code, text = _told(line, original)
    more = original if original != text else None
    beneath = None if more is None else _cut(more, _LONGEST_MORE)
    return replace(line, text=_cut(text, _LONGEST_TEXT), code=code, more=beneath)


def _told(line: LogLine, original: str) -> tuple[str | None, str]:
    ours = _OURS.search(original)
    if ours:
        return ours[1], ours[2]
    sentence = next((_filled(sentence, match) for pattern, sentence in _SENTENCES
                     if (match := pattern.search(line.text))), None)  # fmt: skip
    if line.level != "ERROR" and not _has_trace(original):
        return None, sentence or line.text.split("\n")[0]
    whole = f"{line.text}: {line.more}" if line.more else line.text
    problem = runtime_problem(Exception(whole), batch=None, log="", checkpoint="the state folder")
    if problem.code == "BATCH_FAILED":
        reason = str(problem.params["reason"])
        return None, f"{sentence}: {reason}" if sentence and reason not in line.text else sentence or reason
    return problem.code, problem.message


def _has_trace(original: str) -> bool:
    return "\n\tat " in original or "Traceback (most recent call last)" in original


def _filled(sentence: str, match: re.Match[str]) -> str:
    return sentence.format(*(part.strip() for part in match.groups()))


def _parsed(text: str) -> dict[str, str] | None:
    if not text.startswith('{"at":'):
        return None
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) and all(isinstance(value, str) for value in found.values()) else None


def _log_line(found: dict[str, str], now: dt.datetime) -> LogLine:
    try:
        at = dt.datetime.fromisoformat(found["at"])
    except (KeyError, ValueError):
        at = now
    level = _LEVELS.get(found.get("level", ""), "INFO")
    return LogLine(at, level, found.get("logger", "spark"), found.get("text", "").strip(), None,
                   found.get("more", "").strip() or None)  # fmt: skip


def _is_noise(line: LogLine) -> bool:
    if line.level == "ERROR":
        return False
    return any(logger.fullmatch(line.logger) and text.search(line.text) for logger, text in _NOISE)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _beyond(text: str) -> str | None:
    return _cut(text, _LONGEST_MORE) if len(text) > _LONGEST_TEXT else None
