"""Run as a process of its own: answers what a server asks about the state of a pipeline, as JSON.

The question comes on standard input, with the pipeline as a document, so that no code of its author runs.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.access.limits import Access, limit
from penstock.engine.savepoints.places import folder_of, read_savepoint
from penstock.errors import PenstockError
from penstock.frontends.assemble import assemble
from penstock.reports.codec import plain, read
from penstock.reports.savepoints import refuse_bad_name
from penstock.runner.ledger import account_as_json, read_ledger, read_windows, windows_as_json
from penstock.runner.replay import ReplayResult, replay_dead, replay_late
from penstock.runner.savepoints import compared, delete
from penstock.runner.set_aside import dead_letters, late_rows
from penstock.spec.location import PipelineFile, Places

if TYPE_CHECKING:
    from penstock.runner.state import Target


def _ledger(file: PipelineFile, state: Path, asked: Mapping[str, Any]) -> Any:
    return account_as_json(read_ledger(file, state), asked["last"])


def _windows(file: PipelineFile, state: Path, asked: Mapping[str, Any]) -> Any:
    return windows_as_json(read_windows(file, state)[-asked["last"] :])


def _dead(file: PipelineFile, state: Path, asked: Mapping[str, Any]) -> Any:
    return dead_letters(file, state, asked["last"])


def _late(file: PipelineFile, state: Path, asked: Mapping[str, Any]) -> Any:
    return late_rows(file, state, asked["last"])


def _replay_dead(file: PipelineFile, state: Path, asked: Mapping[str, Any]) -> Any:
    return _replayed(replay_dead(file, state, asked["node"], dry_run=asked["dry_run"]), asked)


def _replay_late(file: PipelineFile, state: Path, asked: Mapping[str, Any]) -> Any:
    return _replayed(replay_late(file, state, asked["node"], dry_run=asked["dry_run"]), asked)


def _savepoint_diff(file: PipelineFile, state: Path, asked: Mapping[str, Any]) -> Any:
    before, after = (read_savepoint(folder_of(state) / _named(asked[key])) for key in ("savepoint", "against"))
    return plain(compared(before, after))


def _savepoint_delete(file: PipelineFile, state: Path, asked: Mapping[str, Any]) -> Any:
    name = _named(asked["savepoint"])
    if (folder_of(state) / name).is_dir():
        delete(state, name)
    return {"deleted": name}


def _state(file: PipelineFile, state: Path, asked: Mapping[str, Any]) -> Any:
    # Most questions need neither Spark nor Arrow.
    from penstock.runner.state import overview

    found = overview(_target(state, asked))
    steps = [{"step": one.step, "rows": one.rows, "bytes": one.bytes, "keptBy": one.kind} for one in found.steps]
    return {
        "batch": found.batch,
        "watermark": found.watermark_ms or None,
        "partitions": found.partitions,
        "steps": steps,
    }


def _state_of(file: PipelineFile, state: Path, asked: Mapping[str, Any]) -> Any:
    from penstock.engine.inspection.writing import plain as as_json
    from penstock.runner.state import shown

    most = int(asked["limit"])
    with shown(_target(state, asked), asked["step"], asked["key"], most + 1) as found:
        rows = [as_json(row) for table in found.tables for row in table.to_pylist()]
        return {
            "batch": found.batch,
            "watermark": found.watermark_ms or None,
            "columns": found.schema.names,
            "rows": rows[:most],
            "whole": len(rows) <= most,
        }


def _cutover(file: PipelineFile, state: Path, asked: Mapping[str, Any]) -> Any:
    from penstock.runner.cutover import status

    found, now, following = status(state, file.pipeline.name)
    return {
        "file": found.file,
        "stage": found.stage,
        "startedAt": found.started_at,
        "savepoint": found.savepoint,
        "batch": found.batch,
        "kept": dict(found.kept),
        "begun": list(found.begun),
        "stands": now.stands,
        "committed": now.committed,
        "behind": now.behind,
        "following": following,
    }


def _target(state: Path, asked: Mapping[str, Any]) -> Target:
    from penstock.runner.state import Target

    return Target(state, None if asked["savepoint"] is None else _named(asked["savepoint"]))


def _named(name: str) -> str:
    refuse_bad_name(name)
    return name


def _replayed(result: ReplayResult, asked: Mapping[str, Any]) -> Any:
    nodes = [{"node": item.step, "rows": item.rows, "tooOld": item.too_old} for item in result.steps]
    return {"running": result.running, "dryRun": asked["dry_run"], "nodes": nodes}


_VERBS: Mapping[str, Callable[[PipelineFile, Path, Mapping[str, Any]], Any]] = {
    "ledger": _ledger,
    "windows": _windows,
    "dead": _dead,
    "late": _late,
    "replay_dead": _replay_dead,
    "replay_late": _replay_late,
    "savepoint_diff": _savepoint_diff,
    "savepoint_delete": _savepoint_delete,
    "state": _state,
    "state_of": _state_of,
    "cutover": _cutover,
}


def answer(asked: Mapping[str, Any]) -> dict[str, Any]:
    places = Places(asked["name"])
    try:
        limit(read(Access, json.dumps(asked["access"])))
        file = PipelineFile(assemble(asked["document"], places), places, Path(asked["folder"], asked["name"]))
        return {"answer": _VERBS[asked["verb"]](file, Path(asked["state"]), asked)}
    except PenstockError as error:
        return {"problems": [problem.as_dict() for problem in error.problems]}


def main() -> None:
    # What libraries print is not the answer.
    stdout = os.dup(1)
    os.dup2(2, 1)
    found = json.dumps(answer(json.load(sys.stdin)), default=str)
    with os.fdopen(stdout, "w", encoding="utf-8") as out:
        out.write(found)


if __name__ == "__main__":
    main()
