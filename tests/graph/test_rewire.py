"""What a test puts in place of the sinks for late rows; reading schemas from sources is tested with Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from tests.graph.documents import read

from penstock.components.sinks.memory import Memory
from penstock.testing.rewire import in_memory


def test_late_rows_that_are_kept_are_collected_in_memory(tmp_path: Path) -> None:
    file = read("""
        sources: {views: {memory: {schema: {id: string}}}}
        steps:
          kept: {from: views, sql: SELECT 1, late: {policy: side, allowed: 1 day, sink: {files: {path: ./late}}}}
          somewhere: {from: views, sql: SELECT 1, late: side}
          dropped: {from: views, sql: SELECT 1, late: drop}
          plain: {from: views, sql: SELECT 1}
        sinks: {out: {from: kept, console: {}}}
        late: {policy: side, sink: {files: {path: ./late}}}
        """)

    pipeline = in_memory(file, cast(Any, None), tmp_path, watch=(), keep=()).pipeline

    assert pipeline.late == file.pipeline.late.model_copy(update={"sink": Memory()})
    kept, somewhere, dropped, plain = (step.late for step in pipeline.steps)
    assert kept is not None
    assert (kept.sink, kept.allowed) == (Memory(), file.pipeline.steps[0].late and file.pipeline.steps[0].late.allowed)
    assert somewhere is not None
    assert somewhere.sink == Memory()
    assert (dropped, plain) == (file.pipeline.steps[2].late, None)
