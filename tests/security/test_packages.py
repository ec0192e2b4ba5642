"""A jar that somebody has exchanged, in a repository or in a cache, is not loaded by any run of a server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.security.attacker import AttackedSite
from tests.servers.maven import NO_CENTRAL, MavenRepository

from penstock.testing.processes import until

PIPELINE = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {name: views, labels: {team: a}}
spec:
  sources: {views: {generator: {dataset: page_views, rows: 10}}}
  sinks: {out: {from: views, sqlite: {path: ./out.db, table: views}}}
"""
NEEDED = "org.example:needed:2.0"


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[MavenRepository]:
    with MavenRepository(tmp_path / "maven") as repository:
        repository.publish("org.example:root:1.0", b"root", needs=[NEEDED])
        repository.publish(NEEDED, b"needed")
        yield repository


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path / "cache"), "JAVA_TOOL_OPTIONS": NO_CENTRAL}


def penstock(env: dict[str, str], *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock.cli.main", *map(str, arguments)]
    return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, timeout=120)


def test_packages_of_a_server_are_loaded_only_as_they_were_locked(
    tmp_path: Path, repository: MavenRepository, env: dict[str, str]
) -> None:
    folder = tmp_path / "site"
    folder.mkdir()
    config, text = folder / "serve.yaml", (
        'targets:\n  local:\n    master: "local[1]"\n    driverMemory: 512m\n    role: author\n'
        f'    conf: {{spark.jars.repositories: "{repository.url}"}}\n    packages: ["org.example:root:1.0"]\n'
    )  # fmt: skip
    config.write_text(text, "utf-8")
    unlocked = penstock(env, "serve", "--data", folder / "data", "--port", 0, "--config", config)
    assert (unlocked.returncode, "error[PACKAGES_UNLOCKED]" in unlocked.stderr) == (2, True), unlocked.stderr

    locked = penstock(env, "packages", "lock", "--config", config)
    assert locked.returncode == 0, locked.stderr
    (jar,) = (tmp_path / "cache").rglob("org.example_needed-2.0.jar")
    jar.write_bytes(b"evil")

    with AttackedSite(folder, text, env=env) as site:
        answer = site.caller("author", team="a").apply(PIPELINE)
        assert answer.status_code == 200, answer.text
        until(lambda: any(run["endedAt"] for run in site.site.ask("/runs")["items"]), "the run is refused", every=0.1)
        run = site.site.ask("/runs")["items"][-1]
        assert (run["outcome"], run["code"], run["owner"]) == ("failed", "PACKAGE_CHANGED", "operator")
        assert str(jar) in run["reason"]
        (order,) = site.data.glob(f"pipelines/views/runs/{run['id']}/run.json")
        assert NEEDED in order.read_text("utf-8")
