"""The page of the command line."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from penstock.cli.main import app
from penstock.docs.errors import exit_codes_table
from penstock.docs.markdown import NOTE, table


def cli_page() -> str:
    """Every verb with its arguments and options."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    context = typer.Context(group, info_name="penstock")
    intro = f"""\
# Command line

{group.help}

On a terminal the output is coloured and `run` shows a live panel; in a pipe there are plain lines. Errors go to the
standard error.

`plan`, `apply`, `get`, `describe`, `start`, `stop`, `delete`, `logs`, `alerts` and `token` ask a server: the one that
`PENSTOCK_URL` names (by default `http://127.0.0.1:8080`), with the token in `PENSTOCK_TOKEN`.

{exit_codes_table()}
## Options before the verb

`--debug` may also stand anywhere else on the line.

{_options_table(group, context)}"""
    return f"{NOTE}\n{intro}\n" + "\n".join(_verbs(group, context))


def _verbs(group: TyperGroup, parent: typer.Context) -> Iterator[str]:
    """Every verb, and those of groups under both their names."""
    for name, command in group.commands.items():
        context = typer.Context(command, parent=parent, info_name=name)
        if not isinstance(command, TyperGroup) or command.invoke_without_command:
            yield _verb(command, context)
        if isinstance(command, TyperGroup):
            yield from _verbs(command, context)


def _verb(command: Any, context: typer.Context) -> str:
    assert isinstance(command, TyperCommand | TyperGroup)
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    name = context.command_path.removeprefix("penstock ")
    return f"## {name}\n\n`{usage}`\n\n{inspect.cleandoc(command.help or '')}\n\n{_options_table(command, context)}"


def _options_table(command: TyperCommand | TyperGroup, context: typer.Context) -> str:
    rows = [_parameter(parameter, context) for parameter in command.get_params(context)]
    return table(["Argument or option", "Default", "What it is"], rows)


def _parameter(parameter: Any, context: typer.Context) -> list[str]:
    """How `--help` shows an argument or option, with what it says of the default taken apart."""
    names, words = parameter.get_help_record(context) or ("", "")
    default = re.search(r"\s*\[(?:default: (.*)|(required))\]$", words)
    if default is None:
        return [f"`{names}`", "", words]
    return [f"`{names}`", default[2] or f"`{default[1]}`", words[: default.start()]]
