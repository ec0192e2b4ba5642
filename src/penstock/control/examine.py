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


def examined(path: Path) -> dict[str, Any]:
    """The pipeline as a document, or what is wrong with the file."""
    from penstock.errors import PenstockError
    from penstock.frontends.load import load
    from penstock.spec.dump import as_document

    try:
        return {"document": as_document(load(path).pipeline)}
    except PenstockError as error:
        return {"problems": [problem.as_dict() for problem in error.problems]}


def main() -> None:
    # What the file prints is not the answer.
    answer = os.dup(1)
    os.dup2(2, 1)
    found = json.dumps(examined(Path(sys.argv[1])), default=str)
    with os.fdopen(answer, "w", encoding="utf-8") as out:
        out.write(found)


if __name__ == "__main__":
    main()
