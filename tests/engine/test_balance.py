"""The counts of a batch add up, or it is said where they do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.engine.balance import Imbalance, expected, imbalances
from penstock.engine.ledger import BatchEntry

if TYPE_CHECKING:
    from tests.conftest import Project

PIPELINE = """
    sources:
      a: {memory: {schema: {id: int, kind: string}}}
      b: {memory: {schema: {id: int, kind: string}}}
    steps:
      kept: {from: a, filter: id > 0}
      both: {from: [kept, b], union: {}}
      named: {from: both, select: {id: id, kind: kind}}
      counted: {from: named, sql: "SELECT kind, id FROM named"}
      split: {from: named, route: {by: kind, to: {clicks: click, views: view}}}
    sinks:
      all: {from: named, memory: {}}
      some: {from: counted, memory: {}}
      clicks: {from: split.clicks, memory: {}}
      views: {from: split.views, memory: {}}
"""


def entry(**changes: dict[str, int]) -> BatchEntry:
    counts: dict[str, dict[str, int]] = {
        "rows_in": {"a": 10, "b": 5},
        "rows_dead": {"a": 1, "all": 2},
        "rows_out": {"all": 9, "some": 3, "clicks": 4, "views": 3},
        "filtered": {"kept": 3, "split": 4},
    }
    return BatchEntry(0, 1, **{**counts, **changes})


def test_counts_that_add_up_are_balanced(project: Project) -> None:
    graph = project.build(PIPELINE)
    found = {name: expected(graph, entry(), name) for name in ("a", "b", "kept", "both", "named", "counted", "split")}
    assert found == {"a": 9, "b": 5, "kept": 6, "both": 11, "named": 11, "counted": None, "split": 7}
    assert imbalances(graph, entry()) == []


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"rows_out": {"all": 8, "clicks": 4, "views": 3}}, [Imbalance("all", 11, 10)]),
        ({"rows_in": {"a": 11, "b": 5}}, [Imbalance("all", 12, 11), Imbalance("split", 8, 7)]),
        ({"filtered": {"kept": 3, "split": 5}}, [Imbalance("split", 6, 7)]),
        ({"rows_dead": {"a": 1}}, [Imbalance("all", 11, 9)]),
    ],
)
def test_counts_that_do_not_are_told_with_their_place(
    project: Project, changes: dict[str, dict[str, int]], wrong: list[Imbalance]
) -> None:
    assert imbalances(project.build(PIPELINE), entry(**changes)) == wrong


def test_an_imbalance_says_what_is_wrong() -> None:
    assert str(Imbalance("all", 1200, 7)) == "'all' has 7 rows, 1,200 were expected"
