"""Patterns are expanded as Hadoop expands them, and what Hadoop finds for one that is allowed lies where it may."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.access.globs import MOST, BadGlob, expand
from penstock.access.paths import PathLimits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("{a/b}", ["a/b"]),
        ("/}{a/b}", ["/}a/b"]),
        ("p{a/b,c/d}s", ["pa/bs", "pc/ds"]),
        ("{a/b,c/d,{e,f}}", ["a/b", "c/d", "{e,f}"]),
        ("{a,b}/{b,{c/d,e/f}}", ["{a,b}/b", "{a,b}/c/d", "{a,b}/e/f"]),
        ("./{./.,y}./x", ["././../x", "./y./x"]),
        ("{a,b}", ["{a,b}"]),
        ("{a/b", ["{a/b"]),
        ("a/{b/,}c", ["a/b/c", "a/c"]),
    ],
)
def test_braces_are_expanded_where_they_hold_a_slash(pattern: str, expected: list[str]) -> None:
    assert expand(pattern) == expected


def test_a_pattern_that_stands_for_too_many_is_refused_at_once() -> None:
    with pytest.raises(BadGlob):
        expand("{a/,b/}" * 64)
    assert len(expand("{a/,b/}" * 9)) == 512 <= MOST


# --- against Hadoop itself -------------------------------------------------------------------------------------

PARTS = ("in", "out", "secret", "a", "b", "..", ".", "...", "", "*", "?", "?*", "[.][.]", "[a-z]*", "{..}", "{.,x}.",
         "link", "up", "{in", "out}", "{in,out}", "{a,b", "}", "{", ",", "{.", ".}", "{./.,y}.", "{a/..,b}", "{/,x}",
         "i{n,}", "*.json", "{,../}secret", "{in/../..,a}", "l*", "{link,a}", "in:x", "^", "!a", "[^a]*",
         "%2e%2e", "..%2f", "%2e.", "in%2f..", "\uff0e\uff0e", "\u2025", "in;x", "#", "IN",
         "Secret", "in.", "..;", "in\u200b")  # fmt: skip
SMALL = "./{},*?[]abin.}{,/"


def patterns(seed: int, count: int) -> Iterator[str]:
    random_ = random.Random(seed)
    for number in range(count):
        if number % 3:
            yield "/".join(random_.choice(PARTS) for _ in range(random_.randint(1, 5)))
        else:
            yield "".join(random_.choice(SMALL) for _ in range(random_.randint(1, 14)))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder for pipelines with a link out of it, beside files that are not for them."""
    folder = tmp_path / "root"
    for place in ("in/a", "in/b", "out", "a/b", "in/in", "link.d"):
        (folder / place).mkdir(parents=True)
    for place in ("in/a/1.json", "in/2.json", "out/3.json", "a/b/4", "y."):
        (folder / place).write_text("{}")
    (tmp_path / "secret").write_text("canary")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "secret").write_text("canary")
    (folder / "link").symlink_to(tmp_path / "in")
    (folder / "up").symlink_to("..")
    return folder


def found(spark: SparkSession, pattern: str) -> list[str]:
    """What Hadoop lists; nothing where it takes no such pattern."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    jvm: Any = spark._jvm
    try:
        path = jvm.org.apache.hadoop.fs.Path(pattern)
        system = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        statuses = system.globStatus(path)
    except (Py4JJavaError, PySparkException):
        return []
    return [status.getPath().toUri().getPath() for status in statuses or ()]


@pytest.mark.spark
def test_what_hadoop_lists_for_a_pattern_that_is_allowed_lies_below_the_root(spark: SparkSession, tree: Path) -> None:
    limits = PathLimits((str(tree),))
    taken = listed = 0
    for pattern in patterns(7, 600):
        path = f"{tree}/{pattern}"
        if limits.refusal(path) is not None:
            continue
        taken += 1
        for file in found(spark, path):
            listed += 1
            # A link that a wildcard has found is refused when it is listed; nothing is reached by the pattern itself.
            through_link = limits.refusal_of_file(file) is not None
            assert Path(os.path.normpath(file)).is_relative_to(tree), pattern
            assert not through_link or {"link", "up"} & set(Path(file).relative_to(tree).parts), pattern
    assert taken > 150, "a rule that refuses everything would prove nothing"
    assert listed > 100


@pytest.mark.spark
def test_patterns_are_expanded_as_hadoop_expands_them(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    expander = jvm.java.lang.Class.forName("org.apache.hadoop.fs.GlobExpander")
    method = expander.getDeclaredMethods()
    (wanted,) = [each for each in method if each.getName() == "expand"]
    wanted.setAccessible(True)
    arguments = spark.sparkContext._gateway.new_array(jvm.java.lang.Object, 1)  # type: ignore[union-attr]
    for pattern in patterns(11, 400):
        arguments[0] = pattern
        assert list(wanted.invoke(None, arguments)) == expand(pattern), pattern
