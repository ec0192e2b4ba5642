"""Run as a process of its own: tries out pipelines that somebody is writing; a question a line, an answer a line.

The first question starts Spark, which stays for the next ones.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from penstock.access.limits import Access, limited
from penstock.engine.jars import obtainable, sets_for
from penstock.engine.stage.choose import analyse_declared
from penstock.errors import PenstockError, Problem
from penstock.frontends.examine import Examined, examined
from penstock.frontends.load import load
from penstock.frontends.sql import parse_sql
from penstock.frontends.yaml import parse_yaml
from penstock.graph.explain import as_json
from penstock.graph.lineage import lineage
from penstock.graph.nodes import Graph
from penstock.graph.validate import World
from penstock.reports.codec import read
from penstock.spec.location import PipelineFile
from penstock.spec.secrets import hide
from penstock.testing.preview import Samples, preview
from penstock.testing.session import shared_session

_SAMPLES = Samples()


def _read(asked: Mapping[str, Any]) -> PipelineFile:
    """The file, whose relative paths start in the folder of the server."""
    shown, kind, text = Path(asked["path"]), asked["kind"], str(asked["text"])
    at = Path(asked["folder"], f"pipeline.{kind}")
    if kind == "py":
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
            path = Path(folder, "pipeline.py")
            path.write_text(text, "utf-8")
            read = load(path)
        return PipelineFile(read.pipeline, read.places, at)
    read = parse_sql(text, shown) if kind == "sql" else parse_yaml(text, shown)
    return PipelineFile(read.pipeline, read.places, at)


def _explain(found: Examined, asked: Mapping[str, Any]) -> dict[str, Any]:
    graph = _sound(found)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as spool:
        analysed = analyse_declared(shared_session(obtainable(sets_for(graph.file.pipeline))), graph, Path(spool))
        columns = {name: facts.columns for name, facts in analysed.analysis.facts.items()}
        analysis = replace(analysed.analysis, lineage=lineage(graph, columns))
        told = [*found.problems, *(problem for problem in analysed.problems if problem not in found.problems)]
        return as_json(graph, analysis, told)


def _preview(found: Examined, asked: Mapping[str, Any]) -> dict[str, Any]:
    graph = _sound(found)
    limits = {"rows": int(asked["rows"]), "seconds": float(asked["seconds"])}
    return dataclasses.asdict(preview(graph, asked["node"], **limits, samples=_SAMPLES, fresh=asked["fresh"]))  # type: ignore[arg-type]


def _sound(found: Examined) -> Graph:
    if found.graph is None or not found.graph.nodes:
        raise PenstockError(found.problems or [Problem("PIPELINE_EMPTY", {"kind": "sources"})])
    return found.graph


_VERBS: Mapping[str, Callable[[Examined, Mapping[str, Any]], dict[str, Any]]] = {
    "explain": _explain,
    "preview": _preview,
}


def answer(line: str) -> dict[str, Any]:
    """The answer to one question, or why there is none."""
    asked = json.loads(line)
    try:
        with limited(read(Access, json.dumps(asked["access"]))):
            found = examined(lambda: _read(asked), World.CLOSED)
            return {"answer": _VERBS[asked["verb"]](found, asked)}
    except PenstockError as error:
        return {"problems": [problem.as_dict() for problem in error.problems]}
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        return {"problems": [Problem("BENCH_FAILED", {"reason": reason}).as_dict()]}


def serve(questions: IO[str], answers: IO[str]) -> None:
    for line in questions:
        answers.write(hide(json.dumps(answer(line), default=str)) + "\n")
        answers.flush()


def main() -> None:
    # What pipelines print is not the answer.
    stdout = os.dup(1)
    os.dup2(2, 1)
    with os.fdopen(stdout, "w", encoding="utf-8") as answers:
        serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
