"""Scenarios for tests: the guide's worked example, and random ones."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from penstock.capacity.scenario import Scenario

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "examples" / "capacity" / "guide.yaml"


def scenario(**parts: Any) -> Scenario:
    """The guide's worked example without its rounding; `parts` replace its own."""
    content: dict[str, Any] = {
        "source": {"rate": "1,000,000/s", "recordSize": "2 KB"},
        "steps": {"users": step()},
        "checkpoints": {"every": "1 minute", "mode": "full"},
        "machines": {"count": 5, "network": "10 Gbit/s"},
        "disks": {"attached": "network"},
        **parts,
    }
    return Scenario.model_validate(content, by_alias=True, by_name=False)


def step(**parts: Any) -> dict[str, Any]:
    windows = {"size": "5 minutes", "slide": "1 minute"}
    return {"keys": "500 million", "state": "40 bytes", "emit": "40 bytes", "windows": windows, **parts}


_sizes = st.integers(min_value=1, max_value=10_000).map("{} bytes".format)
_windows = st.tuples(st.integers(1, 3600), st.integers(1, 60)).map(
    lambda pair: {"size": f"{pair[0] * pair[1]} seconds", "slide": f"{pair[0]} seconds"}
)
_steps = st.fixed_dictionaries(
    {"keys": st.integers(1, 10**9), "state": _sizes, "emit": _sizes},
    optional={
        "windows": _windows,
        "rows": st.floats(0, 1),
        "sinks": st.integers(0, 3),
        "emits": st.sampled_from(["close", "update"]),
        "rowSize": _sizes,
        "fanOut": st.integers(1, 7),
    },
)


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    names = [f"step{at}" for at in range(draw(st.integers(1, 3)))]
    steps = {name: draw(_steps) for name in names}
    for before, after in pairwise(names):
        steps[after]["reads"] = draw(st.sampled_from(["source", before]))
    return scenario(
        source={"rate": f"{draw(st.integers(1, 10**7))}/s", "recordSize": draw(_sizes)},
        steps=steps,
        checkpoints={"every": f"{draw(st.integers(1, 600))} s", "mode": draw(st.sampled_from(["full", "changes"]))},
        disks={"attached": draw(st.sampled_from(["local", "network"])), "shuffle": draw(st.booleans())},
    )
