"""Jars of connectors: fetched once, never used damaged, and a missing one is told with the way out."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.conftest import Project

from penstock.engine import jars
from penstock.engine.ivy import SPARK_JARS, IvyFailed
from penstock.engine.jars import file_name, jars_of, locked_jars, read_lock, set_folder, sets_for, write_lock
from penstock.engine.session import SessionOptions, spark_conf
from penstock.engine.spark.local_files import local_files_jar
from penstock.errors import PenstockError

ONE, TWO = "org.example:one:1.0", "org.example:two:2.0"
CONTENT = {ONE: b"first", TWO: b"second"}
LOCKED = {coordinate: hashlib.sha256(content).hexdigest() for coordinate, content in CONTENT.items()}


class Central:
    """Stands in for Maven Central: hands out files and remembers what was asked for."""

    def __init__(self, content: dict[str, bytes] | None = None) -> None:
        self.content = CONTENT if content is None else content
        self.asked: list[list[str]] = []

    def retrieve(
        self, coordinates: Iterable[str], folder: Path, *, transitive: bool = False, excluded: Iterable[str] = ()
    ) -> dict[str, Path]:
        wanted = list(self.content) if transitive else list(coordinates)
        self.asked.append(wanted)
        missing = [coordinate for coordinate in wanted if coordinate not in self.content]
        if missing:
            raise IvyFailed(f"no {missing}")
        found = {coordinate: folder / file_name(coordinate) for coordinate in wanted}
        for coordinate, path in found.items():
            path.write_bytes(self.content[coordinate])
        return found


@pytest.fixture
def central(monkeypatch: pytest.MonkeyPatch) -> Central:
    central = Central()
    monkeypatch.setattr(jars, "retrieve", central.retrieve)
    return central


def visible(root: Path) -> list[str]:
    return sorted(path.name for path in root.rglob("*") if path.is_file() and not path.name.endswith(".lock"))


# --- fetching ------------------------------------------------------------------------------------------------


def test_jars_are_fetched_once_and_keep_the_order_of_the_lock(central: Central, tmp_path: Path) -> None:
    first = locked_jars("set", LOCKED, tmp_path)
    assert [path.read_bytes() for path in first] == [b"first", b"second"]
    assert locked_jars("set", LOCKED, tmp_path) == first
    assert central.asked == [[ONE, TWO]]
    assert visible(tmp_path) == ["one-1.0.jar", "two-2.0.jar"]


def test_jars_placed_by_hand_are_not_fetched(central: Central, tmp_path: Path) -> None:
    folder = set_folder("set", LOCKED, tmp_path)
    folder.mkdir()
    (folder / "one-1.0.jar").write_bytes(b"first")
    locked_jars("set", LOCKED, tmp_path)
    assert central.asked == [[TWO]]


def test_a_damaged_jar_is_found(central: Central, tmp_path: Path) -> None:
    path = locked_jars("set", LOCKED, tmp_path)[1]
    path.write_bytes(b"secund")
    with pytest.raises(PenstockError) as failed:
        locked_jars("set", LOCKED, tmp_path)
    assert failed.value.code == "JAR_DAMAGED"
    assert str(path) in str(failed.value)


def test_a_jar_that_arrives_damaged_is_not_kept(central: Central, tmp_path: Path) -> None:
    central.content = {**CONTENT, TWO: b"something else"}
    with pytest.raises(PenstockError) as failed:
        locked_jars("set", LOCKED, tmp_path)
    assert failed.value.code == "JAR_DAMAGED"
    assert visible(tmp_path) == []


def test_another_lock_never_meets_the_same_files(tmp_path: Path) -> None:
    other = {**LOCKED, TWO: "0" * 64}
    assert set_folder("set", LOCKED, tmp_path) != set_folder("set", other, tmp_path)
    assert set_folder("set", LOCKED, tmp_path).name.startswith("set-1.0-")


def test_of_several_who_need_a_set_one_fetches_it(central: Central, tmp_path: Path) -> None:
    start = threading.Barrier(4)
    results: list[list[Path]] = []

    def need() -> None:
        start.wait()
        results.append(locked_jars("set", LOCKED, tmp_path))

    threads = [threading.Thread(target=need) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert all(result == results[0] for result in results)
    assert central.asked == [[ONE, TWO]]


def test_without_a_network_the_error_says_which_files_belong_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=1"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", nowhere)
    with pytest.raises(PenstockError) as failed:
        locked_jars("set", LOCKED, tmp_path)
    assert failed.value.code == "JARS_UNAVAILABLE"
    problem = failed.value.problems[0]
    assert problem.message.endswith("Maven Central cannot be reached")
    assert str(set_folder("set", LOCKED, tmp_path)) in problem.hint
    assert "one-1.0.jar, two-2.0.jar" in problem.hint
    assert visible(tmp_path) == []


def test_a_folder_that_cannot_be_written_is_told(central: Central, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", "utf-8")
    with pytest.raises(PenstockError) as failed:
        locked_jars("set", LOCKED, tmp_path / "file")
    assert failed.value.code == "PATH_NOT_WRITABLE"


# --- names ---------------------------------------------------------------------------------------------------


def test_a_set_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(PenstockError) as failed:
        jars_of(["s4"])
    assert failed.value.code == "JARS_UNAVAILABLE"
    assert "Known: s3" in failed.value.problems[0].hint


def test_a_set_that_the_lock_does_not_have_is_never_fetched(
    central: Central, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "jars.lock"
    lock.write_text("", "utf-8")
    monkeypatch.setattr(jars, "LOCK", lock)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(PenstockError) as failed:
        jars_of(["s3"])
    assert failed.value.code == "JARS_UNAVAILABLE"
    assert jars.obtainable(["s3"]) == ()
    assert central.asked == []


def test_jars_lie_in_the_users_cache_folder(central: Central, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "jars.lock"
    lock.write_text(f'[s3]\n"{ONE}" = "{LOCKED[ONE]}"\n', "utf-8")
    monkeypatch.setattr(jars, "LOCK", lock)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert [path.relative_to(tmp_path).parts[:3] for path in jars_of(["s3", "s3"])] == [("cache", "penstock", "jars")]


def test_a_pipeline_without_connectors_needs_no_jars(project: Project) -> None:
    file = project.load(
        """
        sources: {rows: {memory: {schema: {id: string}}}}
        sinks: {out: {from: rows, files: {path: ./out}}}
        """
    )
    assert sets_for(file.pipeline) == ()


@pytest.mark.parametrize(
    ("source", "needed"),
    [
        # The sink has a client of its own.
        ("memory: {schema: {id: string}}", ()),
        ('files: {path: "s3a://bucket/in"}, format: {text: {}}', ("s3",)),
    ],
)
def test_a_path_in_an_object_store_needs_its_file_system_where_spark_reads_it(
    project: Project, source: str, needed: tuple[str, ...]
) -> None:
    file = project.load(
        f"""
        sources: {{rows: {{{source}}}}}
        sinks: {{out: {{from: rows, files: {{path: "s3a://bucket/out"}}}}}}
        """
    )
    assert sets_for(file.pipeline) == needed
    assert sets_for(file.pipeline, audited=True) == ("s3",)


def test_an_object_store_that_the_environment_names_is_read_there(
    placed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://store.example.org")
    key = "spark.hadoop.fs.s3a.endpoint"
    assert spark_conf(SessionOptions(jars=("s3",)), Path("x"))[key] == "https://store.example.org"
    chosen = SessionOptions(jars=("s3",), conf={key: "https://other.example.org"})
    assert spark_conf(chosen, Path("x"))[key] == "https://other.example.org"
    assert key not in spark_conf(SessionOptions(), Path("x"))


# --- the session ---------------------------------------------------------------------------------------------


@pytest.fixture
def placed(central: Central, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of the jars of a small set called `s3`."""
    lock = tmp_path / "jars.lock"
    lock.write_text(f'[s3]\n"{ONE}" = "{LOCKED[ONE]}"\n"{TWO}" = "{LOCKED[TWO]}"\n', "utf-8")
    monkeypatch.setattr(jars, "LOCK", lock)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return [str(path) for path in jars_of(["s3"])]


def test_in_one_process_jars_stand_on_the_class_path(placed: list[str], tmp_path: Path) -> None:
    conf = spark_conf(SessionOptions(jars=["s3"]), tmp_path)
    assert conf["spark.driver.extraClassPath"] == ":".join([*placed, str(local_files_jar())])
    assert "spark.jars" not in conf


def test_workers_are_sent_the_jars_beside_those_an_operator_names(placed: list[str], tmp_path: Path) -> None:
    given = {"spark.jars": "mine.jar", "spark.driver.extraClassPath": "/mine"}
    conf = spark_conf(SessionOptions(master="spark://host:7077", conf=given, jars=["s3"]), tmp_path)
    assert conf["spark.driver.extraClassPath"] == ":".join(["/mine", *placed])
    assert conf["spark.jars"] == ",".join(["mine.jar", *placed])


def test_a_session_without_sets_has_only_our_file_system_on_its_class_path(tmp_path: Path) -> None:
    assert spark_conf(SessionOptions(), tmp_path)["spark.driver.extraClassPath"] == str(local_files_jar())
    assert "spark.driver.extraClassPath" not in spark_conf(SessionOptions("spark://host:7077"), tmp_path)


def test_before_our_file_system_was_compiled_a_session_does_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.engine.session.local_files_jar", lambda: tmp_path / "none.jar")
    conf = spark_conf(SessionOptions(), tmp_path)
    assert "spark.driver.extraClassPath" not in conf
    assert "spark.hadoop.fs.file.impl" not in conf


# --- the lock ------------------------------------------------------------------------------------------------


def test_the_lock_fits_the_hadoop_that_spark_has() -> None:
    hadoop = next(SPARK_JARS.glob("hadoop-client-api-*.jar")).stem.removeprefix("hadoop-client-api-")
    assert f"org.apache.hadoop:hadoop-aws:{hadoop}" in read_lock(jars.LOCK)["s3"]


def test_the_lock_holds_known_sets_and_nothing_that_spark_has() -> None:
    lock = read_lock(jars.LOCK)
    assert set(lock) <= set(jars.ROOTS)
    locked = {coordinate.split(":")[1] for section in lock.values() for coordinate in section}
    assert locked.isdisjoint({path.name.rpartition("-")[0] for path in SPARK_JARS.glob("*.jar")})


def test_a_lock_written_anew_has_what_is_not_provided_and_keeps_other_sets(central: Central, tmp_path: Path) -> None:
    path, provided = tmp_path / "new.lock", tmp_path / "provided"
    path.write_text('[other]\n"a:b:1" = "00"\n', "utf-8")
    provided.mkdir()
    (provided / "one-0.9.jar").touch()
    write_lock(path, {"set": [TWO]}, provided=provided)
    assert read_lock(path) == {"other": {"a:b:1": "00"}, "set": {TWO: LOCKED[TWO]}}
