"""What all tests share: one Spark session, the profiles of Hypothesis, and a folder with a pipeline file in it."""

from __future__ import annotations

import os
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from penstock.engine.jars import ROOTS
from penstock.frontends.load import load
from penstock.graph.build import build
from penstock.graph.nodes import Graph
from penstock.spec.location import PipelineFile
from penstock.testing.session import shared_session, welcome_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ["tests.leftovers", "tests.servers.fixtures"]
# One process has one JVM, and some test may need any of them.
welcome_jars(*ROOTS)

_UNCHECKED = (hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.function_scoped_fixture)
hypothesis.settings.register_profile(
    "ci", derandomize=True, print_blob=True, deadline=None, suppress_health_check=_UNCHECKED
)
hypothesis.settings.register_profile(
    "long", max_examples=1000, print_blob=True, deadline=None, suppress_health_check=_UNCHECKED
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

HEAD = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {name: demo}
spec:
"""
_FIRST_TIME = 1_700_000_000


@dataclass(frozen=True)
class Project:
    """A folder in which a test writes pipeline files and their data."""

    folder: Path

    def write(self, body: str, name: str = "p.yaml") -> Path:
        """A pipeline file whose `spec` is the body; the body starts on line 5, indented by two."""
        path = self.folder / name
        path.write_text(HEAD + textwrap.indent(textwrap.dedent(body).lstrip("\n"), "  "), "utf-8")
        return path

    def load(self, body: str) -> PipelineFile:
        return load(self.write(body))

    def build(self, body: str) -> Graph:
        return build(self.load(body))

    def put(self, name: str, content: str | bytes) -> Path:
        """A file of input data; it appears whole, as the files source asks for, and is newer than those before it."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        time = _FIRST_TIME + sum(1 for _ in path.parent.iterdir())
        hidden = path.with_name(f".{path.name}.tmp")
        hidden.write_bytes(content if isinstance(content, bytes) else content.encode())
        os.utime(hidden, (time, time))
        hidden.rename(path)
        return path


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.fixture
def spark() -> SparkSession:
    """The session that the test kit uses too, so that a process has one JVM.

    Asked for by each test: where a session has ended, one test fails and the next has a new one.
    """
    return shared_session()
