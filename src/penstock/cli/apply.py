"""`penstock apply -f DIR|FILE`: makes what the files say so."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.text import Text

from penstock.cli.listing import Shape, print_value
from penstock.cli.output import out, working
from penstock.cli.plan import Files, Prune, Selector, Start, Target, done, print_plan
from penstock.cli.steer import Lose
from penstock.errors import PenstockError

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]


def register(app: typer.Typer) -> None:
    app.command("apply")(apply)


def apply(
    file: Files,
    yes: Yes = False,
    prune: Prune = False,
    selector: Selector = None,
    start: Start = None,
    target: Target = None,
    lose: Lose = None,
    output: Annotated[Shape, typer.Option("--output", "-o", help="How to print; all but table needs --yes.")] = (
        Shape.table
    ),
) -> None:
    """Create, upgrade and, with --prune, delete pipelines, so that the server has what the files say.

    Shows what will change, what that costs and what it consists of, and asks. Exactly what was shown is done: if
    someone was faster, nothing is. A change that would give up state is done only if --lose names whose. Applying the
    same files again changes nothing.
    """
    from penstock.cli.client import connected
    from penstock.cli.files import request

    client = connected()
    asked = request(file, prune=prune, selector=selector, start=start, target=target) | {"lose": lose or []}
    if output is not Shape.table:
        _need_yes(yes)
        print_value(client.post("/apply", asked), output)
        return
    with working("planning"):
        plan = client.post("/plan", asked)
    print_plan(plan)
    if not plan["changes"]:
        return
    if not yes:
        ask("Apply these changes?")
    result = client.post("/apply", {**asked, "plan": plan["checksum"]})
    out.print(Text(done(result), "bold green"))


def _need_yes(yes: bool) -> None:
    if not yes:
        raise PenstockError.of("USAGE", reason="nobody is asked when the answer is for a program", advice="Add --yes.")


def ask(question: str) -> None:
    """Goes on after a yes; raises REFUSED without one, also if there is nobody to ask."""
    if not sys.stdin.isatty():
        raise PenstockError.of("REFUSED", reason="there is no terminal to ask at", advice="Add --yes to do it.")
    try:
        answer = input(f"{question} [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise PenstockError.of("REFUSED", reason="nothing was changed", advice="")
