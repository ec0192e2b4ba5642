"""The lock of packages: what the server takes from it, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.control.config import read_server_config
from penstock.control.packages import (
    LockedTarget,
    as_toml,
    differences,
    lock_beside,
    locked_jars,
    read_lock,
    refuse_changed,
)
from penstock.errors import PenstockError

ROOT, NEEDED, NATIVE = "org.example:root:1.0", "org.example:needed:2.0", "org.example:needed:2.0:linux"
ONE, TWO = "1" * 64, "2" * 64
LOCK = {"cluster": LockedTarget((ROOT,), {ROOT: ONE, NEEDED: TWO, NATIVE: TWO})}
CONFIG = """\
targets:
  local: {}
  cluster:
    master: spark://127.0.0.1:7077
    packages: ["org.example:root:1.0"]
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "serve.yaml"
    path.write_text(CONFIG, "utf-8")
    return path


def taken(config: Path) -> dict[str, dict[str, str]]:
    return {name: dict(jars) for name, jars in locked_jars(read_server_config(config), config).items()}


def test_a_lock_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "packages.lock"
    path.write_text(as_toml(LOCK), "utf-8")
    assert read_lock(path) == LOCK
    assert read_lock(tmp_path / "none") == {}


def test_a_target_gets_the_jars_that_are_locked_for_it(config: Path) -> None:
    lock_beside(config).write_text(as_toml(LOCK), "utf-8")
    assert taken(config) == {"cluster": dict(LOCK["cluster"].jars)}


@pytest.mark.parametrize(
    "lock",
    [
        {},
        {"local": LOCK["cluster"]},
        {"cluster": LockedTarget((), {ROOT: ONE})},
        {"cluster": LockedTarget((NEEDED,), {NEEDED: TWO})},
        {"cluster": LockedTarget((ROOT, NEEDED), {ROOT: ONE, NEEDED: TWO})},
        {"cluster": LockedTarget(("org.example:root:1.1",), {"org.example:root:1.1": ONE})},
    ],
)
def test_packages_that_are_not_those_that_were_locked_are_refused_at_their_place(
    config: Path, lock: dict[str, LockedTarget]
) -> None:
    lock_beside(config).write_text(as_toml(lock), "utf-8")
    with pytest.raises(PenstockError) as failed:
        taken(config)
    (problem,) = failed.value.problems
    assert problem.code == "PACKAGES_UNLOCKED"
    assert problem.location is not None
    assert (problem.location.file, problem.location.line) == (str(config), 5)
    assert f"penstock packages lock --config {config}" in problem.hint


@pytest.mark.parametrize(
    "text",
    [
        "not TOML",
        "cluster = 1",
        "[cluster]\npackages = 1",
        '[cluster]\npackages = []\n[cluster.jars]\n"a:b:1" = "short"',
        f'[cluster]\npackages = []\n[cluster.jars]\n"a:b" = "{ONE}"',
        f'[cluster]\npackages = []\n[cluster.jars]\n"a:b:1:../../x" = "{ONE}"',
        '[cluster]\npackages = []\n[cluster.jars]\n"a:b:1" = ""',
    ],
)
def test_a_lock_that_nobody_can_rely_on_is_refused(config: Path, text: str) -> None:
    lock_beside(config).write_text(text, "utf-8")
    with pytest.raises(PenstockError) as failed:
        taken(config)
    assert failed.value.code == "PACKAGES_LOCK_INVALID"


def test_without_packages_no_lock_is_read(config: Path) -> None:
    config.write_text("targets: {local: {}}\n", "utf-8")
    lock_beside(config).write_text("not TOML", "utf-8")
    assert taken(config) == {}


@pytest.mark.parametrize("option", ["spark.jars.packages", "spark.jars.ivySettings"])
def test_options_that_let_spark_resolve_packages_itself_are_refused(config: Path, option: str) -> None:
    config.write_text(f"targets: {{local: {{conf: {{{option}: 'a:b:1'}}}}}}\n", "utf-8")
    with pytest.raises(PenstockError) as failed:
        read_server_config(config)
    assert option in failed.value.problems[0].message


def test_a_jar_that_is_another_one_than_before_is_never_locked_again_by_itself() -> None:
    refuse_changed(LOCK, {ROOT: ONE, "org.example:new:1": TWO})
    with pytest.raises(PenstockError) as failed:
        refuse_changed(LOCK, {ROOT: TWO})
    assert failed.value.code == "PACKAGE_CHANGED"
    assert failed.value.problems[0].params["coordinate"] == ROOT


def test_differences_are_what_is_new_and_what_is_gone() -> None:
    now = {"other": LockedTarget((NEEDED,), {NEEDED: TWO, "org.example:new:1": ONE})}
    assert differences(LOCK, now) == [("+", "org.example:new:1", ONE), ("-", ROOT, ONE), ("-", NATIVE, TWO)]
