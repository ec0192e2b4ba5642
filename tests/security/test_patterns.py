"""No regular expression of Penstock takes more than linear time, whatever text it is given.

All patterns that modules hold are found by importing every module, so that a new one is tried too. Texts are made from
each pattern's own parse tree: each repetition is pumped, and then fails to match.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from re import _constants as sre
from re import _parser
from typing import Any

import pytest

import penstock

TIMES = (12, 18, 22, 26, 30, 60, 200, 1_000, 5_000, 20_000)
"""How often a part is repeated: slowly more at first, since exponential time doubles with each."""
LONGEST = 20_000
SECONDS = 0.15
"""Linear time is about a millisecond at the largest size; quadratic time is many seconds."""
SLOW_FOR = {
    # module.name: why nobody else can choose the text
    "penstock.spec.units._PART": "texts of more than 100 characters are refused before",
}


@dataclass(frozen=True)
class Found:
    name: str
    pattern: re.Pattern[Any]
    methods: tuple[str, ...]


@cache
def patterns() -> list[Found]:
    found: dict[str, Found] = {}
    for info in pkgutil.walk_packages(penstock.__path__, "penstock."):
        if info.name.endswith("__main__") or ".migrations" in info.name:
            continue
        module = importlib.import_module(info.name)
        source = Path(inspect.getfile(module)).read_text("utf-8")
        for name, value in vars(module).items():
            for number, pattern in enumerate(_in(value)):
                key = f"{info.name}.{name}"
                methods = _methods(name, source)
                if methods:
                    found[f"{key}[{number}]" if number else key] = Found(key, pattern, methods)
    return list(found.values())


def _in(value: Any) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _in(inner)
    elif isinstance(value, list | tuple | set | frozenset):
        for inner in value:
            yield from _in(inner)


def _methods(name: str, source: str) -> tuple[str, ...]:
    """How the module uses a pattern; of one in a container or of another module it is not known, so it is matched."""
    every = ("match", "fullmatch", "search", "finditer", "findall", "sub", "split")
    used = tuple(method for method in every if re.search(rf"\b{name}\.{method}\b", source))
    return used or ("match", "fullmatch")


def pumped(pattern: re.Pattern[Any]) -> list[tuple[str, str, str]]:
    """Texts as what comes before, what is repeated, and what comes after and does not fit."""
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    tree = _parser.parse(text, pattern.flags & ~re.UNICODE if isinstance(pattern.pattern, bytes) else pattern.flags)
    pumps: list[tuple[str, str]] = []
    whole = _sample(tree, "", pumps)
    pumps += [("", one) for one in {*whole, whole} if one]
    return [(before, body, end) for before, body in dict.fromkeys(pumps) for end in ("\x00", "!", "\n", "")]


def _sample(tree: Any, before: str, pumps: list[tuple[str, str]]) -> str:
    """A short text that the tree matches; notes what its repetitions repeat, each after what stands before it."""
    text = ""
    for operator, argument in tree:
        text += _one(operator, argument, before + text, pumps)
    return text


def _one(operator: Any, argument: Any, before: str, pumps: list[tuple[str, str]]) -> str:
    if operator in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        least, most, body = argument
        samples = _alternatives(body, before, pumps)
        pumps += [(before, inner) for inner in samples if most > 10 and inner]
        return str(samples[0] * max(least, 1))
    if operator is sre.LITERAL:
        return chr(argument)
    if operator is sre.NOT_LITERAL:
        return "a" if argument != ord("a") else "b"
    if operator is sre.ANY:
        return "a"
    if operator is sre.IN:
        return _of_set(argument)
    if operator is sre.SUBPATTERN:
        return _sample(argument[-1], before, pumps)
    if operator is sre.ATOMIC_GROUP:
        return _sample(argument, before, pumps)
    if operator is sre.BRANCH:
        samples = [_sample(branch, before, pumps) for branch in argument[1]]  # All of them, for their repetitions.
        return samples[0]
    return ""  # Places and conditions take no text.


def _alternatives(body: Any, before: str, pumps: list[tuple[str, str]]) -> list[str]:
    """What each alternative of a repeated part matches."""
    if len(body) == 1 and body[0][0] is sre.SUBPATTERN:
        return _alternatives(body[0][1][-1], before, pumps)
    if len(body) == 1 and body[0][0] is sre.BRANCH:
        return [_sample(branch, before, pumps) for branch in body[0][1][1]]
    return [_sample(body, before, pumps)]


def _of_set(argument: Any) -> str:
    tried = "a0 \tA_-.,/:'\"`(){}[]<>*\\$;=\n"
    pattern = re.compile(f"[{re.escape(tried)}]")
    for each in tried:
        if pattern.match(each) and _in_set(argument, each):
            return each
    return next((chr(value[0] if isinstance(value, tuple) else value) for kind, value in argument
                 if kind in (sre.LITERAL, sre.RANGE)), "")  # fmt: skip


def _in_set(argument: Any, each: str) -> bool:
    negated, inside = False, False
    for kind, value in argument:
        if kind is sre.NEGATE:
            negated = True
        elif kind is sre.LITERAL:
            inside = inside or ord(each) == value
        elif kind is sre.RANGE:
            inside = inside or value[0] <= ord(each) <= value[1]
        elif kind is sre.CATEGORY:
            classes = {"DIGIT": each.isdigit(), "SPACE": each.isspace(), "WORD": each.isalnum() or each == "_"}
            name = str(value).removeprefix("CATEGORY_")
            inside = inside or (not classes[name[4:]] if name.startswith("NOT_") else classes[name])
    return inside != negated


def _uses(found: Found) -> Iterator[Callable[[Any], object]]:
    for method in found.methods:
        if method == "sub":
            yield lambda text: found.pattern.sub(text[:0], text)
        elif method == "finditer":
            yield lambda text: sum(1 for _ in found.pattern.finditer(text))
        else:
            yield getattr(found.pattern, method)


def slowest(found: Found) -> tuple[float, int, tuple[str, str, str] | None]:
    """The longest time, the size and parts of the first text that took too long."""
    worst = 0.0
    for parts in pumped(found.pattern):
        before, body, end = parts
        for size in (times for times in TIMES if times * len(body) <= LONGEST):
            text = before + body * size + end
            for use in _uses(found):
                took = (
                    min(_time(use, text, found) for _ in range(2)) if worst > SECONDS / 4 else _time(use, text, found)
                )
                if took > SECONDS:
                    took = min(took, _time(use, text, found))
                worst = max(worst, took)
                if took > SECONDS:
                    return took, size, parts
    return worst, 0, None


def _time(use: Callable[[Any], object], text: str, found: Found) -> float:
    given: Any = text if isinstance(found.pattern.pattern, str) else text.encode("latin-1", "replace")
    began = time.thread_time()
    use(given)
    return time.thread_time() - began


def test_all_modules_are_looked_through() -> None:
    names = {found.name for found in patterns()}
    assert {"penstock.spec.secrets._REFERENCE", "penstock.frontends.document._CORE"} <= names | {
        found.name.split("[")[0] for found in patterns()
    }
    assert len(names) > 40


@pytest.mark.parametrize("found", patterns(), ids=lambda found: found.name.removeprefix("penstock."))
def test_a_pattern_takes_linear_time(found: Found) -> None:
    if found.name in SLOW_FOR:
        pytest.skip(SLOW_FOR[found.name])
    took, size, parts = slowest(found)
    assert parts is None, f"{found.pattern.pattern!r} takes {took:.2f} s for {size} times the second of {parts}"


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (r"(a+)+$", "match"),
        (r"x(\s|/\*.*?\*/)*\(", "match"),
        (r"\s*(a|\s)*\s*b", "match"),
        (r"\d+px", "search"),
        (r"(?:/\*.*?\*/|\s|--[^\n]*\n?)*\(", "match"),
    ],
)
def test_patterns_that_are_known_to_be_slow_would_be_found(pattern: str, method: str) -> None:
    assert slowest(Found("known", re.compile(pattern, re.DOTALL), (method,)))[2] is not None
