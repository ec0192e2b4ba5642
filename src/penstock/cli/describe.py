"""`penstock describe NAME`: all that is known of one pipeline."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.text import Text

from penstock.cli.listing import (
    Shape,
    ago,
    behind,
    clock,
    labelled,
    print_table,
    print_value,
    span,
    state_text,
    utc_now,
)
from penstock.cli.output import out

_RUNS, _EVENTS, _EXCEPTIONS, _ALERTS, _MOVES, _SAVEPOINTS = 5, 12, 3, 10, 5, 5


def register(app: typer.Typer) -> None:
    app.command("describe")(describe)


def describe(
    name: Annotated[str, typer.Argument(help="The pipeline.")],
    output: Annotated[Shape, typer.Option("--output", "-o", help="How to print.")] = Shape.table,
) -> None:
    """Show one pipeline: its state and the evidence, rows, runs, last errors, alerts, and what was decided and why."""
    from penstock.cli.client import connected, part

    client = connected()
    found = client.get(f"/pipelines/{part(name)}/description")
    found["alerts"] = client.get("/alerts", pipeline=name, limit=_ALERTS)["items"]
    found["failovers"] = client.get("/failovers", pipeline=name, limit=_MOVES)["items"]
    for what in ("savepoints", "operations"):
        found[what] = client.get(f"/pipelines/{part(name)}/{what}", limit=_SAVEPOINTS)["items"]
    found["scaling"] = client.get(f"/pipelines/{part(name)}/scaling")
    if output is not Shape.table:
        print_value(found, output)
        return
    now = utc_now()
    _print_head(found["pipeline"], found["status"], now)
    _print_scaling(found["scaling"])
    _print_runs(found["runs"][:_RUNS], now)
    _print_exceptions(found["exceptions"][:_EXCEPTIONS], now)
    _print_alerts(found["alerts"], now)
    _print_moves(found["failovers"])
    _print_savepoints(found["savepoints"], now)
    _print_operations(found["operations"], now)
    _print_events(found["events"][:_EVENTS])


def _print_head(pipeline: Mapping[str, Any], status: Mapping[str, Any] | None, now: dt.datetime) -> None:
    out.print(Text.assemble((pipeline["name"], "bold"), "  ", state_text(pipeline["state"])))
    seen = pipeline["observedGeneration"]
    pending = "" if seen == pipeline["generation"] else f", of which {seen} is seen to"
    lines: list[tuple[str, str]] = [
        ("evidence", pipeline["reason"]),
        ("since", f"{clock(pipeline['since'])}, {ago(pipeline['since'], now)}"),
        ("desired", "deleted" if pipeline["deleting"] else pipeline["desired"]),
        ("generation", f"{pipeline['generation']}{pending}"),
        ("version", str(pipeline["version"])),
        ("target", pipeline["target"]),
    ]
    if pipeline["labels"]:
        lines.append(("labels", labelled(pipeline["labels"])))
    lines += _numbers(pipeline, status, now)
    for label, value in lines:
        out.print(Text.assemble((f"  {label:<11} ", "dim"), value))


def _print_scaling(scaling: Mapping[str, Any]) -> None:
    """The advice and its reason, of a pipeline with `scale`."""
    if not scaling["configured"]:
        return
    advice, colour = _ADVICE[scaling["action"]], {"up": "yellow", "down": "cyan", "held": "red"}
    if scaling["action"] in ("up", "down"):
        advice = f"{scaling['cores']} → {scaling['advised']} cores advised"
    out.print(Text.assemble((f"  {'scaling':<11} ", "dim"), (advice, colour.get(scaling["action"] or "", ""))))
    if scaling["text"]:
        out.print(Text(f"  {'':<11} {scaling['text']}", "dim"))


_ADVICE = {
    None: "nothing is advised before it runs",
    "keep": "no change advised",
    "held": "a change is due, and not advised now",
    "up": "",
    "down": "",
}


def _numbers(pipeline: Mapping[str, Any], status: Mapping[str, Any] | None, now: dt.datetime) -> list[tuple[str, str]]:
    counts = [f"{pipeline[key]:,} {word}" for key, word in _COUNTS if pipeline[key] or key in ("rowsIn", "rowsOut")]
    lines = [("rows", ", ".join(counts))]
    if pipeline["rowsPerSecond"] is not None:
        lines.append(("rate", f"{pipeline['rowsPerSecond']:,.0f} rows/s"))
    if pipeline["watermark"]:
        at = dt.datetime.fromtimestamp(pipeline["watermark"] / 1000, dt.UTC)
        lines.append(("watermark", f"{clock(at.isoformat())}, {behind(pipeline['watermark'], now)}"))
    if pipeline["backlog"]:
        waiting = ", ".join(
            f"{source} {each['amount']:,} {each['unit']}" for source, each in pipeline["backlog"].items()
        )
        left = pipeline["secondsLeft"]
        lines.append(("backlog", waiting if left is None else f"{waiting}, caught up in about {span(left)}"))
    if status is not None and status.get("last_batch"):
        last = status["last_batch"]
        lines.append(("batch", f"{last['batch']}, took {last['duration_ms'] / 1000:.2f} s, {ago(last['at'], now)}"))
    return lines


_COUNTS = (
    ("rowsIn", "in"),
    ("rowsOut", "out"),
    ("rowsFiltered", "filtered"),
    ("rowsLate", "late"),
    ("rowsDead", "dead"),
)


def _print_runs(runs: Sequence[Mapping[str, Any]], now: dt.datetime) -> None:
    rows = [
        [each["id"], str(each["version"]), each["target"], clock(each["startedAt"]), _ended(each, now)] for each in runs
    ]
    _section("Runs", ("run", "version", "target", "started", "end"), rows)


def _ended(run: Mapping[str, Any], now: dt.datetime) -> str | Text:
    if run["endedAt"] is None:
        return Text(f"runs, process {run['pid']}" if run["pid"] else "runs", "green")
    how = f"{run['outcome']} {ago(run['endedAt'], now)}"
    return f"{how}: {run['reason']}" if run["reason"] else how


def _print_exceptions(exceptions: Sequence[Mapping[str, Any]], now: dt.datetime) -> None:
    if not exceptions:
        return
    out.print(Text("\nLast errors", "bold"))
    for each in exceptions:
        when = f"  {ago(each['at'], now)}  "
        out.print(Text.assemble((when, "dim"), (f"[{each['code']}] ", "red"), each["message"]))
        if each["hint"]:
            out.print(Text(f"      {each['hint']}", "dim"))


def _print_alerts(alerts: Sequence[Mapping[str, Any]], now: dt.datetime) -> None:
    rows = [[each["rule"], alert_state(each), ago(each["since"], now), each["evidence"]] for each in alerts]
    _section("Alerts", ("alert", "state", "since", "evidence"), rows)


def alert_state(alert: Mapping[str, Any]) -> Text:
    colour = {"firing": "bold red", "pending": "yellow", "resolved": "green"}.get(alert["state"], "")
    return Text(alert["state"], colour)


def _print_moves(moves: Sequence[Mapping[str, Any]]) -> None:
    rows = [
        [clock(each["noticedAt"]), each["fromTarget"], each["toTarget"], _took(each)]
        for each in moves
    ]  # fmt: skip
    _section("Moves", ("notice", "from", "to", "caught up"), rows)


def _print_savepoints(savepoints: Sequence[Mapping[str, Any]], now: dt.datetime) -> None:
    rows = [
        [each["name"], ago(each["at"], now), str(each["version"] or "·"), str(each["batch"]), each["note"]]
        for each in savepoints
    ]
    _section("Savepoints", ("savepoint", "taken", "version", "batch", "note"), rows)


def _print_operations(operations: Sequence[Mapping[str, Any]], now: dt.datetime) -> None:
    rows = [[each["kind"], ago(each["askedAt"], now), each["askedBy"], _outcome(each)] for each in operations]
    _section("Operations", ("operation", "asked for", "by", "outcome"), rows)


def _outcome(operation: Mapping[str, Any]) -> Text:
    colour = {"done": "green", "failed": "red"}.get(operation["state"], "magenta")
    more = operation["reason"] or operation["stage"]
    return Text(f"{operation['state']}: {more}" if more else operation["state"], colour)


def _took(move: Mapping[str, Any]) -> str:
    if move["caughtUpAt"] is None:
        return "not yet"
    noticed, done = (dt.datetime.fromisoformat(move[key]) for key in ("noticedAt", "caughtUpAt"))
    return f"after {span((done - noticed).total_seconds())}"


def _print_events(events: Sequence[Mapping[str, Any]]) -> None:
    rows = [[clock(each["at"]), each["kind"], each["text"]] for each in events]
    _section("Events", ("time", "event", "why"), rows)


def _section(title: str, columns: Sequence[str], rows: Sequence[Sequence[str | Text]]) -> None:
    if rows:
        out.print(Text(f"\n{title}", "bold underline"))
        print_table(columns, rows, last_wraps=True)
