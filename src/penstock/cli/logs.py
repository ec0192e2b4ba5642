"""`penstock logs NAME`: what pipelines log, as it was and as it comes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from penstock.cli.outage import Outage
from penstock.cli.output import out, print_problems
from penstock.errors import PenstockError
from penstock.spec.units import Duration

if TYPE_CHECKING:
    from penstock.cli.client import Client

_COLOURS = {"ERROR": "bold red", "WARNING": "yellow", "INFO": "", "DEBUG": "dim"}


class Level(StrEnum):
    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


def register(app: typer.Typer) -> None:
    app.command("logs")(logs)


def logs(
    names: Annotated[list[str] | None, typer.Argument(help="Pipelines; all if none is named.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")] = False,
    level: Annotated[Level, typer.Option("--level", help="Only lines from this level on.")] = Level.info,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="A time with its zone, or a length such as 10m.")
    ] = None,
    grep: Annotated[str | None, typer.Option("--grep", metavar="TEXT", help="Only lines that hold this text.")] = None,
    run: Annotated[str | None, typer.Option("--run", help="An earlier run of one pipeline. Default: the last.")] = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, max=1000, help="How many of each, at most.")] = 200,
) -> None:
    """Show the log lines of pipelines, of several in the order of time, and with -f as they come.

    An error is told in one line, with what was written originally beneath it. With -f it goes on where it was when a
    server that went away is back.
    """
    from penstock.cli.client import connected
    from penstock.cli.get import pipelines

    if run is not None and (follow or len(names or ()) != 1):
        reason = "--run is for one pipeline, and not with -f"
        raise PenstockError.of("USAGE", reason=reason, advice="Name the pipeline whose run it is.")
    client = connected()
    chosen = [each["name"] for each in pipelines(client, names)]
    wanted = {"level": level.value, "since": _moment(since), "grep": grep}
    found = _lines(client, chosen, {**wanted, "run": run, "limit": lines})
    several = len(chosen) > 1
    for line in sorted(found, key=lambda line: dt.datetime.fromisoformat(line["at"])):
        _print(line, several)
    if follow:
        _follow(client, names, wanted, {line["pipeline"]: _place(line) for line in found}, several or not names)


def _lines(client: Client, names: Sequence[str], wanted: dict[str, Any]) -> list[dict[str, Any]]:
    """Of each pipeline, in the order in which they were written."""
    from penstock.cli.client import part

    return [line for name in names for line in client.get(f"/pipelines/{part(name)}/logs", **wanted)]


def _follow(
    client: Client, names: Sequence[str] | None, wanted: dict[str, Any], seen: dict[str, str], several: bool
) -> None:
    """Goes on after the last line that was seen of each pipeline, now and whenever the server has been away."""
    outage = Outage()
    while True:
        try:
            events = client.events(
                "/logs/stream", pipeline=names or None, after=list(seen.values()), whole=True, **wanted
            )
            _print_events(events, seen, several, outage)
            raise PenstockError.of("SERVER_UNREACHABLE", url=client.url, reason="it has ended")
        except PenstockError as error:
            outage.wait(error)


def _print_events(
    events: Iterable[tuple[str, dict[str, Any]]], seen: dict[str, str], several: bool, outage: Outage
) -> None:
    from penstock.cli.client import OPENED, told

    trouble = None
    for kind, data in events:
        if kind == OPENED:
            outage.over()
        elif kind == "log":
            _print(data, several)
            seen[data["pipeline"]], trouble = _place(data), None
        elif kind == "trouble" and data != trouble:
            # It is told with every look of the server, and said once.
            trouble = data
            print_problems([told(data)])


def _place(line: dict[str, Any]) -> str:
    return f"{line['run']}:{line['position']}"


def _print(line: dict[str, Any], several: bool) -> None:
    at = dt.datetime.fromisoformat(line["at"]).astimezone(dt.UTC)
    colour = _COLOURS.get(line["level"], "")
    text = Text.assemble((f"{at:%Y-%m-%d %H:%M:%SZ} ", "dim"))
    if several:
        text.append(f"{line['pipeline']} ", "bold")
    text.append(f"{line['level']:<7} ", colour)
    if line["executor"] is not None:
        text.append(f"[executor {line['executor']['id']} on {line['executor']['host']}] ", "dim")
    text.append(line["text"], colour)
    out.print(text)
    for more in _beneath(line["more"]):
        out.print(Text(f"    {more}", "dim"))
    out.file.flush()


def _beneath(more: str | None) -> Iterable[str]:
    return () if more is None else more.splitlines()


def _moment(text: str | None) -> str | None:
    """A time, or so long ago; raises USAGE."""
    if text is None:
        return None
    try:
        length = dt.timedelta(milliseconds=Duration.parse(text).millis)
        return (dt.datetime.now(dt.UTC) - length).isoformat()
    except (ValueError, OverflowError):
        pass
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        advice = "Write 10m, 2 hours or 2024-01-01T00:00:00Z."
        raise PenstockError.of("USAGE", reason=f"--since {text} is no time", advice=advice) from None
    return (found if found.tzinfo is not None else found.replace(tzinfo=dt.UTC)).isoformat()
