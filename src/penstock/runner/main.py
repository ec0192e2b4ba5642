"""`python -m penstock.runner.main FOLDER`: one run of one pipeline, as its order in that folder says.

It does what `penstock run` does, but tells of itself in files: whoever started it may come and go.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import traceback
from dataclasses import replace
from pathlib import Path

from penstock.engine.progress import Status
from penstock.errors import PenstockError, Problem
from penstock.frontends.load import load
from penstock.reports.folder import RunFolder
from penstock.reports.values import LogLine, Outcome, RunEnd, RunOrder
from penstock.runner.logs import RunLog, everything_into
from penstock.runner.loop import RunOptions, run
from penstock.runner.report import Reporter, utc_now
from penstock.spec.location import PipelineFile
from penstock.spec.resolve import secret_values
from penstock.spec.secrets import hidden, hide, noting

FENCED = ("FENCED", "SINK_FENCED")


def main() -> None:
    if len(sys.argv) != 2:
        print("usage: python -m penstock.runner.main FOLDER", file=sys.stderr)
        sys.exit(2)
    folder = RunFolder(Path(sys.argv[1]))
    order = folder.order
    if order is None:
        print(f"{folder.path / 'run.json'} is missing or cannot be read", file=sys.stderr)
        sys.exit(2)
    # A crash of the interpreter is told where it was started, as this process can no longer write it down.
    faulthandler.enable(os.dup(2))
    sys.exit(follow(folder, order))


def follow(folder: RunFolder, order: RunOrder) -> int:
    """Runs as ordered until the end, and notes how it ended; the exit code."""
    folder.make()
    log = RunLog(folder.lines)
    reporter = Reporter(folder, order)
    reporter.start()
    with everything_into(log):
        end = _run(folder, order, reporter, log)
    reporter.end("failed" if end.outcome in ("failed", "fenced") else end.outcome)
    folder.write_end(end)
    return end.exit_code


def _run(folder: RunFolder, order: RunOrder, reporter: Reporter, log: RunLog) -> RunEnd:
    log.say("INFO", f"run {order.run} of '{order.pipeline}' begins (version {order.version}, {order.master})")
    try:
        # What a file prints while it is read waits until it is known what in it is secret.
        with log.holding(), noting(_text(order.file)):
            file = _load(order)
        reporter.know(file)
        log.hidden = secret_values(file.pipeline)
        status = run(file, _options(order, folder, log), reporter.show)
    except PenstockError as error:
        return _failed(order, error, log)
    except BaseException as error:
        trace = "".join(traceback.format_exception(error))
        log.write(LogLine(utc_now(), "ERROR", "penstock", f"{type(error).__name__}: {error}", None, trace))
        reason = hide(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
        return _failed(order, PenstockError.of("RUN_FAILED", reason=reason, log=folder.lines), log)
    reporter.show(status)
    return _ended(order, status, log)


def _text(file: str) -> str:
    try:
        return Path(file).read_text("utf-8", "replace")
    except OSError:
        return ""


def _load(order: RunOrder) -> PipelineFile:
    base = Path(order.folder)
    # Modules of a pipeline lie where its relative paths start.
    sys.path.insert(0, str(base))
    try:
        return replace(load(order.file), base=base)
    finally:
        sys.path.remove(str(base))


def _options(order: RunOrder, folder: RunFolder, log: RunLog) -> RunOptions:
    return RunOptions(
        state_dir=Path(order.state_dir),
        master=order.master,
        conf=order.conf,
        driver_memory=order.driver_memory,
        packages=order.packages,
        take_over=order.take_over,
        log=folder.lines,
        take_line=log.take_spark,
        take_record=log.take_record,
    )


def _ended(order: RunOrder, status: Status, log: RunLog) -> RunEnd:
    outcome: Outcome = "stopped" if status.phase == "stopped" else "done"
    rows = sum(status.rows_in.values())
    log.say("INFO", f"run {order.run} {outcome} after {status.batches:,} batches and {rows:,} rows")
    return RunEnd(order.run, utc_now(), 0, outcome)


def _failed(order: RunOrder, error: PenstockError, log: RunLog) -> RunEnd:
    error = hidden(error)
    for problem in error.problems:
        log.say("ERROR", _in_words(problem), code=problem.code)
    outcome: Outcome = "fenced" if error.code in FENCED else "failed"
    return RunEnd(
        order.run, utc_now(), error.exit_code or 1, outcome, tuple(problem.as_dict() for problem in error.problems)
    )


def _in_words(problem: Problem) -> str:
    place = f"{problem.location}: " if problem.location else ""
    return f"{place}{problem.message}{f' {problem.hint}' if problem.hint else ''}"


if __name__ == "__main__":
    main()
