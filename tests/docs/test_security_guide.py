"""Every promise of the security guide names a test, and every such test is there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from tests.docs.pages import ROOT

GUIDE = ROOT / "docs" / "guides" / "security.md"
PROMISES = re.compile(r"^\| ([^|]+) \| `([\w/]+\.py)::(\w+)` \|$", re.MULTILINE)


@cache
def names_of_tests(file: Path) -> frozenset[str]:
    """The tests in a file, those of classes too."""
    tree = ast.parse(file.read_text("utf-8"))
    return frozenset(
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )


def promises() -> list[tuple[str, str, str]]:
    return [(promise.strip(), file, test) for promise, file, test in PROMISES.findall(GUIDE.read_text("utf-8"))]


def test_every_promise_is_held_by_a_test_that_exists() -> None:
    found = promises()
    missing = [(file, test) for _, file, test in found if test not in names_of_tests(ROOT / "tests" / file)]
    assert missing == []
    assert len({promise for promise, _, _ in found}) >= 30


def test_every_row_of_the_table_of_promises_can_be_read() -> None:
    text = GUIDE.read_text("utf-8")
    table = text[text.index("## Promises and their tests") :]
    rows = [line for line in table.splitlines() if line.startswith("|") and "---" not in line]
    assert len(rows) - 1 == len(PROMISES.findall(table))


def test_every_file_of_security_tests_holds_a_promise() -> None:
    named = {file for _, file, _ in promises()}
    files = {str(path.relative_to(ROOT / "tests")) for path in (ROOT / "tests" / "security").glob("test_*.py")}
    assert files - {"security/test_baseline.py"} <= named
