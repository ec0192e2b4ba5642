"""What import-linter cannot tell: importing is one thing, importing when a module is loaded another."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys

import penstock
import penstock.cli.main
import penstock.frontends.load
from penstock.components.registry import components

for kind in ("source", "format", "step", "sink"):
    assert components(kind), kind
print(*sorted({"pyspark", "py4j"} & set(sys.modules)))
"""


def test_specs_and_components_are_read_without_loading_spark() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == []
