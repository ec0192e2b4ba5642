"""What happens now: events, states and logs, as lists and as streams."""

from __future__ import annotations

import datetime as dt
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import Header, Query, Request
from pydantic import Field, StringConstraints
from sse_starlette import EventSourceResponse

from penstock.control.api.answers import (
    AfterNumber,
    Answer,
    EventAnswer,
    Limit,
    Listed,
    PipelineAnswer,
    listed,
    status_answer,
)
from penstock.control.api.asked import Moment, Names, moment
from penstock.control.api.guard import Caller, GuardedRouter, ServicesOf, visible
from penstock.control.api.services import Services
from penstock.control.api.streams import STREAM, News, streamed
from penstock.control.auth.roles import Grant, Role
from penstock.control.store import history, pipelines, runs
from penstock.errors import PenstockError
from penstock.reports.folder import RunFolder
from penstock.reports.log import BEGINNING, LogCursor, LogFilter, last_placed, read_placed
from penstock.reports.values import LogLine
from penstock.spec.secrets import hide

router = GuardedRouter(prefix="/api/v1", tags=["live"])
Level = Literal["debug", "info", "warning", "error"]
_OVERLAP = 50
"""Events are looked for again among so many numbers: one that is begun earlier may be kept later."""
_MOST_LINES = 10_000
After = Annotated[
    list[Annotated[str, StringConstraints(pattern=r"^r[0-9a-f]{12}:[0-9a-f]{1,8}\.[0-9]{1,15}$")]] | None,
    Query(max_length=1000, description="RUN:POSITION of the last line that was seen of a pipeline; may be repeated."),
]
Whole = Annotated[
    bool,
    Query(description="Whether pipelines of which `after` names no run begin with the first line of their last run."),
]
Grep = Annotated[str | None, Query(max_length=200, description="Only lines that hold this text, whatever its case.")]


class ExecutorAnswer(Answer):
    id: str
    host: str


class LogAnswer(Answer):
    pipeline: str
    run: str
    at: dt.datetime
    level: str
    logger: str
    text: str
    code: str | None
    more: str | None
    executor: ExecutorAnswer | None = Field(description="Where it was written, if not in the process of the run.")
    batch: int | None = Field(description="The batch that was at work then.")
    position: str = Field(description="With the run, what a stream takes to go on after this line.")


@router.guarded(Role.VIEWER, "GET", "/events")
def list_events(
    services: ServicesOf,
    grant: Caller,
    pipeline: str | None = None,
    kind: str | None = None,
    limit: Limit = 100,
    after: AfterNumber = None,
) -> Listed[EventAnswer]:
    """What happened, the newest first: changes, decisions of the supervisor with their reasons, ends of runs."""
    with services.store.reading() as connection:
        page = history.listed_events(
            connection, pipeline=pipeline, kind=kind, scopes=grant.scopes, limit=limit, after=after
        )
    return listed(page, EventAnswer.model_validate)


@router.guarded(Role.VIEWER, "GET", "/events/stream", response_class=EventSourceResponse, responses=STREAM)
def stream_events(
    request: Request,
    services: ServicesOf,
    grant: Caller,
    pipeline: str | None = None,
    last_event_id: Annotated[str | None, Header()] = None,
) -> EventSourceResponse:
    """Events as they happen, after the last one that was seen."""
    if last_event_id is not None and last_event_id.isdigit():
        start = min(int(last_event_id), 2**62)
    else:
        with services.store.reading() as connection:
            start = history.last_event(connection)
    return streamed(request, services, grant, _event_news(services, grant, pipeline, start))


def _event_news(services: Services, grant: Grant, pipeline: str | None, start: int) -> Callable[[], Iterable[News]]:
    newest = start
    told: deque[int] = deque(maxlen=4 * _OVERLAP)

    def look() -> Iterator[News]:
        nonlocal newest
        with services.store.reading() as connection:
            found = history.listed_events(
                connection, pipeline=pipeline, scopes=grant.scopes, limit=500, newest_first=False,
                after=max(newest - _OVERLAP, start),
            )  # fmt: skip
        for event in found.items:
            if event.id not in told:
                told.append(event.id)
                newest = max(newest, event.id)
                data = EventAnswer.model_validate(event).model_dump(mode="json", by_alias=True)
                yield News("event", data, str(event.id))

    return look


@router.guarded(Role.VIEWER, "GET", "/stream", response_class=EventSourceResponse, responses=STREAM)
def stream_pipelines(
    request: Request, services: ServicesOf, grant: Caller, pipeline: Names = None
) -> EventSourceResponse:
    """Pipelines as they change, with what their runs report."""
    _must_see(services, grant, pipeline)
    return streamed(request, services, grant, _state_news(services, grant, pipeline))


def _state_news(services: Services, grant: Grant, names: list[str] | None) -> Callable[[], Iterable[News]]:
    told: dict[str, dict[str, Any]] = {}

    def look() -> Iterator[News]:
        with services.store.reading() as connection:
            found = [item for item in pipelines.every(connection) if grant.sees(item.labels)]
        live, target = services.live(), services.config.default_target
        there = {item.name: item for item in found if names is None or item.name in names}
        for name, item in there.items():
            seen = live.get(name)
            data = PipelineAnswer.of(item, seen, target).model_dump(mode="json", by_alias=True)
            data["status"] = status_answer(seen.status if seen is not None else None)
            if told.get(name) != data:
                told[name] = data
                yield News("pipeline", data)
        for name in told.keys() - there.keys():
            del told[name]
            yield News("gone", {"name": name})

    return look


@router.guarded(Role.VIEWER, "GET", "/pipelines/{name}/logs")
def list_logs(
    services: ServicesOf,
    grant: Caller,
    name: str,
    run: str | None = None,
    level: Level = "info",
    since: Moment = None,
    grep: Grep = None,
    limit: Limit = 200,
) -> list[LogAnswer]:
    """The newest lines of the log of a run, by default of the last one."""
    with services.store.reading() as connection:
        visible(connection, grant, name)
        chosen = _run_of(runs.get(connection, run) if run is not None else runs.last_of(connection, name), name, run)
    if chosen is None:
        return []
    folder = RunFolder(services.folder.run(name, chosen))
    lines, _ = last_placed(folder, limit, _filter(level, since, grep))
    return [_shown(name, chosen, line, place) for line, place in lines]


def _filter(level: Level, since: dt.datetime | None, grep: str | None) -> LogFilter:
    # Plain text: a pattern of a stranger could keep the server busy for ever.
    pattern = None if grep is None else re.compile(re.escape(grep), re.IGNORECASE)
    return LogFilter(level.upper(), moment(since), pattern)


def _run_of(found: runs.StoredRun | None, name: str, run: str | None) -> str | None:
    if found is not None and found.pipeline != name:
        raise PenstockError.of("NOT_FOUND", what=f"run of '{name}'", name=run)
    return None if found is None else found.id


@router.guarded(Role.VIEWER, "GET", "/logs/stream", response_class=EventSourceResponse, responses=STREAM)
def stream_logs(
    request: Request,
    services: ServicesOf,
    grant: Caller,
    pipeline: Names = None,
    level: Level = "info",
    since: Moment = None,
    grep: Grep = None,
    after: After = None,
    whole: Whole = False,
) -> EventSourceResponse:
    """Lines of the logs of several pipelines as they are written; with `since` also those before.

    With `after` it goes on where an earlier stream was left: no line comes twice, and none is missing.
    """
    _must_see(services, grant, pipeline)
    start = LogStart(_positions(services, after or []), whole or since is not None)
    return streamed(request, services, grant, _log_news(services, grant, pipeline, _filter(level, since, grep), start))


@dataclass(frozen=True)
class LogStart:
    """Where a stream begins: after a line of a run, and else with the first line of the last run or after its last."""

    positions: Mapping[str, tuple[runs.StoredRun, LogCursor]]
    whole: bool


def _positions(services: Services, after: list[str]) -> dict[str, tuple[runs.StoredRun, LogCursor]]:
    """By pipeline. A run that is not known any more is passed over."""
    found: dict[str, tuple[runs.StoredRun, LogCursor]] = {}
    with services.store.reading() as connection:
        for each in after:
            name, _, place = each.partition(":")
            try:
                run = runs.get(connection, name)
            except PenstockError as error:
                if error.code != "NOT_FOUND":
                    raise
                continue
            if run.pipeline not in found or found[run.pipeline][0].sequence < run.sequence:
                found[run.pipeline] = (run, LogCursor.parse(place))
    return found


def _log_news(
    services: Services, grant: Grant, names: list[str] | None, wanted: LogFilter, start: LogStart
) -> Callable[[], Iterable[News]]:
    reading: dict[str, tuple[runs.StoredRun, LogCursor]] = {}
    first = True

    def begin(name: str, run: runs.StoredRun) -> tuple[runs.StoredRun, LogCursor]:
        if name in start.positions:
            return start.positions[name]
        at_end = first and not start.whole
        return run, last_placed(_folder(services, run), 0)[1] if at_end else BEGINNING

    def look() -> Iterator[News]:
        nonlocal first
        with services.store.reading() as connection:
            found = {item.name for item in pipelines.every(connection) if grant.sees(item.labels)}
            latest = {name: run for name, run in runs.latest(connection).items() if name in found}
            chosen = [run for name, run in sorted(latest.items()) if names is None or name in names]
            for run in chosen:
                if run.pipeline not in reading:
                    reading[run.pipeline] = begin(run.pipeline, run)
            newer = {
                run.pipeline: runs.after(connection, run.pipeline, reading[run.pipeline][0].sequence)
                for run in chosen
                if run.sequence > reading[run.pipeline][0].sequence
            }
        first = False
        for run in chosen:
            name = run.pipeline
            # A run is read to its end before the next one, whoever was quicker.
            for later in [None, *newer.get(name, ())]:
                if later is not None:
                    reading[name] = (later, BEGINNING)
                current, cursor = reading[name]
                lines, cursor = read_placed(_folder(services, current), cursor, wanted, _MOST_LINES)
                reading[name] = (current, cursor)
                for line, place in lines:
                    shown = _shown(name, current.id, line, place)
                    yield News("log", shown.model_dump(mode="json", by_alias=True))
                if len(lines) >= _MOST_LINES:
                    break

    return look


def _folder(services: Services, run: runs.StoredRun) -> RunFolder:
    return RunFolder(services.folder.run(run.pipeline, run.id))


def _shown(pipeline: str, run: str, line: LogLine, place: LogCursor) -> LogAnswer:
    executor = line.executor
    return LogAnswer(
        pipeline=pipeline,
        run=run,
        at=line.at,
        level=line.level,
        logger=line.logger,
        text=hide(line.text),
        code=line.code,
        more=None if line.more is None else hide(line.more),
        executor=None if executor is None else ExecutorAnswer(id=executor.id, host=executor.host),
        batch=line.batch,
        position=str(place),
    )


def _must_see(services: Services, grant: Grant, names: list[str] | None) -> None:
    """Raises PIPELINE_UNKNOWN for a name that the caller cannot see."""
    with services.store.reading() as connection:
        for name in names or []:
            visible(connection, grant, name)
