"""`penstock alerts`: what is pending or fires, and silences."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from penstock.cli.describe import alert_state
from penstock.cli.listing import Shape, ago, clock, moment, print_table, print_value, utc_now
from penstock.cli.output import out

_COLUMNS = ("pipeline", "alert", "severity", "state", "since", "evidence")
Output = Annotated[Shape, typer.Option("--output", "-o", help="How to print.")]


def register(app: typer.Typer) -> None:
    verbs = typer.Typer(invoke_without_command=True)
    verbs.callback()(alerts)
    verbs.command("silence")(silence)
    verbs.command("silences")(silences)
    verbs.command("unsilence")(unsilence)
    app.add_typer(verbs, name="alerts")


def alerts(
    context: typer.Context,
    pipeline: Annotated[str | None, typer.Option("--pipeline", help="Only those of this pipeline.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also what is over, the newest 100.")] = False,
    output: Output = Shape.table,
) -> None:
    """List the alerts that are pending or fire."""
    if context.invoked_subcommand is not None:
        return
    from penstock.cli.client import connected

    client = connected()
    found: list[dict[str, Any]] = []
    for state in (None,) if everything else ("firing", "pending"):
        found += client.get("/alerts", pipeline=pipeline, state=state, limit=100)["items"]
    if output is not Shape.table:
        print_value(found, output)
        return
    now = utc_now()
    rows = [
        [each["pipeline"], each["rule"], each["severity"], alert_state(each), ago(each["since"], now), each["evidence"]]
        for each in found
    ]
    if rows:
        print_table(_COLUMNS, rows, last_wraps=True)
    else:
        out.print(Text("nothing has fired" if everything else "nothing is pending or fires", "dim"))


def silence(
    pipeline: Annotated[str | None, typer.Argument(help="The pipeline; all if none is named.")] = None,
    lasts: Annotated[str, typer.Option("--for", metavar="LENGTH", help="How long, such as 2h.")] = "1h",
    rule: Annotated[str | None, typer.Option("--rule", help="Only this alert.")] = None,
    why: Annotated[str, typer.Option("--why", help="For those who wonder.")] = "",
) -> None:
    """For a while nobody is told of alerts. They still fire and are kept."""
    from penstock.cli.client import connected

    asked = {"pipeline": pipeline, "rule": rule, "lasts": lasts, "why": why}
    made = connected().post("/silences", {key: value for key, value in asked.items() if value is not None})
    what = f"'{rule}' of " if rule else ""
    out.print(
        f"silence {made['id']}: nobody is told of {what}{pipeline or 'any pipeline'} until {clock(made['until'])}"
    )


def silences(output: Output = Shape.table) -> None:
    """List the silences that hold."""
    from penstock.cli.client import connected

    now = utc_now()
    found = [each for each in connected().pages("/silences") if (moment(each["until"]) or now) > now]
    if output is not Shape.table:
        print_value(found, output)
        return
    rows = [
        [str(each["id"]), each["pipeline"] or "(all)", each["rule"] or "(all)", clock(each["until"]), each["createdBy"],
         each["why"]]
        for each in found
    ]  # fmt: skip
    if rows:
        print_table(("silence", "pipeline", "alert", "until", "by", "why"), rows, last_wraps=True)
    else:
        out.print(Text("there are no silences", "dim"))


def unsilence(number: Annotated[int, typer.Argument(help="The number of the silence.", min=1)]) -> None:
    """End a silence now."""
    from penstock.cli.client import connected

    connected().delete(f"/silences/{number}")
    out.print(f"silence {number} has ended")
