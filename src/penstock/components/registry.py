"""Finds components: every module below sources, formats, steps and sinks, and third parties' entry points."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import entry_points
from types import ModuleType

from penstock.components.base import Component, ComponentKind

ENTRY_POINT_GROUP = "penstock.components"
_PACKAGES: dict[ComponentKind, str] = {
    "source": "penstock.components.sources",
    "format": "penstock.components.formats",
    "step": "penstock.components.steps",
    "sink": "penstock.components.sinks",
}


@cache
def components(kind: ComponentKind) -> Mapping[str, type[Component]]:
    """All components of a kind by name, sorted."""
    found: dict[str, type[Component]] = {}
    for cls in (*_scan(_PACKAGES[kind]), *(cls for cls in _entry_points() if cls.kind == kind)):
        if cls.name in found:
            raise TypeError(f"{cls.__module__} and {found[cls.name].__module__} both define the {kind} '{cls.name}'")
        found[cls.name] = cls
    return dict(sorted(found.items()))


def all_components() -> Iterator[type[Component]]:
    for kind in _PACKAGES:
        yield from components(kind).values()


def _entry_points() -> Iterator[type[Component]]:
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        cls = entry.load()
        if not (inspect.isclass(cls) and issubclass(cls, Component)):
            raise TypeError(f"entry point {entry.name} of {ENTRY_POINT_GROUP} is not a component class")
        yield cls


def _scan(package_name: str) -> Iterator[type[Component]]:
    package = importlib.import_module(package_name)
    for module in pkgutil.iter_modules(package.__path__, package_name + "."):
        yield from _defined_in(importlib.import_module(module.name))


def _defined_in(module: ModuleType) -> Iterator[type[Component]]:
    for _, cls in inspect.getmembers(module, inspect.isclass):
        if issubclass(cls, Component) and cls.__module__ == module.__name__ and not inspect.isabstract(cls):
            yield cls
