"""What is wrong with a component, first by what is written and then by what there is, as it is asked before a run."""

from __future__ import annotations

from pathlib import Path

from penstock.components.base import CheckContext, Component, LookContext
from penstock.errors import Problem


def problems_of(component: Component, node: str, folder: Path) -> list[Problem]:
    return list(component.check(CheckContext(node))) or list(component.look(LookContext(node, folder)))
