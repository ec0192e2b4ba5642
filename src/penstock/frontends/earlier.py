"""A pipeline as it was declared earlier, and what is known of the state it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock.errors import PenstockError
from penstock.frontends.assemble import assemble
from penstock.graph.build import build
from penstock.graph.changes import Facts
from penstock.graph.nodes import Graph
from penstock.reports.version import Version
from penstock.spec.location import PipelineFile, Places


def declared(document: Mapping[str, Any], now: PipelineFile) -> Graph | None:
    """A pipeline as it was declared earlier, beside the file of now; None if this Penstock cannot read it any more."""
    try:
        pipeline = assemble(document, Places("earlier"))
        # Its file may say something else by now, and is not to be taken for it.
        path = now.path.with_name(f".{now.path.name}.earlier")
        return build(replace(now, pipeline=pipeline, places=Places("earlier"), path=path))
    except PenstockError:
        return None


def facts_of(version: Version | None, partitions: int | None = None) -> Facts:
    """What a plan may know of a state."""
    if version is None:
        return Facts(partitions=partitions)
    return Facts(frozenset(version.stateful), partitions, frozenset(version.layouts))
