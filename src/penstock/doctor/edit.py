"""Changes single keys of a pipeline file in YAML and leaves every other character as it is.

The place is found by the nodes of the parser, and the text is cut there. What comes out is read again: if it says
anything else than the old text with that one key, the change is refused rather than written.
"""

from __future__ import annotations

import copy
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from penstock.doctor.findings import Edit
from penstock.errors import PenstockError
from penstock.frontends.document import read_document


class CannotEdit(Exception):
    """Why a change is not written, in words."""


def edited(text: str, edit: Edit) -> str:
    """The text of a file with one key set; lines end with `\\n`. Raises CannotEdit."""
    before = read_document(text, "").content
    wanted = _with_value(before, edit)
    if wanted == before:
        return text
    root: Any = YAML(typ="safe", pure=True).compose(text)
    changed = _changed(text, root, edit)
    try:
        after = read_document(changed, "").content
    except PenstockError:
        after = {}
    if after != wanted:
        raise CannotEdit("the key cannot be written there without changing something else")
    return changed


def _with_value(content: dict[str, Any], edit: Edit) -> dict[str, Any]:
    result = copy.deepcopy(content)
    inner: Any = result
    for key in edit.path[:-1]:
        try:
            inner = inner[key]
        except (KeyError, IndexError, TypeError):
            raise CannotEdit(f"`{key}` is not written in the file") from None
    if not isinstance(inner, dict):
        raise CannotEdit("it would not be a key of a mapping")
    inner[str(edit.path[-1])] = read_document(f"value: {edit.value}\n", "").content["value"]
    return result


def _changed(text: str, root: Node, edit: Edit) -> str:
    mapping = root
    for key in edit.path[:-1]:
        mapping = _child(mapping, key)
    if not isinstance(mapping, MappingNode):
        raise CannotEdit("it would not be a key of a mapping")
    name = str(edit.path[-1])
    for key_node, value_node in mapping.value:
        if key_node.value == name:
            return _replaced(text, key_node, value_node, edit.value)
    return _added(text, mapping, f"{name}: {edit.value}")


def _child(node: Node, key: str | int) -> Node:
    if isinstance(node, SequenceNode) and isinstance(key, int) and key < len(node.value):
        return node.value[key]  # type: ignore[no-any-return]
    if isinstance(node, MappingNode):
        for key_node, value_node in node.value:
            if key_node.value == key:
                return value_node  # type: ignore[no-any-return]
    raise CannotEdit(f"`{key}` is not written in the file")


def _replaced(text: str, key: Node, value: Node, new: str) -> str:
    if not isinstance(value, ScalarNode):
        raise CannotEdit("what stands there is no single value")
    start, end = value.start_mark.index, value.end_mark.index
    if start == end:  # Nothing is written after the colon.
        colon = text.index(":", key.end_mark.index) + 1
        return f"{text[:colon]} {new}{text[colon:]}"
    return text[:start] + new + text[end:]


def _added(text: str, mapping: MappingNode, entry: str) -> str:
    """The text with an entry behind the last one of a mapping."""
    if not mapping.value:
        return text[: mapping.start_mark.index] + f"{{{entry}}}" + text[mapping.end_mark.index :]
    end = _end_of_last(text, mapping)
    if mapping.flow_style:
        return f"{text[:end]}, {entry}{text[end:]}"
    indent = " " * mapping.value[0][0].start_mark.column
    newline = text.find("\n", end)
    if newline < 0:
        return f"{text}\n{indent}{entry}\n"
    return f"{text[: newline + 1]}{indent}{entry}\n{text[newline + 1 :]}"


def _end(text: str, node: Node) -> int:
    """The offset behind what is written of a node; the parser counts blank lines and comments after a block to it."""
    if isinstance(node, MappingNode | SequenceNode) and not node.flow_style and node.value:
        return _end_of_last(text, node)
    end = int(node.end_mark.index)
    if isinstance(node, ScalarNode) and node.style in ("|", ">"):
        return len(text[:end].rstrip())
    return end


def _end_of_last(text: str, node: MappingNode | SequenceNode) -> int:
    if isinstance(node, SequenceNode):
        return _end(text, node.value[-1])
    key, value = node.value[-1]
    empty = isinstance(value, ScalarNode) and value.start_mark.index == value.end_mark.index
    return int(key.end_mark.index) if empty else _end(text, value)
