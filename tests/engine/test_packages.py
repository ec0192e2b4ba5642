"""Jars of packages: all of them are locked, each is checked before Spark gets it, and a changed one is refused."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.servers.maven import NO_CENTRAL, MavenRepository

from penstock.engine.jars import SHARED
from penstock.engine.packages import jar_name, package_jars, resolve
from penstock.engine.session import SessionOptions, spark_conf
from penstock.errors import PenstockError

ROOT, NEEDED, NATIVE = "org.example:root:1.0", "org.example:needed:2.0", "org.example:needed:2.0:linux"
OF_SPARK = "org.apache.spark:spark-core_2.13:1.0"
CONTENT = {ROOT: b"root", NEEDED: b"needed", NATIVE: b"native"}
LOCKED = {coordinate: hashlib.sha256(content).hexdigest() for coordinate, content in CONTENT.items()}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MavenRepository]:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", NO_CENTRAL)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(SHARED, raising=False)
    with MavenRepository(tmp_path / "maven") as repository:
        repository.publish(ROOT, CONTENT[ROOT], needs=[NEEDED, NATIVE, OF_SPARK])
        repository.publish(NEEDED, CONTENT[NEEDED])
        repository.publish(NATIVE, CONTENT[NATIVE])
        repository.publish(OF_SPARK, b"another Spark")
        yield repository


def conf(repository: MavenRepository, **more: str) -> dict[str, str]:
    return {"spark.jars.repositories": repository.url, **more}


def place(cache: Path, coordinate: str, content: bytes) -> Path:
    """Puts a jar where the one that was locked belongs."""
    path = cache / "packages" / LOCKED[coordinate] / jar_name(coordinate)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return path


def test_what_a_package_needs_is_locked_with_it_and_what_spark_has_is_not(repository: MavenRepository) -> None:
    found = resolve("cluster", [ROOT], conf(repository))
    assert found == LOCKED
    assert next(iter(found)) == ROOT


def test_what_was_locked_is_in_the_cache_and_not_fetched_again(repository: MavenRepository) -> None:
    locked = resolve("cluster", [ROOT], conf(repository))
    repository.fetched.clear()
    jars = package_jars(locked, conf(repository))
    assert {jar.name: jar.read_bytes() for jar in jars} == {jar_name(each): CONTENT[each] for each in LOCKED}
    assert repository.fetched == []


def test_what_an_operator_excludes_is_not_followed(repository: MavenRepository) -> None:
    excluded = conf(repository, **{"spark.jars.excludes": "org.example:need*"})
    assert set(resolve("cluster", [ROOT], excluded)) == {ROOT}


def test_missing_jars_are_fetched_alone_and_by_their_locked_names(repository: MavenRepository) -> None:
    jars = package_jars(LOCKED, conf(repository))
    assert [jar.read_bytes() for jar in jars] == list(CONTENT.values())
    assert sorted(repository.fetched) == ["needed-2.0-linux.jar", "needed-2.0.jar", "root-1.0.jar"]


def test_a_jar_that_the_repository_has_changed_is_refused_and_not_kept(
    repository: MavenRepository, tmp_path: Path
) -> None:
    repository.publish(NEEDED, b"evil")
    with pytest.raises(PenstockError) as failed:
        package_jars(LOCKED, conf(repository))
    assert failed.value.code == "PACKAGE_CHANGED"
    assert failed.value.problems[0].params == {
        "coordinate": NEEDED,
        "path": "org.example_needed-2.0.jar",
        "expected": LOCKED[NEEDED],
        "found": hashlib.sha256(b"evil").hexdigest(),
    }
    assert list((tmp_path / "cache").rglob("*.jar")) == []


@pytest.mark.parametrize("coordinate", CONTENT)
def test_a_jar_that_was_changed_in_the_cache_is_refused_by_its_path(
    coordinate: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(SHARED, raising=False)
    paths = {
        each: place(tmp_path / "penstock" / "jars", each, b"evil" if each == coordinate else content)
        for each, content in CONTENT.items()
    }
    with pytest.raises(PenstockError) as failed:
        package_jars(LOCKED, {})
    assert failed.value.code == "PACKAGE_CHANGED"
    assert failed.value.problems[0].params["path"] == paths[coordinate]


def test_the_servers_cache_comes_first_and_its_changed_jar_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own"))
    monkeypatch.setenv(SHARED, str(tmp_path / "shared"))
    only = {ROOT: LOCKED[ROOT]}
    place(tmp_path / "own" / "penstock" / "jars", ROOT, CONTENT[ROOT])
    shared = place(tmp_path / "shared", ROOT, CONTENT[ROOT])
    assert package_jars(only, {}) == [shared]
    shared.write_bytes(b"evil")
    with pytest.raises(PenstockError) as failed:
        package_jars(only, {})
    assert failed.value.code == "PACKAGE_CHANGED"


def test_a_package_that_is_nowhere_is_told(repository: MavenRepository) -> None:
    with pytest.raises(PenstockError) as failed:
        resolve("cluster", ["org.example:none:1.0"], conf(repository))
    assert failed.value.code == "JARS_UNAVAILABLE"


@pytest.mark.parametrize("master", ["local[2]", "spark://host:7077"])
def test_spark_gets_files_and_nothing_to_resolve(master: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(SHARED, raising=False)
    paths = [str(place(tmp_path / "penstock" / "jars", each, content)) for each, content in CONTENT.items()]
    found = spark_conf(SessionOptions(master, {"spark.jars": "mine.jar"}, locked=LOCKED), tmp_path)
    assert found["spark.jars"] == ",".join(["mine.jar", *paths])
    assert "spark.jars.packages" not in found
    assert not {*paths} & {*found.get("spark.driver.extraClassPath", "").split(":")}


def test_jars_of_the_same_name_from_two_groups_stay_apart() -> None:
    assert jar_name("a:core:1") == "a_core-1.jar" != jar_name("b:core:1")
    assert jar_name("a:core:1:linux") == "a_core-1-linux.jar"
