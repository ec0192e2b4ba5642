"""What differs between two versions of a pipeline, field by field, and what each difference costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.spec.fields import Change, Config, change_of
from penstock.spec.pipeline import Pipeline, Sink, Source, Step

_Node = Source | Step | Sink
_REMOVED = {"sources": Change.LOSES_STATE, "steps": Change.LOSES_STATE, "sinks": Change.RESTART}
"""What it costs to take something away: with a source goes its position, with a step what it remembers."""


@dataclass(frozen=True)
class Difference:
    """One difference; None stands for what is not there."""

    path: str
    before: Any
    after: Any
    cost: Change


def differences(before: Pipeline, after: Pipeline) -> list[Difference]:
    """All differences, in the order of the fields; empty exactly if the pipelines are equal."""
    found: list[Difference] = []
    found += _nodes("sources", before.sources, after.sources)
    found += _nodes("steps", before.steps, after.steps)
    found += _nodes("sinks", before.sinks, after.sinks)
    found += _fields(before, after, (), without=("sources", "steps", "sinks"))
    if not found and before != after:
        # Steps in another order: nothing that they do depends on it.
        found.append(Difference("order", None, None, Change.NOTHING))
    return found


def cost(found: Sequence[Difference]) -> Change:
    """What all of them together cost: as much as the dearest."""
    return max((each.cost for each in found), key=list(Change).index, default=Change.NOTHING)


def _nodes(section: str, before: Sequence[_Node], after: Sequence[_Node]) -> Iterator[Difference]:
    old: dict[str, Config] = {node.name: node for node in before}
    new: dict[str, Config] = {node.name: node for node in after}
    for name in [*old, *(name for name in new if name not in old)]:
        path = (section, name)
        if name not in new:
            yield Difference(".".join(path), _plain(old[name]), None, _REMOVED[section])
        elif name not in old:
            yield Difference(".".join(path), None, _plain(new[name]), Change.RESTART)
        else:
            yield from _fields(old[name], new[name], path)


def _fields(before: Config, after: Config, path: tuple[str, ...], without: Sequence[str] = ()) -> Iterator[Difference]:
    cls = type(before)
    for name, info in cls.model_fields.items():
        old, new = getattr(before, name), getattr(after, name)
        if name in without or old == new:
            continue
        inner = (*path, info.alias or name)
        if name == "component":
            inner = (*path, _name(new))
        if isinstance(old, Config) and type(old) is type(new):
            yield from _fields(old, new, inner)
        elif isinstance(old, Config) and isinstance(new, Config) and name == "component":
            yield Difference(".".join((*path, "component")), _name(old), _name(new), Change.LOSES_STATE)
        else:
            yield Difference(".".join(inner), _plain(old), _plain(new), change_of(cls, name))


def _name(component: Config) -> str:
    return str(getattr(type(component), "name", type(component).__name__))


def _plain(value: Any) -> Any:
    """The value as JSON has it."""
    if isinstance(value, Config):
        return value.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
