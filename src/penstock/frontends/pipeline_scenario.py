"""Takes out of a pipeline what it says about its own capacity: steps with state, windows, how often it checkpoints.

How many keys there are and how large things are is nowhere in a pipeline; it has to be given.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from penstock.capacity.scenario import SOURCE
from penstock.components.base import KernelStep, Step
from penstock.errors import Location, PenstockError, Problem, did_you_mean
from penstock.frontends.load import load
from penstock.frontends.scenario import Draft
from penstock.graph.build import build
from penstock.graph.nodes import Graph, Node
from penstock.spec.location import Path_, Places
from penstock.spec.units import Duration

_UNKNOWN = ("sql", "python")
"""Steps of which only Spark can tell whether they keep state."""


def draft_of_pipeline(path: Path, stateful: Collection[str] = (), stateless: Collection[str] = ()) -> Draft:
    """The draft of a scenario; `stateful` are the steps of which keys are given, `stateless` those that keep nothing.

    Raises if a step may keep state and is in neither.
    """
    graph = build(load(path))
    return _Reader(graph, path, stateful, stateless).draft()


class _Reader:
    def __init__(self, graph: Graph, path: Path, stateful: Collection[str], stateless: Collection[str]) -> None:
        self.graph, self.path = graph, path
        self.places = Places(str(path))
        self.taken: list[str] = []
        self._refuse_unknown(stateful, "--keys")
        self._refuse_unknown(stateless, "--stateless")
        steps = [node for node in graph.of_kind("step") if node.part_of is None]
        unsure = [
            node
            for node in steps
            if node.component.name in _UNKNOWN and node.name not in stateful and node.name not in stateless
        ]
        if unsure:
            raise PenstockError(
                Problem(
                    "USAGE",
                    {
                        "reason": f"whether step '{node.name}' keeps state cannot be told from the file",
                        "advice": f"Give `--keys {node.name}=NUMBER`, or `--stateless {node.name}` if it keeps none.",
                    },
                    graph.location(node.name),
                )
                for node in unsure
            )
        self.kept = {
            node.name for node in steps if node.name not in stateless and (_keeps(node) or node.name in stateful)
        }

    def _refuse_unknown(self, names: Iterable[str], flag: str) -> None:
        known = [node.name for node in self.graph.of_kind("step") if node.part_of is None]
        for name in names:
            if name not in known:
                raise PenstockError.of(
                    "USAGE", reason=f"{flag}: there is no step '{name}'", advice=did_you_mean(name, known)
                )

    def draft(self) -> Draft:
        pipeline = self.graph.file.pipeline
        content: dict[str, Any] = {"source": {}, "machines": {}}
        sources = [source.name for source in pipeline.sources]
        if len(sources) > 1:
            self.taken.append(f"rate and record size are those of all sources together: {', '.join(sources)}")
        if self.kept:
            content["steps"] = {name: self._step(self.graph.nodes[name]) for name in self._in_order()}
            content["checkpoints"] = {"every": str(pipeline.run.trigger), "mode": "changes"}
            self._place(("checkpoints",), self.graph.file.places.of("spec", "run"))
            said = "" if "trigger" in pipeline.run.model_fields_set else ", which is the default"
            self.taken.append(f"a checkpoint of what has changed every {pipeline.run.trigger}: `run.trigger`{said}")
            content["disks"] = {"shuffle": True}
            self.taken.append("shuffled rows pass the disks, as Spark does it")
        through = self._sinks_of(name for name in sources)
        if through:
            content["stored"] = {"sinks": len(through)}
            self._place(("stored",), self.graph.location(through[0]))
            self.taken.append(f"rows are stored without state by {_named(through)}")
        return Draft(content, self.places, folder=self.path.parent, taken=tuple(self.taken))

    def _in_order(self) -> list[str]:
        return [name for name in self.graph.nodes if name in self.kept]

    def _step(self, node: Node) -> dict[str, Any]:
        self._place(("steps", node.name), self.graph.location(node.name))
        component, found = node.component, dict[str, Any]()
        size, slide = getattr(component, "size", None), getattr(component, "slide", None)
        if isinstance(size, Duration):
            found["windows"] = {"size": str(size)} | ({} if slide is None else {"slide": str(slide)})
            lengths = f"{size}" if slide is None else f"{size}, one every {slide}"
            self.taken.append(f"windows of '{node.name}': {lengths}")
            if getattr(component, "emit", "close") == "update":
                found["emits"] = "update"
                self.taken.append(f"rows of '{node.name}' leave whenever they change: `emit: update`")
        elif getattr(component, "gap", None) is not None:
            self.taken.append(f"sessions of '{node.name}' are counted as if each row gave a row")
        by = getattr(component, "by", None)
        if by == () and component.name == "window":
            found["keys"] = 1
            self.taken.append(f"'{node.name}' has 1 key, as it has no `by`")
        ring = getattr(component, "ring", None)
        if component.name == "geo_window" and isinstance(ring, int):
            found["fanOut"] = 1 + 3 * ring * (ring + 1)
            self.taken.append(f"each row counts for {found['fanOut']} cells in '{node.name}'")
        inputs = self._inputs_of(node)
        found["reads"] = list(inputs)
        sinks = self._sinks_of([node.name])
        found["sinks"] = len(sinks)
        stored = f"stored by {_named(sinks)}" if sinks else "stored by no sink"
        self.taken.append(f"'{node.name}' reads {_named(inputs)}; its rows are {stored}")
        return found

    def _inputs_of(self, node: Node) -> tuple[str, ...]:
        """The nearest steps with state before a node, and the source if one reaches it without them."""
        found, waiting, seen = list[str](), list(node.inputs), set[str]()
        while waiting:
            current = self.graph.nodes[waiting.pop(0)]
            name = current.part_of or current.name
            if name in seen:
                continue
            seen.add(name)
            if name in self.kept:
                found.append(name)
            elif current.kind == "source":
                found.append(SOURCE)
            else:
                waiting.extend(current.inputs)
        return tuple(dict.fromkeys(found))

    def _sinks_of(self, names: Iterable[str]) -> list[str]:
        """The sinks that store rows of some nodes, without a step with state between."""
        return list(dict.fromkeys(self._reached(names)))

    def _reached(self, names: Iterable[str]) -> Iterator[str]:
        for name in names:
            # An output of a step is a node of its own, which stands for the step.
            own = [name, *(node.name for node in self.graph.nodes.values() if node.part_of == name)]
            for reader in (reader for each in own for reader in self.graph.readers(each)):
                if reader.kind == "sink":
                    yield reader.name
                elif (reader.part_of or reader.name) not in self.kept:
                    yield from self._reached([reader.name])

    def _place(self, path: Path_, place: Location) -> None:
        self.places.keys[path] = self.places.values[path] = place


def _keeps(node: Node) -> bool:
    """Whether a step keeps state; a join with a table that is read anew keeps none."""
    component = node.component
    if getattr(component, "table", None) is not None:
        return False
    return isinstance(component, KernelStep) or (isinstance(component, Step) and bool(component.state_key()))


def _named(names: Iterable[str]) -> str:
    return " and ".join("the source" if name == SOURCE else f"'{name}'" for name in names)
