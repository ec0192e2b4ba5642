"""Runs the tests written in a pipeline file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from penstock.spec.location import PipelineFile
from penstock.spec.pipeline import TestCase
from penstock.testing.compare import differences
from penstock.testing.harness import Harness


@dataclass(frozen=True)
class CaseResult:
    """The outcome of one test: what differs, per step or sink."""

    name: str
    seconds: float
    differences: dict[str, list[str]]

    @property
    def passed(self) -> bool:
        return not any(self.differences.values())


def run_cases(file: PipelineFile, wanted: Callable[[str], bool] = lambda name: True) -> Iterator[CaseResult]:
    """All tests of a file whose name is wanted, one after another."""
    for case in file.pipeline.tests:
        if wanted(case.name):
            yield run_case(file, case)


def run_case(file: PipelineFile, case: TestCase) -> CaseResult:
    """Feeds what is given, lets event time run to its end, and compares what came out."""
    start = time.monotonic()
    sinks = {sink.name for sink in file.pipeline.sinks}
    with Harness(file, watch=[name for name in case.expect if name not in sinks]) as harness:
        for source, rows in case.given.items():
            harness.feed(source, rows)
        harness.step()
        harness.finish()
        found = {name: differences(rows, harness.rows(name)) for name, rows in case.expect.items()}
    return CaseResult(case.name, time.monotonic() - start, found)
