"""How the command speaks: errors in words, tables and JSON, colour on a terminal and plain text in a pipe."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from typing import Any

from rich.console import Console
from rich.text import Text

from penstock.errors import PenstockError, Problem, Severity
from penstock.spec.secrets import hide

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


class Format(StrEnum):
    """Answers of verbs that print an object."""

    text = "text"
    json = "json"


def print_json(value: Any) -> None:
    out.print_json(json.dumps(value, default=str)) if out.is_terminal else print(
        json.dumps(value, indent=2, default=str)
    )


def print_problems(problems: Iterable[Problem], console: Console = err) -> None:
    for problem in problems:
        console.print(problem_text(problem))


def problem_text(problem: Problem) -> Text:
    colour = "red" if problem.severity is Severity.ERROR else "yellow"
    text = Text()
    if problem.location is not None:
        text.append(f"{near(problem.location.file)}:{problem.location.line}:{problem.location.column}: ", "bold")
    text.append(f"{problem.severity}", f"bold {colour}")
    text.append(f"[{problem.code}] ", colour)
    text.append(problem.message)
    if problem.hint:
        text.append(f"\n    {problem.hint}", "dim")
    return text


def print_error(error: Exception) -> None:
    if isinstance(error, PenstockError):
        print_problems(error.problems)
        return
    sentence = str(error).splitlines()[0] if str(error) else ""
    err.print(
        Text.assemble(("error", "bold red"), ("[UNEXPECTED] ", "red"), hide(f"{type(error).__name__}: {sentence}"))
    )
    err.print(Text("    This is a bug in Penstock. Run the command again with --debug to see where.", "dim"))


def print_trace(error: BaseException) -> None:
    sys.stderr.write(hide("".join(traceback.format_exception(error))))


def near(path: str) -> str:
    """The path as seen from here, if that is shorter."""
    try:
        relative = os.path.relpath(path)
    except ValueError:
        return path
    return relative if not relative.startswith("..") else path


def working(on: str, console: Console = err) -> AbstractContextManager[object]:
    """A sign of life while something takes seconds, on a terminal only; what is printed meanwhile must go there too."""
    return console.status(f"{on} …") if console.is_terminal else nullcontext()


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
