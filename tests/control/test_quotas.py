"""What runs take by the options of their targets, and what a project may take."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from penstock.control.config import ServerConfig, Target
from penstock.control.disk_use import size_of
from penstock.control.placing import refuse_full_disk
from penstock.control.projects import Projects
from penstock.control.quotas import Taken, refuse_more, taken_by
from penstock.errors import PenstockError

GIB = 1024**3


@pytest.mark.parametrize(
    ("target", "cores", "memory"),
    [
        ({"master": "local"}, 1, None),
        ({"master": "local[4]", "driverMemory": "2g"}, 4, 2 * GIB),
        ({"master": "local[3,2]", "driverMemory": "512m"}, 3, GIB // 2),
        ({"master": "local[*]"}, os.cpu_count(), None),
        ({"master": "spark://h:7077", "driverMemory": "1g"}, None, None),
        (
            {"master": "spark://h:7077", "driverMemory": "1g",
             "conf": {"spark.cores.max": "8", "spark.executor.cores": "4"}},
            9, 3 * GIB,
        ),
        (
            {
                "master": "yarn", "driverMemory": "1g",
                "conf": {"spark.executor.instances": "3", "spark.executor.cores": "2", "spark.executor.memory": "2g",
                         "spark.executor.memoryOverhead": "1024"},
            },
            7, 10 * GIB,
        ),
        ({"master": "yarn", "driverMemory": "1g", "conf": {"spark.dynamicAllocation.enabled": "true",
                                                            "spark.executor.instances": "2"}}, None, None),
        ({"master": "yarn", "driverMemory": "1g", "conf": {"spark.dynamicAllocation.enabled": "true",
                                                            "spark.dynamicAllocation.maxExecutors": "2"}}, 3, 3 * GIB),
    ],
)  # fmt: skip
def test_a_run_takes_what_the_options_of_its_target_allow(
    target: dict[str, Any], cores: int | None, memory: int | None
) -> None:
    assert taken_by(Target.model_validate(target)) == Taken(cores, memory)


def projects(**quotas: Any) -> Projects:
    config = {"targets": {"t": {"master": "local[2]", "driverMemory": "1g"}}}
    return Projects(
        ServerConfig.model_validate({**config, "projects": {"a": {"labels": {"t": "a"}, "quotas": quotas}}}), Path("/d")
    )


def over(found: Projects, taken: list[Taken], more: Taken) -> str:
    with pytest.raises(PenstockError) as raised:
        refuse_more(found.named("a"), taken, more)
    assert raised.value.code == "QUOTA_EXCEEDED"
    return raised.value.problems[0].message


def test_what_is_over_a_quota_is_told_with_its_sum() -> None:
    run = Taken(2, GIB)
    refuse_more(projects(cores=6, memory="3g").named("a"), [run, run], run)
    assert over(projects(cores=5), [run, run], run) == (
        "project 'a' may use 5 cores, but 4 of them are in use and this takes 2"
    )
    assert over(projects(memory="2g"), [run, run], run) == (
        "project 'a' may use 2 GiB of memory, but 2 GiB of it are in use and this takes 1 GiB"
    )
    refuse_more(projects().named("a"), [run] * 100, run)


def test_a_full_disk_is_refused_and_one_that_is_not_measured_is_not() -> None:
    project = projects(disk="1g").named("a")
    refuse_full_disk(project, None)
    refuse_full_disk(project, GIB)
    with pytest.raises(PenstockError) as raised:
        refuse_full_disk(project, 2 * GIB + 5)
    assert raised.value.problems[0].message == "project 'a' may use 1 GiB of the disk, but it uses 2 GiB"


def test_a_target_without_a_limit_is_no_target_of_a_project_with_a_quota() -> None:
    for conf, quotas, words in (
        ({}, {"cores": 5}, "quota of cores"),
        ({"spark.cores.max": "4"}, {"memory": "9g"}, "driverMemory"),
    ):
        with pytest.raises(ValueError, match=words):
            ServerConfig.model_validate(
                {
                    "targets": {"t": {"master": "yarn", "conf": conf}},
                    "projects": {"a": {"labels": {"t": "a"}, "quotas": quotas}},
                }
            )


def test_files_count_once_and_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "deep" / "a").write_bytes(b"x" * 100_000)
    once = size_of([tmp_path / "in"])
    assert once >= 100_000
    os.link(tmp_path / "in" / "deep" / "a", tmp_path / "in" / "b")
    (tmp_path / "in" / "loop").symlink_to(tmp_path)
    (tmp_path / "elsewhere").write_bytes(b"x" * 1_000_000)
    # A link takes a block at most.
    assert once <= size_of([tmp_path / "in", tmp_path / "missing"]) < once + 50_000
