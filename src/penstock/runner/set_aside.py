"""Reads what a pipeline has set aside, the newest first, where Penstock keeps it itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from penstock.components.base import Component
from penstock.components.shared.manifests import FOLDER, Manifest, spans, visible
from penstock.components.shared.storage import LocalStorage
from penstock.engine.again import kept_letters
from penstock.engine.statedir import read_identity, refuse_foreign
from penstock.errors import PenstockError
from penstock.spec.fields import Config
from penstock.spec.location import PipelineFile

_LONGEST = 4000
"""Characters of a text that are shown."""


def dead_letters(file: PipelineFile, state: Path, most: int) -> dict[str, Any]:
    """The newest dead letters, and how many can be fed back to each node."""
    _refuse_missing(file, state)
    kept = {node.name: _rows(kept_letters(state / "spool", node.name)) for node in file.pipeline.nodes()}
    items = [
        {
            "node": letter.get("source"),
            "batch": letter.get("batch_id"),
            "stage": letter.get("stage"),
            "error": _cut(letter.get("error")),
            "raw": _cut(letter.get("raw")),
            "place": letter.get("place"),
            "seenAt": letter.get("seen_at"),
        }
        for letter in _newest(state / "dead", file.pipeline.dead_letters, most)
    ]
    stored = _name(file.pipeline.dead_letters)
    return {"items": items, "storedIn": stored, "replayable": {name: rows for name, rows in kept.items() if rows}}


def late_rows(file: PipelineFile, state: Path, most: int) -> dict[str, Any]:
    """The newest late rows that were set aside."""
    _refuse_missing(file, state)
    declared = file.pipeline.late.sink
    items = [
        {
            "node": row.get("late_step"),
            "batch": row.get("late_batch"),
            "lateByMs": row.get("late_by_ms"),
            "row": {key: _cut(value) for key, value in row.items() if not key.startswith("late_")},
        }
        for row in _newest(state / "late", declared, most)
    ]
    return {"items": items, "storedIn": _name(declared)}


def _name(declared: Config | None) -> str | None:
    return declared.name if isinstance(declared, Component) else None


def _refuse_missing(file: PipelineFile, state: Path) -> None:
    refuse_foreign(state, file.pipeline.name)
    if read_identity(state) is None:
        raise PenstockError.of("STATE_MISSING", path=state, name=file.pipeline.name)


def _rows(files: list[Path]) -> int:
    from pyarrow import parquet

    return sum(parquet.read_metadata(file).num_rows for file in files)


def _newest(folder: Path, declared: Config | None, most: int) -> list[dict[str, Any]]:
    """Rows of whole batches; none if the pipeline names a sink of its own for them."""
    if isinstance(declared, Component):
        return []
    # A node that sets rows aside beside others has a folder of its own.
    roots = [root for root in (folder, *sorted(folder.glob("*"))) if (root / FOLDER).is_dir()]
    found = [pair for root in roots for pair in islice(_committed(root), most)]
    return [row for _, row in sorted(found, key=lambda pair: -pair[0])[:most]]


def _committed(root: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a `files` sink with the last batch of those they lie with, the newest first."""
    store = LocalStorage(root)
    for span in reversed(visible(spans(store.names(FOLDER)))):
        manifest = store.read(span.path)
        if manifest is None:
            continue
        for file in reversed(Manifest.from_json(manifest).files):
            try:
                lines = (root / file.path).read_text("utf-8").splitlines()
            except FileNotFoundError:
                continue  # It has just been merged with others.
            yield from ((span.last, json.loads(line)) for line in reversed(lines) if line.strip())


def _cut(value: Any) -> Any:
    return f"{value[:_LONGEST]}…" if isinstance(value, str) and len(value) > _LONGEST else value
