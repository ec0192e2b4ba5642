"""Spark's local files: written and renamed without starting a program, replaced whole or not at all."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.engine.session import SessionOptions, spark_conf
from penstock.engine.spark import local_files
from penstock.engine.spark.local_files import LOCAL_FILES, compile_local_files, local_files_jar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.conftest import Project

PROGRAMS = ("chmod", "readlink", "ls", "stat")


@pytest.fixture
def files(spark: SparkSession) -> Any:
    """The local file system that Spark's tasks and checkpoints use."""
    jvm: Any = spark._jvm
    found = jvm.org.apache.hadoop.fs.FileSystem.getLocal(spark.sparkContext._jsc.hadoopConfiguration())
    assert found.getClass().getName() == "penstock.LocalFiles"
    return found


def path(spark: SparkSession, file: Path) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.hadoop.fs.Path(str(file))


@pytest.mark.spark
class TestFiles:
    @pytest.mark.parametrize("mode", [0o600, 0o644, 0o640, 0o755, 0o700])
    def test_permissions_are_set(self, spark: SparkSession, files: Any, tmp_path: Path, mode: int) -> None:
        jvm: Any = spark._jvm
        file = tmp_path / "a"
        file.touch()
        files.setPermission(path(spark, file), jvm.org.apache.hadoop.fs.permission.FsPermission(str(oct(mode))[2:]))
        assert stat.S_IMODE(file.stat().st_mode) == mode

    def test_a_new_file_has_the_permissions_hadoop_gives_it(
        self, spark: SparkSession, files: Any, tmp_path: Path
    ) -> None:
        files.create(path(spark, tmp_path / "a")).close()
        assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o644

    def test_a_rename_replaces_the_file_and_its_checksum(self, spark: SparkSession, files: Any, tmp_path: Path) -> None:
        for name, content in (("old", b"old"), ("new", b"newer")):
            out = files.create(path(spark, tmp_path / name))
            out.write(bytearray(content))
            out.close()
        assert files.rename(path(spark, tmp_path / "new"), path(spark, tmp_path / "old"))
        assert (tmp_path / "old").read_bytes() == b"newer"
        assert sorted(os.listdir(tmp_path)) == [".old.crc", "old"]
        # Hadoop compares the content with the checksum as it reads.
        stream = files.open(path(spark, tmp_path / "old"))
        assert [stream.read() for _ in range(6)] == [*b"newer", -1]
        stream.close()

    def test_a_folder_is_renamed_and_a_file_goes_into_one(
        self, spark: SparkSession, files: Any, tmp_path: Path
    ) -> None:
        (tmp_path / "from").mkdir()
        (tmp_path / "from" / "a").write_text("a")
        assert files.rename(path(spark, tmp_path / "from"), path(spark, tmp_path / "to"))
        (tmp_path / "b").write_text("b")
        assert files.rename(path(spark, tmp_path / "b"), path(spark, tmp_path / "to"))
        assert sorted(os.listdir(tmp_path / "to")) == ["a", "b"]

    def test_a_rename_that_fails_leaves_both_files_as_they_are(
        self, spark: SparkSession, files: Any, tmp_path: Path
    ) -> None:
        """Hadoop's own class would copy the file instead, and a crash could leave half of it."""
        source, target = tmp_path / "new", Path("/dev/shm") / f"penstock-test-{os.getpid()}"
        source.write_text("new")
        target.write_text("old")
        try:
            if source.stat().st_dev == target.stat().st_dev:
                pytest.skip("temporary files and /dev/shm are on one device here")
            with pytest.raises(Exception, match="AtomicMoveNotSupported"):
                files.getRawFileSystem().rename(path(spark, source), path(spark, target))
            assert (source.read_text(), target.read_text()) == ("new", "old")
        finally:
            target.unlink()

    def test_the_compiler_gives_the_jar_that_is_in_use(self, spark: SparkSession, tmp_path: Path) -> None:
        made = compile_local_files(spark, tmp_path / "deep" / "files.jar")
        assert made.read_bytes() == local_files_jar().read_bytes()
        assert os.listdir(made.parent) == ["files.jar"]


@pytest.mark.spark
def test_a_pipeline_with_state_starts_no_programs_for_its_files(project: Project, tmp_path: Path) -> None:
    started, bin_ = tmp_path / "started", tmp_path / "bin"
    bin_.mkdir()
    for name in PROGRAMS:
        program = bin_ / name
        program.write_text(f'#!/bin/sh\necho "{name} $*" >> {started}\nPATH="${{PATH#*:}}"\nexec {name} "$@"\n')
        program.chmod(0o755)
    file = project.write(
        """
        sources:
          s: {generator: {dataset: page_views, rows: 100}, eventTime: {column: ts}}
        steps:
          w: {from: s, window: {size: 1 second, by: [user], values: {n: count(*)}}}
        sinks:
          out: {from: w, files: {path: ./out}}
        """
    )
    command = [sys.executable, "-m", "penstock.cli.main", "run", str(file), "--once"]
    environment = os.environ | {"PATH": f"{bin_}:{os.environ['PATH']}", "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert (project.folder / ".penstock" / "demo" / "checkpoint" / "commits" / "0").exists()
    assert not started.exists(), started.read_text()


def test_only_local_masters_use_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jar = tmp_path / "files.jar"
    monkeypatch.setattr(local_files, "local_files_jar", lambda: jar)
    monkeypatch.setattr("penstock.engine.session.local_files_jar", lambda: jar)

    def conf(master: str, **given: str) -> dict[str, str]:
        return spark_conf(SessionOptions(master=master, conf=given), tmp_path)

    assert not LOCAL_FILES.keys() & conf("local[*]").keys()
    jar.touch()
    assert conf("local[*]").items() >= {**LOCAL_FILES, "spark.driver.extraClassPath": str(jar)}.items()
    assert not LOCAL_FILES.keys() & conf("spark://host:7077").keys()
    chosen = conf("local[2]", **{"spark.hadoop.fs.file.impl": "mine.Files"})
    assert chosen["spark.hadoop.fs.file.impl"] == "mine.Files"
