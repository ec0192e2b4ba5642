"""The folder of a server: where pipelines, their versions, state and runs lie.

Only names that have been checked become parts of a path.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import PenstockError
from penstock.spec.pipeline import PIPELINE_NAME

RUN_ID = re.compile(r"r[0-9a-f]{12}")
_KINDS = ("yaml", "sql", "py")


@dataclass(frozen=True)
class DataFolder:
    """The folder that `penstock serve --data` names."""

    path: Path

    def pipeline(self, name: str) -> Path:
        """Raises PIPELINE_UNKNOWN for what cannot be a name."""
        if not PIPELINE_NAME.fullmatch(name):
            raise PenstockError.of("PIPELINE_UNKNOWN", name=name)
        return self.path / "pipelines" / name

    def state(self, name: str) -> Path:
        return self.pipeline(name) / "state"

    def run(self, name: str, run: str) -> Path:
        """Raises NOT_FOUND for what cannot be the id of a run."""
        if not RUN_ID.fullmatch(run):
            raise PenstockError.of("NOT_FOUND", what="run", name=run)
        return self.pipeline(name) / "runs" / run

    def version(self, name: str, number: int, kind: str) -> Path:
        if kind not in _KINDS:
            raise ValueError(f"no kind of pipeline file: {kind}")
        return self.pipeline(name) / "versions" / f"{int(number)}.{kind}"

    def write_version(self, name: str, number: int, kind: str, text: str) -> Path:
        """The file of a version; it is written if it is not there yet."""
        target = self.version(name, number, kind)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            hidden = target.with_name(f".{target.name}.{os.getpid()}")
            hidden.write_text(text, "utf-8")
            hidden.replace(target)
        return target
