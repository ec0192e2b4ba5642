"""Pipelines in YAML."""

from __future__ import annotations

from pathlib import Path

from penstock.frontends.assemble import assemble
from penstock.frontends.document import read_document, read_text
from penstock.spec.location import PipelineFile


def load_yaml(path: Path) -> PipelineFile:
    """The pipeline of a YAML file; raises one error with everything that is wrong in it."""
    return parse_yaml(read_text(path), path)


def parse_yaml(text: str, path: Path) -> PipelineFile:
    """The pipeline of a YAML text; `path` is where it stands, or would stand."""
    document = read_document(text, str(path))
    return PipelineFile(assemble(document.content, document.places, document.problems), document.places, path)
