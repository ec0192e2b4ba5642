"""Problems that a source meets where Spark calls it: Spark passes on only the text of an error, so it holds them."""

from __future__ import annotations

import json
import re

from penstock.errors import Problem

_MARK = "PENSTOCK_PROBLEM"
_WRITTEN = re.compile(rf"\[{_MARK}\] (\{{[^\n]*\}})")


class SourceError(Exception):
    """Stops a query with a problem that the engine finds again in Spark's message."""

    def __init__(self, problem: Problem) -> None:
        params = {key: str(value) for key, value in problem.params.items()}
        super().__init__(f"[{_MARK}] {json.dumps({'code': problem.code, 'params': params})}")


def problem_in(message: str) -> Problem | None:
    """The problem that the text of an error holds."""
    found = _WRITTEN.search(message)
    if found is None:
        return None
    written = json.loads(found[1])
    return Problem(written["code"], written["params"])
