"""Reads YAML into plain data, and notes where each key and value stands.

The nodes of the parser are walked here rather than by a YAML constructor: only they know their places, a repeated
key must not stop the reading, and dates stay texts as they were written.
"""

from __future__ import annotations

import re
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from penstock.errors import Location, PenstockError, Problem
from penstock.frontends.findings import describe, place_in_words
from penstock.frontends.yaml_advice import advice_for
from penstock.spec.location import Path_, Places

_TAG = "tag:yaml.org,2002:"
_NULL = re.compile(r"~|null|Null|NULL|")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_ESCAPES = {"'": re.compile("''|'$"), '"': re.compile(r'\\|"$')}
"""In quotes, up to where a written line is the text itself."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_SECTIONS_OF_NAMES = ("sources", "steps", "sinks")
_LARGEST = 20_000
"""The most values a document may have; aliases of aliases could otherwise grow without end."""
_DEEPEST = 100
_LONGEST_NUMBER = 40
"""Characters of a number: more are no number that anything here counts."""


@dataclass(frozen=True)
class Document:
    """What a file says: mappings, lists and scalars, with their places and the mistakes that did not stop reading."""

    content: dict[str, Any]
    places: Places
    problems: tuple[Problem, ...] = ()


def read_text(path: Path) -> str:
    """The file as text; raises FILE_UNREADABLE unless it is UTF-8."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        reason = error.strerror or type(error).__name__
    except UnicodeDecodeError as error:
        reason = f"byte {error.start + 1} is not UTF-8"
    raise PenstockError.of("FILE_UNREADABLE", Location(str(path)), path=path, reason=reason)


def read_document(text: str, file: str) -> Document:
    """Reads one YAML mapping; raises YAML_SYNTAX, FILE_EMPTY or SPEC_WRONG_TYPE when there is none."""
    text = text.replace("\r\n", "\n")
    lines = _Lines(text, file)
    root = _compose(text, lines)
    if root is None or (isinstance(root, ScalarNode) and not root.value):
        raise PenstockError.of("FILE_EMPTY", Location(file), path=file)
    walk = _Walk(lines)
    content = walk.value(root, ())
    if not isinstance(content, dict):
        expected = {"where": place_in_words(()), "expected": "a mapping of keys to values"}
        found = {"found": describe(content), "advice": "A pipeline file starts with `apiVersion: penstock/v1`."}
        raise PenstockError(Problem("SPEC_WRONG_TYPE", {**expected, **found}, lines.at(root.start_mark.index)))
    return Document(content, walk.places, tuple(walk.problems))


def _compose(text: str, lines: _Lines) -> Node | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # An anchor may be given anew; the nearest one before an alias counts.
            yaml = YAML(typ="safe", pure=True)
            yaml.Composer = _BoundedComposer
            return yaml.compose(text)  # type: ignore[no-any-return]
    except _TooMuch as error:
        raise PenstockError.of("YAML_SYNTAX", lines.at(error.index), reason=error.reason, advice=error.advice) from None
    except MarkedYAMLError as error:
        reason, advice, index = advice_for(error, text)
        raise PenstockError.of("YAML_SYNTAX", lines.at(index), reason=reason, advice=advice) from None
    except ReaderError as error:
        reason = f"character U+{ord(text[error.position]):04X} is not allowed"
        place = lines.at(error.position)
        raise PenstockError.of("YAML_SYNTAX", place, reason=reason, advice="Remove the control character.") from None
    except YAMLError as error:
        raise PenstockError.of("YAML_SYNTAX", Location(lines.file), reason=str(error).splitlines()[0]) from None
    except RecursionError:
        advice = "Check for brackets that are never closed."
        raise PenstockError.of("YAML_SYNTAX", Location(lines.file), reason="nested too deeply", advice=advice) from None


class _TooMuch(Exception):
    """A document is larger or deeper than any pipeline."""

    def __init__(self, index: int, reason: str, advice: str) -> None:
        super().__init__(reason)
        self.index, self.reason, self.advice = index, reason, advice


class _BoundedComposer(Composer):
    """Stops at the limits rather than after all has been read."""

    count = 0
    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self.count += 1
        if self.count > 2 * _LARGEST or self.depth >= _DEEPEST:
            at = self.parser.peek_event().start_mark.index
            if self.depth >= _DEEPEST:
                raise _TooMuch(at, "nested too deeply", "Check for brackets that are never closed.")
            raise _TooMuch(at, "too many values", "Divide it into several pipelines.")
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


class _Lines:
    """Finds line and column of an offset."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self.starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def at(self, index: int) -> Location:
        line = bisect_right(self.starts, index)
        return Location(self.file, line, index - self.starts[line - 1] + 1)

    def between(self, start: int, end: int) -> Iterator[tuple[int, str]]:
        """The lines between two offsets, each with the offset at which it starts."""
        for part in self.text[start:end].split("\n"):
            yield start, part
            start += len(part) + 1


class _Walk:
    """Turns nodes into plain data and collects places and problems on the way."""

    def __init__(self, lines: _Lines) -> None:
        self.lines = lines
        self.places = Places(lines.file)
        self.problems: list[Problem] = []
        self.open: list[int] = []
        """Identities of the nodes around the current one, to notice an alias to one of them."""
        self.count = 0

    def value(self, node: Node, path: Path_) -> Any:
        self.count += 1
        if self.count > _LARGEST or id(node) in self.open:
            reason = "an alias refers to what it is part of" if id(node) in self.open else "too many values"
            advice = "Write the repeated part out."
            raise PenstockError.of("YAML_SYNTAX", self._at(node), reason=reason, advice=advice)
        if node.start_mark.index != node.end_mark.index:  # Nothing written has no place but its key's.
            self.places.values[path] = self._at(node)
        self.open.append(id(node))
        try:
            if isinstance(node, MappingNode):
                return self._mapping(node, path)
            if isinstance(node, SequenceNode):
                return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
            assert isinstance(node, ScalarNode)
            return self._scalar(node, path)
        finally:
            self.open.pop()

    def _mapping(self, node: MappingNode, path: Path_) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if _is_merge(key_node):
                continue
            key = self._key(key_node, path)
            if key is None:
                continue
            if key in result:
                self._repeated(key, key_node, path)
                continue
            self.places.keys[(*path, key)] = self._at(key_node)
            result[key] = self.value(value_node, (*path, key))
        for key_node, value_node in node.value:
            if _is_merge(key_node):
                self._merge(value_node, path, result)
        return result

    def _merge(self, node: Node, path: Path_, into: dict[str, Any]) -> None:
        """Takes over the keys of a `<<` that are not written beside it; of several mappings the first wins."""
        for merged in node.value if isinstance(node, SequenceNode) else [node]:
            if not isinstance(merged, MappingNode):
                params = {"where": "`<<`", "expected": "an alias of a mapping", "found": describe(merged.value)}
                self._problem("SPEC_WRONG_TYPE", merged, **params)
                continue
            aside = _Walk(self.lines)
            aside.open, aside.count = [*self.open], self.count
            found = aside.value(merged, path)
            self.count = aside.count
            new = [key for key in found if key not in into]
            into.update((key, found[key]) for key in new)
            self.places.take_over_keys(aside.places, path, {key: (*path, key) for key in new})

    def _key(self, node: Node, path: Path_) -> str | None:
        """Keys are texts, as written: `on`, `1` and `null` too."""
        if isinstance(node, ScalarNode):
            return self._unicode(node, f"a key in {place_in_words(path)}")
        params = {"where": f"a key in {place_in_words(path)}", "expected": "text", "found": "a mapping or a list"}
        self._problem("SPEC_WRONG_TYPE", node, **params, advice="Put text that starts with `{` or `[` in quotes.")
        return None

    def _repeated(self, key: str, node: Node, path: Path_) -> None:
        first = self.places.of_key(*path, key)
        if path and path[-1] in _SECTIONS_OF_NAMES and len(path) <= 2:
            self._problem("SPEC_DUPLICATE_NAME", node, name=key, first=first)
        else:
            self._problem("SPEC_DUPLICATE_KEY", node, key=key, where=place_in_words(path), first=first)

    def _scalar(self, node: ScalarNode, path: Path_) -> Any:
        if node.style in ("|", ">"):
            self._place_block(node, path)
        elif node.style or "\n" in self.lines.text[node.start_mark.index : node.end_mark.index]:
            self._place_text(node, path, node.start_mark.index)
        if not (node.tag or _TAG).startswith(_TAG):
            reason = f"there is no type '{node.tag}'"
            self._problem("SPEC_BAD_VALUE", node, where=place_in_words(path), reason=reason, advice="Remove the tag.")
        written = self.lines.text[node.start_mark.index : node.end_mark.index]
        says_text = node.tag == _TAG + "str" and written.removesuffix(node.value).endswith("!!str ")
        if node.style or says_text:
            return self._unicode(node, place_in_words(path))
        value = _core_value(node.value)
        if not isinstance(value, str) and len(node.value) > _LONGEST_NUMBER:
            reason, advice = "a number has so many digits that it cannot be read", "Put it in quotes if it is a text."
            self._problem("SPEC_BAD_VALUE", node, where=place_in_words(path), reason=reason, advice=advice)
        return value

    def _unicode(self, node: ScalarNode, where: str) -> str:
        """Its text. Two escapes of JSON may stand for one character; half of one is none, and cannot be written."""
        text = str(node.value)
        if _SURROGATE.search(text) is None:
            return text
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            self._problem("SPEC_BAD_VALUE", node, where=where, reason="an escape stands for half of a character")
            return _SURROGATE.sub("?", text)

    def _place_block(self, node: ScalarNode, path: Path_) -> None:
        """The place of a `|` or `>` block is its first line of text."""
        text_start = self.lines.text.find("\n", node.start_mark.index) + 1
        if text_start == 0 or not node.value.strip():
            return
        indent = _indent(node.value, self.lines.between(text_start, node.end_mark.index))
        first_line = self.lines.at(text_start).line
        self.places.values[path] = Location(self.lines.file, first_line, indent + 1)
        if node.style == "|":
            self.places.block_texts.add(path)
        else:
            self._place_text(node, path, text_start)

    def _place_text(self, node: ScalarNode, path: Path_, start: int) -> None:
        """Notes where each written line of a folded or quoted text stands, since the text joins them."""
        parts: list[tuple[int, int, Location]] = []
        position, scanned, line_number, line_start = 0, 0, 1, 0
        for offset, line in self.lines.between(start, node.end_mark.index):
            written = line.strip()
            if node.style in _ESCAPES:
                opened = offset == node.start_mark.index
                written = _ESCAPES[node.style].split(written.partition(node.style)[2] if opened else written)[0]
            found = node.value.find(written, position)
            if not written or found < 0:
                continue
            line_number += node.value.count("\n", scanned, found)
            line_start = max(line_start, node.value.rfind("\n", scanned, found) + 1)
            scanned = found
            place = self.lines.at(offset + line.index(written))
            parts.append((line_number, found - line_start, place))
            position = found + len(written)
        self.places.text_parts[path] = tuple(parts)

    def _at(self, node: Node) -> Location:
        return self.lines.at(node.start_mark.index)

    def _problem(self, code: str, node: Node, **params: Any) -> None:
        self.problems.append(Problem(code, params, self._at(node)))


def _is_merge(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.style is None and node.value == "<<"


def _float(text: str) -> float:
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


_CORE: tuple[tuple[re.Pattern[str], Callable[[str], Any]], ...] = (
    (_NULL, lambda text: None),
    (_BOOL, lambda text: text.lower() == "true"),
    (_INT, int),
    (_OCTAL, lambda text: int(text[2:], 8)),
    (_HEX, lambda text: int(text[2:], 16)),
    (_FLOAT, _float),
)


def _core_value(text: str) -> Any:
    """A plain scalar by the core schema of YAML 1.2; anything it does not know, such as a date, is text."""
    for pattern, read in _CORE:
        if pattern.fullmatch(text):
            return read(text[:_LONGEST_NUMBER])
    return text


def _indent(text: str, lines: Iterator[tuple[int, str]]) -> int:
    """By how much a block is indented, whatever its indicator says: the written line minus the text of the line."""
    first = next((line for line in text.split("\n") if line.strip()), "")
    written = next((line for _, line in lines if line.strip()), "")
    return max(len(written) - len(first), 0)
