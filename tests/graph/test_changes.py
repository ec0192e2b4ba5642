"""What a change of a pipeline costs, and which state goes on."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import PenstockError
from penstock.frontends.yaml import parse_yaml
from penstock.graph.build import build
from penstock.graph.changes import Facts, Plan, Stage, plan, same_ones
from penstock.graph.flow import flow, origins
from penstock.graph.nodes import Graph
from penstock.spec.fields import Change

BASE = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {name: p}
spec:
  sources:
    s: {memory: {schema: {id: long, user: string, ts: timestamp}}, eventTime: {column: ts}}
  steps:
    clean: {from: s, filter: id > 1}
    per_minute: {from: clean, window: {size: 1 minute, by: [user], values: {n: count(*)}}}
    recent: {from: clean, rolling: {by: [user], over: 5 minutes, values: {seen: count(id)}}}
    users: {from: clean, sql: "SELECT user, count(*) AS n FROM clean GROUP BY user"}
  sinks:
    a: {from: per_minute, memory: {}}
    b: {from: recent, memory: {}}
    c: {from: users, memory: {key: [user]}}
"""
STATEFUL = frozenset({"per_minute", "recent", "users"})
GRAFT = (Stage.STOP, Stage.SAVEPOINT, Stage.GRAFT, Stage.START)
RESTART = (Stage.STOP, Stage.START)


def graph(text: str) -> Graph:
    return build(parse_yaml(text, Path("p.yaml")))


def changed(*pairs: tuple[str, str]) -> Plan:
    text = BASE
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return plan(graph(BASE), graph(text), Facts(STATEFUL, 4))


@pytest.mark.parametrize(
    ("old", "new", "cost", "lost", "stages"),
    [
        ("name: p}", "name: p, labels: {team: a}}", Change.NOTHING, (), ()),
        ("id > 1", "id > 2", Change.RESTART, (), RESTART),
        ("column: ts}", "column: ts, maxDelay: 1 hour}", Change.RESTART, (), RESTART),
        ("{n: count(*)}", "{n: count(*), most: max(id)}", Change.RESTART, (), RESTART),
        ("{n: count(*)}", "{rows: count(*)}", Change.RESTART, (), RESTART),
        ("{n: count(*)}}", "{n: count(*)}, having: n > 1}", Change.RESTART, (), RESTART),
        ("{n: count(*)}}", "{n: count(*)}, emit: update}", Change.LOSES_STATE, ("per_minute",), GRAFT),
        ("size: 1 minute", "size: 2 minutes", Change.LOSES_STATE, ("per_minute",), GRAFT),
        ("by: [user], values", "by: [id], values", Change.LOSES_STATE, ("per_minute",), GRAFT),
        ("{seen: count(id)}", "{seen: count(id), rows: count(*)}", Change.RESTART, (), RESTART),
        ("{seen: count(id)}", "{seen: count(id), ids: sum(id)}", Change.LOSES_STATE, ("recent",), GRAFT),
        ("over: 5 minutes", "over: 6 minutes", Change.LOSES_STATE, ("recent",), GRAFT),
        ("count(*) AS n FROM", "max(id) AS n FROM", Change.LOSES_STATE, ("users",), GRAFT),
        ("  sinks:", "  state: {partitions: 4}\n  sinks:", Change.NOTHING, (), ()),
        ("  sinks:", "  state: {partitions: 8}\n  sinks:", Change.RESCALE, (),
         (Stage.STOP, Stage.SAVEPOINT, Stage.RESCALE, Stage.START)),
        ("    b: {from: recent, memory: {}}", "    bb: {from: recent, memory: {}, renamedFrom: b}",
         Change.RESTART, (), GRAFT),
        ("  sinks:\n", "    last: {from: clean, latest: {by: [user]}}\n  sinks:\n    d: {from: last, memory: {}}\n",
         Change.BOOTSTRAP, (), GRAFT),
        ("    a: {from: per_minute, memory: {}}\n", "", Change.RESTART, (), GRAFT),
    ],
)  # fmt: skip
def test_a_change_costs_what_its_state_needs(
    old: str, new: str, cost: Change, lost: tuple[str, ...], stages: tuple[Stage, ...]
) -> None:
    found = changed((old, new))
    assert (found.cost, found.lost, found.stages) == (cost, lost, stages)


def test_a_step_that_is_gone_loses_its_state_unless_it_is_only_called_otherwise() -> None:
    rename = (("    recent: {from: clean,", "    lately: {from: clean,"), ("{from: recent", "{from: lately"))
    gone = changed(*rename)
    assert gone.lost == ("recent",)
    assert [(one.path, one.cost) for one in gone.changes if one.node] == [
        ("steps.recent", Change.LOSES_STATE), ("steps.lately", Change.BOOTSTRAP),
    ]  # fmt: skip
    found = changed(*rename, ("{seen: count(id)}}}", "{seen: count(id)}}, renamedFrom: recent}"))
    assert found.lost == ()
    assert found.renamed == {"lately": "recent"}
    assert found.stages == GRAFT


def test_a_source_that_is_renamed_is_the_same_in_queries_too() -> None:
    found = changed(("    clean: {from: s, filter: id > 1}", "    good: {from: s, filter: id > 1, renamedFrom: clean}"),
                    ("from: clean", "from: good"), ("FROM clean", "FROM good"))  # fmt: skip
    assert [(one.before, one.after, one.cost) for one in found.changes] == [("clean", "good", Change.RESTART)]


def test_who_was_never_there_cannot_have_been_renamed() -> None:
    with pytest.raises(PenstockError) as raised:
        changed(
            ("{n: count(*)}}}", "{n: count(*)}}, renamedFrom: per_minutes}"),
            ("per_minute: {from: clean", "minutes: {from: clean"),
            ("{from: per_minute", "{from: minutes"),
        )
    assert raised.value.code == "RENAMED_FROM"
    assert "per_minute" in str(raised.value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("filter: id > 1}", "filter: id > 1, renamedFrom: clean}"),
        ("filter: id > 1}", "filter: id > 1, renamedFrom: s}"),
        ("filter: id > 1}", "filter: id > 1, renamedFrom: Bad Name}"),
    ],
)
def test_a_name_that_is_taken_cannot_be_one_of_before(old: str, new: str) -> None:
    with pytest.raises(PenstockError) as raised:
        graph(BASE.replace(old, new))
    assert raised.value.code == "RENAMED_FROM"


def test_two_cannot_have_had_one_name() -> None:
    text = BASE.replace("filter: id > 1}", "filter: id > 1, renamedFrom: x}")
    with pytest.raises(PenstockError) as raised:
        graph(text.replace("{n: count(*)}}}", "{n: count(*)}}, renamedFrom: x}"))
    assert "'clean' says so too" in str(raised.value)


# --- random changes ---------------------------------------------------------------------------------------------


def drawn(draw: random.Random, names: list[str], earlier: dict[str, str] | None = None) -> Graph:
    """A pipeline of steps in a random order, over one or two sources."""
    kinds = {
        "w": "window: {size: 1 minute, values: {n: count(*)}}", "f": "filter: id > 1",
        "l": "latest: {by: [user]}", "d": "dedupe: {by: [id], within: 1 hour}",
    }  # fmt: skip
    order = draw.sample(names, len(names))
    steps = {}
    for name in order:
        renamed = f", renamedFrom: {earlier[name]}" if earlier and name in earlier else ""
        steps[name] = f"{{from: s, {kinds[(earlier or {}).get(name, name)[0]]}{renamed}}}"
    body = "".join(f"    {name}: {text}\n" for name, text in steps.items())
    sinks = "".join(
        f"    out_{name}: {{from: {name}, memory: {{key: [id]}}}}\n" for name in draw.sample(order, len(order))
    )
    head = BASE.split("  steps:")[0]
    return graph(f"{head}  steps:\n{body}  sinks:\n{sinks}")


def held(found: Graph) -> frozenset[str]:
    return frozenset(node.name for node in found.of_kind("step") if node.component.name != "filter")


@settings(max_examples=150)
@given(st.integers(0, 1 << 40).map(random.Random))
def test_state_is_kept_of_what_stays_and_only_of_that(draw: random.Random) -> None:
    names = [f"{kind}{number}" for kind in "wfld" for number in range(2)]
    before = drawn(draw, draw.sample(names, draw.randint(1, 6)))
    old = [step.name for step in before.file.pipeline.steps]
    stay = draw.sample(old, draw.randint(0, len(old)))
    earlier = {f"x{name}": name for name in stay if draw.random() < 0.3}
    new_names = {old: new for new, old in earlier.items()}
    fresh = [name for name in names if name not in old]
    now = [new_names.get(name, name) for name in stay] + draw.sample(fresh, draw.randint(0, len(fresh)))
    after = drawn(draw, now or ["f9"], earlier)
    found = plan(before, after, Facts(held(before)))
    gone = [name for name in old if name not in stay]
    assert set(found.lost) == {name for name in gone if name in held(before)}
    assert {new: found.kept[new] for new in found.kept if not new.startswith(("out_", "s"))} == {
        new_names.get(name, name): name for name in stay
    }
    begun = {change.node for change in found.changes if change.cost is Change.BOOTSTRAP}
    assert begun == {name for name in now if name in fresh and name[0] != "f"}
    if not found.stages:
        assert flow(before, held(before)).operators == flow(after, held(after)).operators


@settings(max_examples=60)
@given(st.integers(0, 1 << 40).map(random.Random))
def test_no_change_costs_nothing(draw: random.Random) -> None:
    names = [f"{kind}{number}" for kind in "wfld" for number in range(2)]
    before = drawn(draw, draw.sample(names, draw.randint(1, 6)))
    found = plan(before, before, Facts(held(before)))
    assert (found.changes, found.stages) == ((), ())
    assert same_ones(before.file.pipeline, before.file.pipeline) == {name: name for name in before.nodes}


def test_copies_of_a_source_are_told_by_whom_they_feed() -> None:
    found = flow(graph(BASE), STATEFUL)
    fed: dict[str, Any] = {stream.name: sorted(stream.consumers) for stream in found.streams}
    assert fed == {
        "s": ["per_minute"], "s_VIA_OUT_VIA_recent_VIA_clean": ["recent"], "s_VIA_OUT_VIA_users_VIA_clean": ["users"],
    }  # fmt: skip
    assert found.operators == ("per_minute", "recent", "users")


DIAMOND = """\
    other: {from: s, filter: id < 0}
    both: {from: [clean, other], union: {}}
    last: {from: both, latest: {by: [user]}}
  sinks:
    d: {from: last, memory: {key: [user]}}
"""


def test_two_ways_from_one_source_to_one_step_stay_two() -> None:
    text, held_ = BASE.replace("  sinks:\n", DIAMOND), STATEFUL | {"last"}
    one = graph(text)
    assert plan(one, one, Facts(held_)).stages == ()
    other = graph(
        text.replace("    other: {", "    rest: {renamedFrom: other, ").replace("clean, other", "clean, rest")
    )
    pairs = origins(flow(one, held_), flow(other, held_), plan(one, other, Facts(held_)).kept)
    assert {name: sorted(old) for name, old in pairs.items()} == {
        name: [name.replace("_VIA_rest", "_VIA_other")] for name in pairs
    }
    assert len(pairs) == 5


@settings(max_examples=100)
@given(st.integers(0, 1 << 40).map(random.Random))
def test_whatever_its_shape_a_pipeline_goes_on_with_its_own_state(draw: random.Random) -> None:
    names, lines = ["s"], []
    for number in range(draw.randint(1, 7)):
        name = f"n{number}"
        if len(names) > 1 and draw.random() < 0.4:
            lines.append(f"    {name}: {{from: [{', '.join(draw.sample(names, 2))}], union: {{}}}}\n")
        else:
            kind = draw.choice(["filter: id > 1", "latest: {by: [user]}", "dedupe: {by: [id], within: 1 hour}"])
            lines.append(f"    {name}: {{from: {draw.choice(names)}, {kind}}}\n")
        names.append(name)
    sinks = "".join(
        f"    out{number}: {{from: {draw.choice(names)}, memory: {{key: [id]}}}}\n"
        for number in range(draw.randint(1, 4))
    )
    found = graph(f"{BASE.split('  steps:')[0]}  steps:\n{''.join(lines)}  sinks:\n{sinks}")
    known = frozenset(node.name for node in found.of_kind("step") if node.component.name in ("latest", "dedupe"))
    assert plan(found, found, Facts(known)).stages == ()
    streams = [stream.name for stream in flow(found, known).streams]
    assert len(set(streams)) == len(streams)
