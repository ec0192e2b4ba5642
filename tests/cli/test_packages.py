"""`penstock packages lock`: notes what packages are, says what is new, and refuses what has changed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.servers.maven import NO_CENTRAL, MavenRepository
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.control.config import read_server_config
from penstock.control.packages import locked_jars
from penstock.errors import PenstockError


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MavenRepository]:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", NO_CENTRAL)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with MavenRepository(tmp_path / "maven") as repository:
        repository.publish("org.example:root:1.0", b"root", needs=["org.example:needed:2.0"])
        repository.publish("org.example:needed:2.0", b"needed")
        repository.publish("org.example:other:3.0", b"other")
        yield repository


def configured(folder: Path, repository: MavenRepository, *packages: str) -> Path:
    path = folder / "serve.yaml"
    conf = f'{{spark.jars.repositories: "{repository.url}"}}'
    path.write_text(f"targets:\n  far: {{packages: {[*packages]}, conf: {conf}}}\n  local: {{}}\n", "utf-8")
    return path


def lock(config: Path) -> list[str]:
    """What it prints, without checksums."""
    result = CliRunner().invoke(app, ["packages", "lock", "--config", str(config)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return [re.sub(r" +[0-9a-f]{64} +", " ", line) for line in result.stdout.splitlines()]


def test_a_lock_lets_the_server_start_and_says_what_is_new_and_what_is_gone(
    tmp_path: Path, repository: MavenRepository
) -> None:
    config = configured(tmp_path, repository, "org.example:root:1.0")
    said = lock(config)
    assert said[:2] == [
        "+ org.example:root:1.0 trusted for the first time",
        "+ org.example:needed:2.0 trusted for the first time",
    ]
    assert said[2].endswith("packages.lock: 2 jars of 1 target, 2 new, 0 removed")
    assert list(locked_jars(read_server_config(config), config)) == ["far"]

    configured(tmp_path, repository, "org.example:needed:2.0", "org.example:other:3.0")
    said = lock(config)
    assert said[:2] == ["+ org.example:other:3.0 trusted for the first time", "- org.example:root:1.0 no longer used"]
    assert said[2].endswith("packages.lock: 2 jars of 1 target, 1 new, 1 removed")


def test_a_jar_that_has_changed_since_is_not_locked(tmp_path: Path, repository: MavenRepository) -> None:
    config = configured(tmp_path, repository, "org.example:root:1.0")
    lock(config)
    before = (tmp_path / "packages.lock").read_bytes()
    repository.publish("org.example:needed:2.0", b"evil")
    with pytest.raises(PenstockError) as failed:
        lock(config)
    assert failed.value.code == "PACKAGE_CHANGED"
    assert failed.value.problems[0].params["coordinate"] == "org.example:needed:2.0"
    assert (tmp_path / "packages.lock").read_bytes() == before
