"""The page of components."""

from __future__ import annotations

from penstock.components.base import Component, ComponentKind, Sink
from penstock.components.registry import components
from penstock.docs.fields import fields_table, legend
from penstock.docs.markdown import NOTE, doc

_KINDS: tuple[ComponentKind, ...] = ("source", "format", "step", "sink")


def components_page() -> str:
    """Every component that comes with Penstock, by kind."""
    found = {kind: [cls for cls in components(kind).values() if is_built_in(cls)] for kind in _KINDS}
    contents = "\n".join(
        f"- {kind.capitalize()}s: " + ", ".join(f"[`{cls.name}`](#{kind}-{cls.name})" for cls in found[kind])
        for kind in _KINDS
    )
    intro = f"""\
# Components

{contents}

Each example is one entry of `sources`, `steps` or `sinks`, without its name. In Python the same components are
`ps.sources.…`, `ps.formats.…`, `ps.steps.…` and `ps.sinks.…`, and keys are written in snake case: `maxDelay` is
`max_delay`. What the types mean is said on [the page of the pipeline file](pipeline-file.md#values).

{legend()}"""
    sections = [f"## {kind.capitalize()}s\n\n" + "\n".join(map(_component_section, found[kind])) for kind in _KINDS]
    return NOTE + "\n" + "\n".join([intro, *sections])


def is_built_in(cls: type[Component]) -> bool:
    return cls.__module__.startswith("penstock.components.")


def _component_section(cls: type[Component]) -> str:
    parts = [f"### {cls.kind.capitalize()} `{cls.name}`", doc(cls), f"```yaml\n{cls.example.rstrip()}\n```"]
    if issubclass(cls, Sink):
        parts.append(f"When a run dies: {cls.guarantee[0].lower()}{cls.guarantee[1:]}")
    shorthand: str | None = getattr(cls, "shorthand", None)
    if shorthand is not None:
        key = cls.model_fields[shorthand].alias or shorthand
        parts.append(f"`{cls.name}: …` is short for `{cls.name}: {{{key}: …}}`.")
    parts.append(fields_table(cls) if cls.model_fields else "It has no settings.\n")
    return "\n\n".join(parts)
