"""Another number of partitions in the text of a pipeline file, with all else as its author wrote it."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.control.store.pipelines import Version
from penstock.errors import PenstockError
from penstock.frontends.sql import parse_sql
from penstock.frontends.yaml import parse_yaml
from penstock.spec.location import PipelineFile


def with_partitions(version: Version, partitions: int) -> str:
    """Raises PARTITIONS_DECLARED if the text cannot be changed so that it says this and nothing else."""
    if version.kind == "py":
        raise _refused(version, partitions)
    before = _parsed(version, version.text)
    place = before.places.of("spec", "state", "partitions")
    lines = version.text.splitlines(keepends=True)
    start = place.column - 1
    number = re.compile(r"\d+").match(lines[place.line - 1], start)
    if number is None:
        raise _refused(version, partitions)
    line = lines[place.line - 1]
    lines[place.line - 1] = f"{line[:start]}{partitions}{line[number.end() :]}"
    text = "".join(lines)
    state = before.pipeline.state.model_copy(update={"partitions": partitions})
    try:
        same = _parsed(version, text).pipeline == before.pipeline.model_copy(update={"state": state})
    except PenstockError:
        same = False
    if not same:
        raise _refused(version, partitions)
    return text


def _parsed(version: Version, text: str) -> PipelineFile:
    path = Path(f"{version.pipeline}.{version.kind}")
    return parse_sql(text, path) if version.kind == "sql" else parse_yaml(text, path)


def _refused(version: Version, partitions: int) -> PenstockError:
    return PenstockError.of("PARTITIONS_DECLARED", name=version.pipeline, partitions=partitions)
