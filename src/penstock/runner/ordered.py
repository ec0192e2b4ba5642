"""What processes that are started with an order share: reading the pipeline file, and saying what was wrong."""

from __future__ import annotations

import faulthandler
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar

from penstock.access.limits import limit
from penstock.errors import Problem
from penstock.frontends.load import load
from penstock.reports.values import LogLine
from penstock.runner.logs import RunLog
from penstock.runner.report import utc_now
from penstock.spec.location import PipelineFile
from penstock.spec.secrets import hide, noting


class Ordered(Protocol):
    """A folder with an order in it."""

    ORDER: str

    def __init__(self, path: Path) -> None: ...

    @property
    def path(self) -> Path: ...

    @property
    def order(self) -> Any: ...


_F = TypeVar("_F", bound=Ordered)


def obey(kind: type[_F], module: str, follow: Callable[[_F, Any], int]) -> NoReturn:
    """Follows the order in the folder that the command line names, and exits."""
    if len(sys.argv) != 2:
        print(f"usage: python -m {module} FOLDER", file=sys.stderr)
        sys.exit(2)
    folder = kind(Path(sys.argv[1]))
    order = folder.order
    if order is None:
        print(f"{folder.path / kind.ORDER} is missing or cannot be read", file=sys.stderr)
        sys.exit(2)
    # Its own folder is beside its state: a cut-over keeps the state of the new version there too.
    limit(None if order.access is None else order.access.with_own(Path(order.state_dir).parent))
    # A crash of the interpreter is told where it was started, as this process can no longer write it down.
    faulthandler.enable(os.dup(2))
    sys.exit(follow(folder, order))


def unexpected(error: BaseException, log: RunLog) -> str:
    """Notes an error that nobody thought of with its trace; what to say of it."""
    trace = "".join(traceback.format_exception(error))
    log.write(LogLine(utc_now(), "ERROR", "penstock", f"{type(error).__name__}: {error}", None, trace))
    return hide(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")


def load_ordered(file: str, folder: str) -> PipelineFile:
    """The pipeline in a file; relative paths start in the folder, where its modules lie too."""
    base = Path(folder)
    sys.path.insert(0, str(base))
    try:
        with noting(_text(file)):
            return replace(load(file), base=base)
    finally:
        sys.path.remove(str(base))


def _text(file: str) -> str:
    try:
        return Path(file).read_text("utf-8", "replace")
    except OSError:
        return ""


def in_words(problem: Problem) -> str:
    place = f"{problem.location}: " if problem.location else ""
    return f"{place}{problem.message}{f' {problem.hint}' if problem.hint else ''}"
