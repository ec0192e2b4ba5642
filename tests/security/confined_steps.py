"""Steps of a hostile coder: they try whatever `attempts.json` beside them names, and give the outcomes as rows.

Copied into the folder of a server's pipelines; it runs in the process of the run and in its Python workers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa


def read(path: str) -> str:
    with open(path, "rb") as file:
        return f"got {file.read(20)!r}"


def write(path: str) -> str:
    with open(path, "ab"):
        return "opened"


def environment(names: str) -> str:
    found = [name for name in names.split(",") if name in os.environ]
    return f"got {found}" if found else "PermissionError: none is set"


def signal(pid: str) -> str:
    os.kill(int(pid), 0)
    return "sent"


def plant(where: str) -> str:
    """Links to files that only the server may read, where the server reads; nothing to be seen of it here."""
    target, *names = where.split(",")
    for name in names:
        os.symlink(target, name)
    return "planted"


def outcomes() -> dict[str, str]:
    attempts = json.loads((Path(__file__).parent / "attempts.json").read_text("utf-8"))
    known: dict[str, Any] = {
        "read": read, "write": write, "list": lambda path: f"got {os.listdir(path)}", "environment": environment,
        "kill": signal, "plant": plant,
    }  # fmt: skip
    found = {}
    for name, (kind, what) in attempts.items():
        try:
            found[name] = str(known[kind](what))
        except OSError as error:
            found[name] = f"{type(error).__name__}: {error.strerror}"
    return found


def in_the_run(frame: Any) -> Any:
    """Tried in the process of the run itself, which writes what came of it beside this file, where it may."""
    found = json.dumps(outcomes())
    with suppress(OSError):
        (Path(__file__).parent / "in_the_run.json").write_text(found, "utf-8")
    return frame


def in_a_worker(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Tried in a worker."""
    for _ in batches:
        found = outcomes()
        yield pa.RecordBatch.from_pydict({"attempt": list(found), "outcome": list(found.values())})
