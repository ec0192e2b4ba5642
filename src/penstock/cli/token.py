"""`penstock token`: who may do what."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from penstock.cli.files import labels_in
from penstock.cli.listing import Shape, ago, clock, labelled, moment, print_table, print_value, utc_now
from penstock.cli.output import err, out
from penstock.control.auth.roles import Role


def register(app: typer.Typer) -> None:
    verbs = typer.Typer(help="Make, list and revoke tokens.", no_args_is_help=True)
    verbs.command("create")(create)
    verbs.command("list")(list_tokens)
    verbs.command("revoke")(revoke)
    app.add_typer(verbs, name="token")


def create(
    name: Annotated[str, typer.Argument(help="Whose it is; the audit log says so.")],
    role: Annotated[Role, typer.Option("--role", help="What it opens; each role can do what those before can.")],
    scope: Annotated[
        list[str] | None,
        typer.Option("--scope", metavar="KEY=VALUE", help="Only pipelines with this label; may be repeated."),
    ] = None,
    project: Annotated[
        str | None, typer.Option("--project", metavar="NAME", help="Only pipelines of this project of the server.")
    ] = None,
    lasts: Annotated[str, typer.Option("--for", metavar="LENGTH", help="How long it is valid.")] = "90 days",
    forever: Annotated[bool, typer.Option("--forever", help="It never expires.")] = False,
) -> None:
    """Make a token and print it. It is shown this once: the server keeps only a hash."""
    from penstock.cli.client import connected

    asked: dict[str, Any] = {"name": name, "role": role.value, "scope": labels_in(scope)}
    asked |= {} if project is None else {"project": project}
    made = connected().post("/tokens", {**asked, "lasts": None if forever else lasts})
    until = "for ever" if made["expiresAt"] is None else f"until {clock(made['expiresAt'])}"
    err.print(Text(f"token {made['id']} of {name}, {role.value}, {until}; it is not shown again", "dim"))
    # Alone on the standard output, so that a script can keep it.
    print(made["token"])


def list_tokens(
    output: Annotated[Shape, typer.Option("--output", "-o", help="How to print.")] = Shape.table,
) -> None:
    """List tokens, without their texts, which nobody knows."""
    from penstock.cli.client import connected

    found = list(connected().pages("/tokens"))
    if output is not Shape.table:
        print_value(found, output)
        return
    now = utc_now()
    rows = [
        [each["id"], each["name"], each["role"], labelled(each["scope"]), _validity(each), ago(each["lastUsedAt"], now)]
        for each in found
    ]
    print_table(("token", "name", "role", "scope", "valid", "last used"), rows)


def _validity(token: dict[str, Any]) -> str | Text:
    if token["revokedAt"] is not None:
        return Text("revoked", "red")
    expires = moment(token["expiresAt"])
    if expires is None:
        return "for ever"
    return Text("expired", "red") if expires <= utc_now() else f"until {clock(token['expiresAt'])}"


def revoke(token: Annotated[str, typer.Argument(help="The number of the token, as `list` shows it.")]) -> None:
    """Take a token back: from now on it opens nothing."""
    from penstock.cli.client import connected, part

    connected().delete(f"/tokens/{part(token)}")
    out.print(f"token {token} opens nothing any more")
