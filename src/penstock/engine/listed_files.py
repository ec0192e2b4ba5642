"""Checks the files that Spark has listed for a batch before any of them is read.

A path was checked when the pipeline was applied and when it started. What lies there comes later: a link to a file
elsewhere, or a list of files that names others. Spark writes down what it has listed before it hands over a batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from penstock.access.limits import check_files, current
from penstock.components.base import Source
from penstock.components.shared.found_files import local_path
from penstock.graph.nodes import Graph

_UNSURE = 2
"""So many of the newest entries may belong to batches that have not been read, where a run begins."""


class ListedFiles:
    """The file sources of one query; each entry of their logs is checked once."""

    def __init__(self, checkpoint: Path, sources: Iterable[str]) -> None:
        self._logs = checkpoint / "sources"
        self._sources = tuple(sources)
        self._checked: dict[Path, int] = {}

    @classmethod
    def of(cls, graph: Graph, checkpoint: Path) -> ListedFiles:
        return cls(checkpoint, [node.name for node in graph.of_kind("source") if lists_files(node.component)])

    def check(self) -> None:
        """Raises PATH_NOT_ALLOWED for a file that this process may not read."""
        if current() is None or not self._sources or not self._logs.is_dir():
            return
        for name in self._sources:
            for log in (self._logs / name, *sorted(self._logs.glob(f"{name}_VIA_*"))):
                if log.is_dir():
                    self._check_log(log, name)

    def _check_log(self, log: Path, source: str) -> None:
        numbers = {int(item.name.split(".")[0]): item for item in log.iterdir() if item.name.split(".")[0].isdigit()}
        newest = max(numbers, default=-1)
        known = self._checked.get(log, newest - _UNSURE)
        for number in sorted(number for number in numbers if number > known):
            check_files(_files(numbers[number], known), f"source '{source}'")
        self._checked[log] = newest


def lists_files(component: object) -> bool:
    return isinstance(component, Source) and component.lists_files


def _files(entry: Path, after: int) -> Iterator[str]:
    """A compacted entry repeats the ones before it, with their numbers."""
    for line in entry.read_text("utf-8").splitlines()[1:]:
        file = json.loads(line)
        if file.get("batchId", after + 1) > after:
            yield local_path(file["path"])
