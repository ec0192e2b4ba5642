"""The page of capacity scenarios, and the picture of a machine in one of them."""

from __future__ import annotations

from pathlib import Path

from penstock.capacity import scenario as parts
from penstock.capacity.estimate import estimate
from penstock.capacity.picture import picture_of
from penstock.capacity.svg import as_svg
from penstock.capacity.units import ByteSize, Count, DiskSpeed, NetworkSpeed, RowRate, Share
from penstock.docs.fields import default, type_in_words
from penstock.docs.markdown import NOTE, doc, table
from penstock.frontends.scenario import read_scenario
from penstock.spec.fields import Config

_SECTIONS: tuple[tuple[str, type[Config]], ...] = (
    ("Source", parts.Load),
    ("Steps", parts.StatefulStep),
    ("Windows", parts.Windows),
    ("Stored", parts.Stored),
    ("Checkpoints", parts.Checkpoints),
    ("Machines", parts.Machines),
    ("Disks", parts.Disks),
    ("Executor", parts.Executor),
    ("Goals", parts.Goals),
)
_UNITS = (
    ("size", ByteSize),
    ("bits a second", NetworkSpeed),
    ("bytes a second", DiskSpeed),
    ("rows in a time", RowRate),
    ("number", Count),
    ("share", Share),
)


def capacity_page() -> str:
    """Every key of a scenario, and how its values are written."""
    sections = "\n".join(f"## {name}\n\n{doc(cls)}\n\n{_keys(cls)}" for name, cls in _SECTIONS)
    intro = f"""\
# Capacity scenarios

`penstock capacity FILE` reads a scenario; [Do the math](../guides/capacity.md) shows how. What decides the answer has
no default. What has one, and was not given, is listed under the answer.

{_keys(parts.Scenario)}"""
    units = table(["Type", "How it is written"], [[name, doc(cls)] for name, cls in _UNITS])
    return f"{NOTE}\n{intro}\n{sections}\n## Values\n\n{units}"


def capacity_picture(scenario: Path) -> str:
    """What `penstock capacity --svg` draws of a scenario."""
    read = read_scenario(scenario)
    return as_svg(picture_of(estimate(read.scenario, read.profile)))


def _keys(cls: type[Config]) -> str:
    rows = [
        [f"`{info.alias or name}`", type_in_words(info), default(info), info.description or ""]
        for name, info in cls.model_fields.items()
    ]
    return table(["Key", "Type", "Default", "What it is"], rows)
