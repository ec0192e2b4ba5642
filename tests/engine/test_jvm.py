"""How the JVM is started: with Spark's own options, from an argument list, and with the promises' options fixed."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.engine import jvm
from penstock.engine.jvm import MODULE_OPTIONS, Jvm, JvmOptions, command, find_java
from penstock.engine.session import FIXED, Session, SessionOptions, cores, spark_conf
from penstock.errors import PenstockError


def argv(tmp_path: Path, **options: Any) -> list[str]:
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    return command("java", JvmOptions(scratch=tmp_path, log=tmp_path / "spark.log", **options), folder)


def conf_of(arguments: list[str]) -> dict[str, str]:
    text = Path(arguments[arguments.index("--properties-file") + 1]).read_text("utf-8")
    pairs = dict(line.split("=", 1) for line in text.splitlines())
    return {key: value.encode("ascii").decode("unicode_escape") for key, value in pairs.items()}


@pytest.mark.spark
def test_module_options_are_those_of_sparks_own_launcher(spark: SparkSession) -> None:
    own: Any = spark._jvm
    assert list(own.org.apache.spark.launcher.JavaModuleOptions.defaultModuleOptionArray()) == list(MODULE_OPTIONS)


@pytest.mark.spark
def test_the_running_jvm_has_the_fixed_options(spark: SparkSession) -> None:
    assert {key: spark.conf.get(key) for key in FIXED} == FIXED


def test_conf_values_with_spaces_quotes_and_signs_stay_whole(tmp_path: Path) -> None:
    conf = {"spark.a": "two words", "spark.b": "x=y;z", "spark.c": '"quoted" $HOME `id`', "spark.d": "",
            "spark.e": "a\nb\\c", "spark.f": "é"}  # fmt: skip
    assert conf_of(argv(tmp_path, conf=conf)) == conf


def test_options_for_java_come_before_the_class_and_are_split_like_a_shell_would(tmp_path: Path) -> None:
    conf = {"spark.driver.extraJavaOptions": "-Da=1 '-Db=two words'", "spark.x": "1"}
    arguments = argv(tmp_path, conf=conf, memory="3g")
    main = arguments.index("org.apache.spark.deploy.SparkSubmit")
    options = arguments[main - 1]
    assert options.startswith("@")
    assert Path(options[1:]).read_text("utf-8") == '"-Da=1"\n"-Db=two words"\n'
    assert "-Xmx3g" in arguments[:main]
    assert conf_of(arguments) == {"spark.x": "1"}
    assert arguments[-1] == "pyspark-shell"


def test_temporary_files_and_the_log_go_where_they_are_told(tmp_path: Path) -> None:
    arguments = argv(tmp_path)
    assert f"-Djava.io.tmpdir={tmp_path}" in arguments
    assert f"-Dpenstock.log={tmp_path / 'spark.log'}" in arguments


def test_packages_are_one_argument_and_absent_without_any(tmp_path: Path) -> None:
    arguments = argv(tmp_path, packages=["a:b:1", "c:d:2"])
    assert arguments[arguments.index("--packages") + 1] == "a:b:1,c:d:2"
    assert "--packages" not in argv(tmp_path)


def test_a_class_path_of_the_operator_is_added_to_sparks(tmp_path: Path) -> None:
    arguments = argv(tmp_path, conf={"spark.driver.extraClassPath": "/opt/x.jar"})
    assert arguments[arguments.index("-cp") + 1].split(os.pathsep)[-1] == "/opt/x.jar"


def test_the_heap_begins_small_and_operators_may_still_set_it(tmp_path: Path) -> None:
    conf = {"spark.driver.extraJavaOptions": "-Xms512m"}
    options = JvmOptions(scratch=tmp_path, log=tmp_path / "spark.log", conf=conf)
    arguments = command("java", options, tmp_path)
    assert "-Xms64m" in arguments
    assert arguments.index("-Xms64m") < arguments.index(f"@{tmp_path / 'java.options'}")
    assert "-Xms512m" in (tmp_path / "java.options").read_text("utf-8")


def test_a_quick_jvm_compiles_lightly_and_a_lasting_one_does_not(tmp_path: Path) -> None:
    assert "-XX:TieredStopAtLevel=1" in argv(tmp_path, quick=True)
    assert "-XX:TieredStopAtLevel=1" not in argv(tmp_path)


def test_the_class_archive_is_used_if_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "spark.jsa"
    monkeypatch.setattr(jvm, "archive_path", lambda: archive)
    assert not any("SharedArchiveFile" in item for item in argv(tmp_path))
    archive.touch()
    assert f"-XX:SharedArchiveFile={archive}" in argv(tmp_path)
    made = argv(tmp_path, archive_to=tmp_path / "new.jsa")
    assert f"-XX:ArchiveClassesAtExit={tmp_path / 'new.jsa'}" in made
    assert not any("SharedArchiveFile" in item for item in made)


@pytest.mark.parametrize("key", sorted(FIXED))
def test_an_option_that_promises_rest_on_cannot_be_set(key: str, tmp_path: Path) -> None:
    with pytest.raises(PenstockError) as raised:
        spark_conf(SessionOptions(conf={key: "anything"}), tmp_path)
    assert raised.value.code == "CONF_NOT_ALLOWED"
    assert raised.value.problems[0].params["key"] == key


def test_other_options_win_over_the_defaults(tmp_path: Path) -> None:
    options = SessionOptions(master="local[3]", conf={"spark.ui.enabled": "true", "spark.mine": "1"})
    conf = spark_conf(options, tmp_path)
    assert (conf["spark.ui.enabled"], conf["spark.mine"], conf["spark.master"]) == ("true", "1", "local[3]")
    assert conf.items() >= FIXED.items()


def test_a_cluster_does_not_get_the_addresses_of_a_local_run(tmp_path: Path) -> None:
    local, cluster = (spark_conf(SessionOptions(master=master), tmp_path) for master in ("local[*]", "spark://h:7077"))
    assert local["spark.driver.host"] == local["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.driver.host" not in cluster
    assert "spark.driver.bindAddress" not in cluster


@pytest.mark.parametrize(
    ("master", "expected"), [("local", 1), ("local[3]", 3), ("local[4,2]", 4), ("spark://host:7077", 2)]
)
def test_cores_are_read_from_the_master(master: str, expected: int) -> None:
    assert cores(master) == expected


def test_a_star_means_every_core() -> None:
    assert cores("local[*]") == (os.cpu_count() or 1)


def fake_java(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    (home / "release").write_text(f'JAVA_VERSION="{version}"\n')
    return java


@pytest.mark.parametrize(("version", "shown"), [("1.8.0_392", 8), ("11.0.2", 11), ("16", 16)])
def test_an_old_java_is_refused(version: str, shown: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(PenstockError) as raised:
        find_java()
    assert raised.value.code == "JAVA_MISSING"
    assert raised.value.problems[0].params["reason"].endswith(f"is version {shown}")


def test_java_home_comes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = fake_java(tmp_path, "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() == str(java)


def test_no_java_at_all_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(PenstockError) as raised:
        find_java()
    assert raised.value.code == "JAVA_MISSING"


@pytest.mark.spark
def test_a_process_has_one_session(spark: SparkSession) -> None:
    with pytest.raises(RuntimeError, match="already"):
        Session(SessionOptions())
    assert spark.range(3).count() == 3


@pytest.mark.spark
def test_a_jvm_outlives_the_thread_that_asked_for_it(tmp_path: Path) -> None:
    """The kernel kills it with the thread that started it, which therefore must not be one that ends."""
    started: list[Jvm] = []
    options = JvmOptions(scratch=tmp_path, log=tmp_path / "spark.log", memory="256m", quick=True)
    thread = threading.Thread(target=lambda: started.append(Jvm(options)))
    thread.start()
    thread.join()
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            started[0].process.wait(1)
    finally:
        started[0].stop()
    assert started[0].process.returncode == 0
