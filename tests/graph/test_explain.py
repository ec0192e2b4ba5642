"""What `explain` shows, to the letter."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.graph.documents import graph_of

from penstock.errors import Location, Problem
from penstock.graph.explain import as_json, as_mermaid, as_text
from penstock.graph.lineage import lineage
from penstock.graph.nodes import Analysis, Graph, NodeFacts, Stateful, Watermark

SQL = "SELECT window.start AS start, page, count(*) AS n FROM views GROUP BY window(ts, '1 minute'), page"
BODY = f"""
sources:
  eu: {{memory: {{schema: {{ts: timestamp, page: string}}}}, eventTime: {{column: ts}}}}
  us: {{memory: {{schema: {{ts: timestamp, page: string}}}}, eventTime: {{column: ts}}}}
steps:
  views: {{from: [eu, us], union: {{}}}}
  per_page: {{from: views, sql: "{SQL}"}}
  busy: {{from: per_page, filter: n > 10}}
sinks:
  all: {{from: per_page, memory: {{}}}}
  end: {{from: busy, console: {{}}}}
"""
ROWS = {"ts": "timestamp", "page": "string"}
COUNTS = {"start": "timestamp", "page": "string", "n": "bigint"}
MARK = Watermark("ts", 10_000)


@pytest.fixture
def graph() -> Graph:
    return graph_of(BODY)


@pytest.fixture
def analysis(graph: Graph) -> Analysis:
    columns = {"eu": ROWS, "us": ROWS, "views": ROWS, "per_page": COUNTS, "all": COUNTS}
    facts = {name: NodeFacts(found, MARK if found is ROWS else None) for name, found in columns.items()}
    facts["per_page"] = NodeFacts(COUNTS, None, (Stateful("window aggregate", ("window", "page")),))
    return Analysis(facts, trunk=("per_page",), lineage=lineage(graph, columns))


def test_text_draws_the_graph_with_what_is_known(graph: Graph, analysis: Analysis) -> None:
    assert as_text(graph, analysis) == (
        """\
demo: 2 sources, 3 steps, 2 sinks

●    eu  [source memory]
│      columns: ts timestamp, page string
│      watermark: ts − 10 seconds
│
│ ●  us  [source memory]
│ │    columns: ts timestamp, page string
│ │    watermark: ts − 10 seconds
│ │
○─╯  views  [step union] ← eu, us
│      columns: ts timestamp, page string
│      watermark: ts − 10 seconds
│
○    per_page  [step sql] ← views
│      columns: start timestamp, page string, n bigint
│      keeps state: window aggregate by window, page (Spark's own operator)
│      start ← views.ts
│      n ← no column
│      as in views: page
│      ═ the streaming query ends here; what follows runs on its batches
│
├─○  busy  [step filter] ← per_page
│ │    columns: unknown
│ │
■ │  all  [sink memory] ← per_page
  │    columns: start timestamp, page string, n bigint
  │
  ■  end  [sink console] ← busy
       columns: unknown

one streaming query, ends at: per_page
output mode: append: rows leave when they are final
"""
    )


def test_rails_cross_and_end_where_they_are_last_read() -> None:
    graph = graph_of("""
        sources:
          a: {memory: {schema: {id: string}}}
          b: {memory: {schema: {id: string}}}
          c: {memory: {schema: {id: string}}}
        steps:
          ac: {from: [a, c], union: {}}
          abc: {from: [a, b, ac], union: {}}
        sinks:
          x: {from: b, memory: {}}
          y: {from: abc, memory: {}}
        """)
    text = as_text(graph, Analysis({}, trunk=("b", "abc"), output_mode="update"))

    assert [line for line in text.splitlines() if "[" in line] == [
        "●      a  [source memory]",
        "│ ●    b  [source memory]",
        "│ │ ●  c  [source memory]",
        "├─│─○  ac  [step union] ← a, c",
        "○─┼─╯  abc  [step union] ← a, b, ac",
        "│ ■    x  [sink memory] ← b",
        "■      y  [sink memory] ← abc",
    ]
    assert "═ the streaming query ends here (and at abc)" in text
    assert "output mode: update: a later row replaces" in text


def test_long_lists_are_broken_between_columns(graph: Graph) -> None:
    wide = {f"column_{number}": "struct<a:int, b:int>" for number in range(6)}
    text = as_text(graph, Analysis({"eu": NodeFacts(wide)}), width=80)

    assert text.splitlines()[3:6] == [
        "│      columns: column_0 struct<a:int, b:int>, column_1 struct<a:int, b:int>,",
        "│               column_2 struct<a:int, b:int>, column_3 struct<a:int, b:int>,",
        "│               column_4 struct<a:int, b:int>, column_5 struct<a:int, b:int>",
    ]


def test_problems_stand_below_the_picture(graph: Graph, analysis: Analysis) -> None:
    problem = Problem("STEP_UNUSED", {"kind": "step", "name": "busy"}, Location("p.yaml", 11, 3))

    assert as_text(graph, analysis, [problem]).endswith(f"\n\n{problem}\n")
    assert as_json(graph, analysis, [problem])["problems"] == [problem.as_dict()]


@pytest.mark.parametrize(("kernel", "by"), [(True, "(Penstock kernel)"), (False, "(Spark's own operator)")])
def test_it_is_said_who_keeps_state(graph: Graph, kernel: bool, by: str) -> None:
    facts = {"per_page": NodeFacts(COUNTS, None, (Stateful("window", ("page", "window")),), kernel)}

    assert f"keeps state: window by page, window {by}\n" in as_text(graph, Analysis(facts))
    nodes = {node["name"]: node for node in as_json(graph, Analysis(facts))["nodes"]}
    assert (nodes["per_page"]["kernel"], nodes["busy"]["kernel"]) == (kernel, None)


def test_mermaid_draws_nodes_and_labelled_edges(graph: Graph, analysis: Analysis) -> None:
    assert as_mermaid(graph, analysis) == (
        """\
flowchart LR
    n_eu(["eu<br/>memory"])
    n_us(["us<br/>memory"])
    n_views["views<br/>union"]
    n_per_page["per_page<br/>sql<br/>window aggregate by window, page"]
    n_busy["busy<br/>filter"]
    n_all[("all<br/>memory")]
    n_end[("end<br/>console")]
    n_eu -->|"2 columns, ts − 10 seconds"| n_views
    n_us -->|"2 columns, ts − 10 seconds"| n_views
    n_views -->|"2 columns, ts − 10 seconds"| n_per_page
    n_per_page ==>|"3 columns"| n_busy
    n_per_page ==>|"3 columns"| n_all
    n_busy -->|"unknown"| n_end
"""
    )


def test_mermaid_escapes_what_it_would_read_as_its_own(graph: Graph) -> None:
    facts = {"eu": NodeFacts({'a"|<b>#`': "int"}, Watermark('a"|<b>#`', 0))}

    lines = as_mermaid(graph, Analysis(facts)).splitlines()

    assert lines[8] == '    n_eu -->|"1 column, a#quot;#124;#lt;b#gt;#35;#96; − 0 milliseconds"| n_views'


def test_json_holds_the_same_and_null_for_what_is_unknown(graph: Graph, analysis: Analysis) -> None:
    shown = json.loads(json.dumps(as_json(graph, analysis)))
    nodes = {node["name"]: node for node in shown["nodes"]}

    assert (shown["pipeline"], shown["outputMode"], shown["queryEndsAt"]) == ("demo", "append", ["per_page"])
    assert nodes["eu"]["watermark"] == {"column": "ts", "delay": "10 seconds", "delayMillis": 10_000}
    assert nodes["per_page"] == {
        "name": "per_page",
        "kind": "step",
        "component": "sql",
        "from": ["views"],
        "columns": [{"name": name, "type": kind} for name, kind in COUNTS.items()],
        "watermark": None,
        "state": [{"operator": "window aggregate", "keys": ["window", "page"]}],
        "kernel": False,
        "lineage": {"start": ["views.ts"], "page": ["views.page"], "n": []},
        "location": {"file": "p.yaml", "line": 10, "column": 5},
    }
    assert [nodes["end"][part] for part in ("columns", "watermark", "state", "lineage")] == [None] * 4


@given(st.lists(st.sets(st.integers(0, 7), min_size=1), min_size=1, max_size=8))
def test_any_graph_is_drawn_with_every_node_once_and_no_rail_left_open(reads: list[set[int]]) -> None:
    steps = []
    for index, inputs in enumerate(reads):
        names = ["s", *(f"n{earlier}" for earlier in range(index))]
        chosen = list(dict.fromkeys(names[number % len(names)] for number in sorted(inputs)))
        steps.append(f"  n{index}: {{from: [{', '.join(chosen)}], sql: SELECT 1}}")
    source = "sources:\n  s: {memory: {schema: {id: string}}}\n"
    sinks = f"sinks:\n  out: {{from: n{len(reads) - 1}, memory: {{}}}}\n"
    graph = graph_of(source + "steps:\n" + "\n".join(steps) + "\n" + sinks)

    lines = as_text(graph, Analysis({})).splitlines()

    heads = [line for line in lines if "  [" in line]
    assert len(heads) == len(reads) + 2
    for node, head in zip(graph.nodes.values(), heads, strict=True):
        drawing = head.split(f"{node.name}  [")[0]
        assert sum(drawing.count(mark) for mark in "●○■") == 1
    assert not any(mark in line for mark in "│├" for line in lines[-4:-2])
