"""Savepoints as a server sees them, without the state that they are of."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.reports.savepoints import MANIFEST, SAVEPOINTS, Savepoint, to_json
from penstock.reports.version import Version


def put_savepoint(
    state: Path, name: str, document: Mapping[str, Any] | None = None, batch: int = 7, **more: Any
) -> Path:
    """A folder with a manifest, there at once as a real one is."""
    document = document or {}
    pipeline = document.get("metadata", {}).get("name", "a")
    found = Savepoint(
        name, dt.datetime.now(dt.UTC), pipeline, "lineage", 1, batch, "print", document, "0.1", "4.3",
        partitions=2, version=Version(document), **more,
    )  # fmt: skip
    hidden = state / SAVEPOINTS / f".{name}.tmp"
    hidden.mkdir(parents=True)
    (hidden / MANIFEST).write_text(to_json(found), "utf-8")
    return hidden.rename(state / SAVEPOINTS / name)


def put_state(state: Path, document: Mapping[str, Any], partitions: int = 2, stateful: tuple[str, ...] = ()) -> None:
    """As much of a state as a plan looks at: the version that ran, and a batch."""
    import json

    from penstock.reports.codec import plain

    offsets = state / "checkpoint" / "offsets"
    offsets.mkdir(parents=True, exist_ok=True)
    conf = {"conf": {"spark.sql.shuffle.partitions": str(partitions)}}
    (offsets / "0").write_text(f"v1\n{json.dumps(conf)}\n", "utf-8")
    noted = {"name": "a", "lineage": "lineage", "epoch": 1, "version": plain(Version(document, stateful))}
    (state / "pipeline.json").write_text(json.dumps(noted), "utf-8")
