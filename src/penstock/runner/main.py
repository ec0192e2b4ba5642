"""`python -m penstock.runner.main FOLDER`: one run of one pipeline, as its order in that folder says.

It does what `penstock run` does, but tells of itself in files: whoever started it may come and go.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from penstock.engine.progress import Status
from penstock.errors import PenstockError, Problem
from penstock.reports.folder import RunFolder
from penstock.reports.values import Outcome, RunEnd, RunOrder
from penstock.runner.logs import RunLog, everything_into
from penstock.runner.loop import RunOptions, run
from penstock.runner.ordered import in_words, load_ordered, obey, unexpected
from penstock.runner.report import Reporter, utc_now
from penstock.spec.resolve import secret_values
from penstock.spec.secrets import hidden

FENCED = ("FENCED", "SINK_FENCED")


def main() -> None:
    obey(RunFolder, "penstock.runner.main", follow)


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
        with log.holding():
            file = load_ordered(order.file, order.folder)
        reporter.know(file)
        log.hidden = secret_values(file.pipeline)
        status = run(file, _options(order, folder, log), reporter.show)
    except PenstockError as error:
        return _failed(order, error, log)
    except BaseException as error:
        reason = unexpected(error, log)
        return _failed(order, PenstockError.of("RUN_FAILED", reason=reason, log=folder.lines), log)
    reporter.show(status)
    return _ended(order, status, log)


def _options(order: RunOrder, folder: RunFolder, log: RunLog) -> RunOptions:
    return RunOptions(
        state_dir=Path(order.state_dir),
        master=order.master,
        conf=order.conf,
        driver_memory=order.driver_memory,
        locked=order.jars,
        take_over=order.take_over,
        log=folder.lines,
        take_line=log.take_spark,
        take_record=log.take_record,
        begins=log.begin,
    )


def _ended(order: RunOrder, status: Status, log: RunLog) -> RunEnd:
    outcome: Outcome = "stopped" if status.phase == "stopped" else "done"
    rows = sum(status.rows_in.values())
    log.say("INFO", f"run {order.run} {outcome} after {status.batches:,} batches and {rows:,} rows")
    return RunEnd(order.run, utc_now(), 0, outcome)


def _failed(order: RunOrder, error: PenstockError, log: RunLog) -> RunEnd:
    error = hidden(_by_name(error, order))
    for problem in error.problems:
        number = str(problem.params.get("batch", ""))
        log.say("ERROR", in_words(problem), code=problem.code, batch=int(number) if number.isdigit() else None)
    outcome: Outcome = "fenced" if error.code in FENCED else "failed"
    return RunEnd(
        order.run, utc_now(), error.exit_code or 1, outcome, tuple(problem.as_dict() for problem in error.problems)
    )


def _by_name(error: PenstockError, order: RunOrder) -> PenstockError:
    """Commands take the pipelines of a server by their names."""

    def named(problem: Problem) -> Problem:
        params = {key: str(value).replace(order.file, order.pipeline) for key, value in problem.params.items()}
        return replace(problem, params=params)

    return PenstockError(map(named, error.problems)) if error.code == "CHANGE_NEEDS_UPGRADE" else error


if __name__ == "__main__":
    main()
