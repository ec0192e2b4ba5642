"""Building a graph: order, and what is refused and where."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.graph.documents import at, graph_of, refusals

from penstock.components.sinks.memory import Memory as MemorySink
from penstock.components.sources.memory import Memory as MemorySource
from penstock.components.steps.sql import Sql
from penstock.errors import PenstockError
from penstock.graph.build import build
from penstock.spec.location import PipelineFile, Places
from penstock.spec.pipeline import Pipeline, Sink, Source, Step
from penstock.spec.schema import Schema


def test_nodes_keep_the_order_of_the_file_where_their_inputs_allow_it() -> None:
    graph = graph_of("""
        sources:
          b: {memory: {schema: {id: string}}}
          a: {memory: {schema: {id: string}}}
        steps:
          late: {from: [early, a], union: {}}
          other: {from: b, filter: id > 1}
          early: {from: b, filter: id > 2}
        sinks:
          out: {from: late, memory: {}}
        """)

    assert list(graph.nodes) == ["b", "a", "other", "early", "late", "out"]
    assert graph.nodes["late"].inputs == ("early", "a")
    assert [graph.nodes[name].kind for name in ("a", "late", "out")] == ["source", "step", "sink"]


def test_an_unknown_input_is_shown_where_it_is_named_with_the_nearest_name() -> None:
    (problem,) = refusals("""
        sources:
          views: {memory: {schema: {id: string}}}
        steps:
          both:
            from: [views, veiws]
            union: {}
        sinks:
          out: {from: both, memory: {}}
        """)

    assert at(problem) == ("INPUT_UNKNOWN", 9, 21)
    assert (problem.params["node"], problem.params["name"]) == ("both", "veiws")
    assert problem.hint == "Did you mean 'views'?"


def test_a_step_is_not_suggested_as_its_own_input() -> None:
    (problem,) = refusals("""
        sources:
          raw: {memory: {schema: {id: string}}}
        steps:
          clean: {from: cleam, filter: id > 1}
        sinks:
          out: {from: clean, memory: {}}
        """)

    assert at(problem) == ("INPUT_UNKNOWN", 8, 19)
    assert problem.hint == "Known: raw."


def test_reading_from_a_sink_points_to_what_the_sink_stores() -> None:
    problems = refusals("""
        sources:
          views: {memory: {schema: {id: string}}}
        steps:
          again: {from: out, filter: id > 1}
        sinks:
          out: {from: views, memory: {}}
          copy:
            from: out
            memory: {}
          self: {from: self, memory: {}}
        """)

    assert [at(problem) for problem in problems] == [
        ("INPUT_UNKNOWN", 8, 19),
        ("INPUT_UNKNOWN", 12, 13),
        ("INPUT_UNKNOWN", 14, 18),
    ]
    assert "read what it stores: 'views'" in problems[0].hint
    assert problems[2].hint == "A sink reads a source or a step, not itself."


def test_a_wrong_number_of_inputs_is_shown_at_from() -> None:
    problems = refusals("""
        sources:
          a: {memory: {schema: {id: string}}}
          b: {memory: {schema: {id: string}}}
        steps:
          one: {from: [a, b], filter: id > 1}
          two: {from: a, union: {}}
        sinks:
          out: {from: one, memory: {}}
        """)

    assert [at(problem) for problem in problems] == [("INPUT_COUNT", 9, 17), ("INPUT_COUNT", 10, 17)]
    assert problems[0].message == "'one' (filter) takes one input, but `from` names 2"
    assert problems[1].message == "'two' (union) takes at least 2 inputs, but `from` names one"


def test_an_input_named_three_times_is_reported_once_at_its_first_repetition() -> None:
    (problem,) = refusals("""
        sources:
          a: {memory: {schema: {id: string}}}
          b: {memory: {schema: {id: string}}}
        steps:
          all: {from: [a, b, a, a], union: {}}
        sinks:
          out: {from: all, memory: {}}
        """)

    assert at(problem) == ("INPUT_REPEATED", 9, 24)
    assert problem.params == {"node": "all", "name": "a"}


def test_a_cycle_is_drawn_and_shown_where_its_first_step_closes_it() -> None:
    (problem,) = refusals("""
        sources:
          s: {memory: {schema: {id: string}}}
        steps:
          before: {from: s, filter: id > 1}
          a: {from: [before, c], union: {}}
          b: {from: a, filter: id > 1}
          c: {from: b, filter: id > 1}
          after: {from: c, filter: id > 1}
        sinks:
          out: {from: after, memory: {}}
        """)

    assert at(problem) == ("GRAPH_CYCLE", 9, 24)
    assert problem.params["cycle"] == "a → b → c → a"


def test_a_step_that_reads_itself_is_a_cycle() -> None:
    (problem,) = refusals("""
        sources:
          s: {memory: {schema: {id: string}}}
        steps:
          a: {from: [s, a], union: {}}
        sinks:
          out: {from: a, memory: {}}
        """)

    assert at(problem) == ("GRAPH_CYCLE", 8, 19)
    assert problem.params["cycle"] == "a → a"


def test_separate_cycles_and_other_mistakes_are_told_together_in_the_order_of_the_file() -> None:
    problems = refusals("""
        sources:
          s: {memory: {schema: {id: string}}}
        steps:
          a: {from: b, filter: id > 1}
          b: {from: a, filter: id > 1}
          c: {from: d, filter: id > 1}
          d: {from: c, filter: id > 1}
        sinks:
          out: {from: nothing, memory: {}}
        """)

    assert [(problem.code, problem.params.get("cycle")) for problem in problems] == [
        ("GRAPH_CYCLE", "a → b → a"),
        ("GRAPH_CYCLE", "c → d → c"),
        ("INPUT_UNKNOWN", None),
    ]


def _source(name: str) -> Source:
    return Source(name=name, component=MemorySource(row_schema=Schema.parse("id string")))


def _step(name: str, inputs: tuple[str, ...]) -> Step:
    return Step(name=name, inputs=inputs, component=Sql(query="SELECT 1"))


def _file(sources: tuple[Source, ...], steps: tuple[Step, ...], sinks: tuple[Sink, ...]) -> PipelineFile:
    pipeline = Pipeline(name="demo", sources=sources, steps=steps, sinks=sinks)
    return PipelineFile(pipeline, Places("p.yaml"), Path("p.yaml"))


def test_a_pipeline_without_sources_and_sinks_is_refused() -> None:
    with pytest.raises(PenstockError) as caught:
        build(_file((), (), ()))

    assert [(problem.code, problem.params["kind"]) for problem in caught.value.problems] == [
        ("PIPELINE_EMPTY", "sources"),
        ("PIPELINE_EMPTY", "sinks"),
    ]


def test_a_name_given_twice_is_refused() -> None:
    sink = Sink(name="s", input="s", component=MemorySink())

    with pytest.raises(PenstockError) as caught:
        build(_file((_source("s"),), (), (sink,)))

    assert caught.value.code == "SPEC_DUPLICATE_NAME"


@st.composite
def _acyclic(draw: st.DrawFn) -> list[tuple[str, ...]]:
    """For each of some steps n0, n1, … the earlier ones it reads; none means the source."""
    count = draw(st.integers(1, 12))
    return [
        tuple(draw(st.lists(st.sampled_from(["s", *(f"n{other}" for other in range(index))]), min_size=1, unique=True)))
        for index in range(count)
    ]


@given(_acyclic(), st.randoms(use_true_random=False))
def test_any_graph_without_a_cycle_is_built_so_that_each_node_follows_its_inputs(
    reads: list[tuple[str, ...]], random: Random
) -> None:
    steps = [_step(f"n{index}", inputs) for index, inputs in enumerate(reads)]
    random.shuffle(steps)
    sink = Sink(name="out", input="n0", component=MemorySink())

    names = list(build(_file((_source("s"),), tuple(steps), (sink,))).nodes)

    assert sorted(names) == sorted(["s", "out", *(step.name for step in steps)])
    for step in steps:
        assert all(names.index(name) < names.index(step.name) for name in step.inputs)


@given(_acyclic(), st.data())
def test_any_graph_with_a_cycle_is_refused(reads: list[tuple[str, ...]], data: st.DataObject) -> None:
    circle = data.draw(st.lists(st.sampled_from(range(len(reads))), min_size=1, unique=True))
    inputs = [list(names) for names in reads]
    for index, following in zip(circle, [*circle[1:], circle[0]], strict=True):
        inputs[following] = list(dict.fromkeys([*inputs[following], f"n{index}"]))
    steps = tuple(_step(f"n{index}", tuple(names)) for index, names in enumerate(inputs))

    with pytest.raises(PenstockError) as caught:
        build(_file((_source("s"),), steps, (Sink(name="out", input="n0", component=MemorySink()),)))

    assert {problem.code for problem in caught.value.problems} == {"GRAPH_CYCLE"}
    for problem in caught.value.problems:
        names = problem.params["cycle"].split(" → ")
        assert names[0] == names[-1]
        assert len(set(names)) == len(names) - 1
        by_name = {step.name: step.inputs for step in steps}
        assert all(before in by_name[after] for before, after in pairwise(names))
