"""Trees of Spark's plans and expressions, read from the JSON that Spark writes of them. Knows nothing of Spark.

Spark writes a tree as the list of its nodes, each before its children, with the number of these. Other trees stand in
the fields of a node: an expression in a plan, the plan of a subquery in an expression.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

PACKAGE = "org.apache.spark.sql."


@dataclass
class Tree:
    kind: str
    """The class, without the package that all have in common."""
    fields: dict[str, Any]
    children: list[Tree] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The class without any package."""
        return self.kind.rpartition(".")[2].rstrip("$")

    def argument(self, number: int) -> Tree | None:
        """What a call of a function is given at a place."""
        places = self.fields.get("arguments")
        if not isinstance(places, list) or number >= len(places) or not isinstance(places[number], int):
            return None
        return self.children[places[number]]

    def inside(self) -> Iterator[tuple[str, Tree | None]]:
        """The trees in its fields; None for a field whose content Spark does not write."""
        for name, value in self.fields.items():
            for found in _trees(value):
                yield name, found


def parse(text: str) -> Tree:
    """The tree of a JSON text; raises ValueError or RecursionError for what is none."""
    return _built(json.loads(text))


def _built(nodes: list[dict[str, Any]]) -> Tree:
    root: Tree | None = None
    open_: list[tuple[Tree, int]] = []
    for node in nodes:
        fields = {key: value for key, value in node.items() if key not in ("class", "num-children")}
        tree = Tree(str(node["class"]).removeprefix(PACKAGE), fields)
        if root is None:
            root = tree
        else:
            above, missing = open_.pop()
            above.children.append(tree)
            if missing > 1:
                open_.append((above, missing - 1))
        if node["num-children"]:
            open_.append((tree, int(node["num-children"])))
    if root is None or open_:
        raise ValueError("the tree is not complete")
    return root


def _trees(value: Any) -> Iterator[Tree | None]:
    if value is None:
        yield None
    elif isinstance(value, list):
        if value and isinstance(value[0], dict) and "class" in value[0]:
            yield _built(value)
        else:
            for item in value:
                yield from _trees(item)
    elif isinstance(value, dict) and "product-class" in value:
        for item in value.values():
            yield from _trees(item)
