"""Finds the rules: every one that a module below `penstock.doctor.rules` declares."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache

from penstock.doctor import rules as package
from penstock.doctor.rule import Rule


@cache
def rules() -> Mapping[str, Rule]:
    """All rules by id, sorted."""
    found: dict[str, Rule] = {}
    for info in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        module = importlib.import_module(info.name)
        for declared in vars(module).values():
            if isinstance(declared, Rule):
                if declared.id in found:
                    raise TypeError(f"there are two rules '{declared.id}'; one is in {module.__name__}")
                found[declared.id] = declared
    return dict(sorted(found.items()))
