"""Run as a process of its own: reads one pipeline file and prints what it found, as JSON.

A Python file runs the code of its author. That must not happen in the server, whose memory holds more than that author
may see.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def answer(path: Path) -> dict[str, Any]:
    """The pipeline as a document with the places of its parts, or what is wrong with the file."""
    from penstock.errors import Severity
    from penstock.frontends.examine import examined
    from penstock.frontends.load import load
    from penstock.graph.validate import World
    from penstock.spec.dump import as_document

    found = examined(lambda: load(path), World.CLOSED)
    errors = [problem.as_dict() for problem in found.problems if problem.severity is Severity.ERROR]
    if errors or found.graph is None:
        return {"problems": errors}
    file = found.graph.file
    places = [[list(key), place.line, place.column] for key, place in (file.places.keys | file.places.values).items()]
    return {"document": as_document(file.pipeline), "places": places}


def main() -> None:
    # What the file prints is not the answer.
    stdout = os.dup(1)
    os.dup2(2, 1)
    found = json.dumps(answer(Path(sys.argv[1])), default=str)
    with os.fdopen(stdout, "w", encoding="utf-8") as out:
        out.write(found)


if __name__ == "__main__":
    main()
