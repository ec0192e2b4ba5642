"""Runs the tests written in a pipeline file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from penstock.errors import PenstockError, Problem, did_you_mean
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
        _check_columns(harness, file, case)
        for source, rows in case.given.items():
            harness.feed(source, rows)
        harness.step()
        harness.finish()
        found = {name: differences(rows, harness.rows(name)) for name, rows in case.expect.items()}
    return CaseResult(case.name, time.monotonic() - start, found)


def _check_columns(harness: Harness, file: PipelineFile, case: TestCase) -> None:
    """Raises if a test names a column that is not there: a misspelt one would otherwise be ignored or never match."""
    index = file.pipeline.tests.index(case)
    columns = harness.columns()
    problems = []
    for part, nodes in (("given", case.given), ("expect", case.expect)):
        for node, rows in nodes.items():
            known = columns[node]
            for column in dict.fromkeys(column for row in rows for column in row if column not in known):
                params = {"test": case.name, "column": column, "node": node, "suggestion": did_you_mean(column, known)}
                place = file.places.of("spec", "tests", index, part, node)
                problems.append(Problem("TEST_COLUMN_UNKNOWN", params, place))
    if problems:
        raise PenstockError(problems)
