"""Where a query ends whose kernels run on the batch: each source is read once, and kernels share a pass over it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.engine.stage.plan import StagePlan, stage_plan
from penstock.graph.build import build
from penstock.graph.flow import flow, origins

if TYPE_CHECKING:
    from tests.conftest import Project

    from penstock.graph.nodes import Graph

SOURCE = "{generator: {dataset: page_views, rows: 1}, eventTime: {column: ts}}"
WINDOW = "window: {size: 1 minute, values: {n: count(*)}}"
SINK = "sqlite: {path: ./out.db, table: t}"


def planned(
    project: Project, sources: str, steps: dict[str, str], sinks: dict[str, str], indirect: str = ""
) -> StagePlan:
    body = "sources:\n" + "".join(f"  {name}: {SOURCE}\n" for name in sources.split())
    body += "steps:\n" + "".join(f"  {name}: {{{text}}}\n" for name, text in steps.items())
    body += "sinks:\n" + "".join(f"  {name}: {{from: {node}, {SINK}}}\n" for name, node in sinks.items())
    kernels = [name for name, text in steps.items() if any(word in text for word in ("window", "join", "latest"))]
    return stage_plan(build(project.load(body)), kernels, indirect.split())


@pytest.mark.parametrize("count", [1, 8])
def test_windows_over_one_source_share_it(project: Project, count: int) -> None:
    steps = {f"w{number}": f"from: s, {WINDOW}" for number in range(count)}
    plan = planned(project, "s", steps, {f"o{number}": f"w{number}" for number in range(count)})
    assert plan == StagePlan(("s",), tuple(steps), frozenset(steps), frozenset())


def test_the_query_goes_on_as_long_as_nobody_else_reads(project: Project) -> None:
    steps = {"a": "from: s, filter: ms > 1", "b": "from: a, filter: ms > 2", "w": f"from: b, {WINDOW}"}
    assert planned(project, "s", steps, {"o": "w"}).floor == ("b",)
    plan = planned(project, "s", steps, {"o": "w", "raw": "a"})
    assert (plan.floor, plan.direct, plan.rows) == (("a",), frozenset(), frozenset({"a"}))


def test_rows_that_are_stored_too_are_read_once(project: Project) -> None:
    plan = planned(project, "s", {"w": f"from: s, {WINDOW}"}, {"o": "w", "raw": "s"})
    assert plan == StagePlan(("s",), ("w",), frozenset({"w"}), frozenset({"s"}))


def test_a_join_of_two_sources_reads_both_directly_and_one_of_a_source_with_itself_does_not(project: Project) -> None:
    join = "join: {with: %s, on: [user], how: inner, within: [0 seconds, 1 minute], prefix: r_}"
    plan = planned(project, "s t", {"j": f"from: s, {join % 't'}"}, {"o": "j"})
    assert (plan.floor, plan.direct) == (("s", "t"), frozenset({"j"}))
    plan = planned(project, "s", {"f": "from: s, filter: ms > 1", "j": f"from: s, {join % 'f'}"}, {"o": "j"})
    assert (plan.floor, plan.direct, plan.rows) == (("s",), frozenset(), frozenset({"s"}))


def test_a_kernel_behind_another_one_runs_after_it(project: Project) -> None:
    steps = {"w": f"from: s, {WINDOW}", "f": "from: w, filter: n > 1", "x": f"from: f, {WINDOW}"}
    plan = planned(project, "s", steps, {"o": "x"})
    assert plan == StagePlan(("s",), ("w", "x"), frozenset({"w"}), frozenset())


def test_sources_and_steps_that_no_sink_reads_are_left_out(project: Project) -> None:
    plan = planned(project, "s t", {"w": f"from: s, {WINDOW}", "x": f"from: t, {WINDOW}"}, {"o": "w"})
    assert (plan.floor, plan.kernels) == (("s",), ("w",))


def test_a_kernel_whose_input_needs_care_gets_it_from_the_batch(project: Project) -> None:
    plan = planned(project, "s", {"w": f"from: s, {WINDOW}", "x": f"from: s, {WINDOW}"}, {"o": "w", "p": "x"}, "w")
    assert (plan.direct, plan.rows) == (frozenset({"x"}), frozenset({"s"}))


def test_a_change_that_shares_a_source_moves_no_positions_where_it_is_read_once(project: Project) -> None:
    def of(steps: dict[str, str]) -> Graph:
        body = f"sources:\n  s: {SOURCE}\nsteps:\n"
        body += "".join(f"  {name}: {{{text}}}\n" for name, text in steps.items())
        body += "sinks:\n" + "".join(f"  {name}_out: {{from: {name}, {SINK}}}\n" for name in steps)
        return build(project.load(body))

    one, two = {"w": f"from: s, {WINDOW}"}, {"w": f"from: s, {WINDOW}", "x": f"from: s, {WINDOW}"}
    names = {"s": "s", "w": "w"}
    before, after = (flow(of(steps), set(steps), once=True) for steps in (one, two))
    assert [stream.name for found in (before, after) for stream in found.streams] == ["s", "s"]
    assert origins(before, after, names) == {"s": frozenset({"s"})}
    assert after.operators == ("w", "x")
    apart = flow(of(two), set(two))
    assert sorted(stream.name for stream in apart.streams) != ["s"]
