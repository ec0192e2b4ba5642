"""What steps add to the plan of a pipeline, judged wherever it is built: validated, shown, run or run again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.components.base import Carried, Step
from penstock.components.shared.spark_sql import By, judge_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def judged(step: Step, rows: DataFrame, inputs: Mapping[str, DataFrame]) -> DataFrame:
    """The rows of a step, if what it does to its inputs may be done. A Python step may do anything: it is code."""
    if not _is_code(step):
        judge_frame(rows, list(inputs.values()), _made_by(step), tables=inputs)
    return rows


def judged_kernel(step: Step, carried: Carried, inputs: Mapping[str, DataFrame]) -> Carried:
    """The same for a step with a kernel: what it reads is judged now, what becomes of its rows once there are some."""
    for given in carried.inputs:
        judged(step, given.rows, inputs)

    def finish(rows: DataFrame) -> DataFrame:
        return judged(step, carried.finish(rows), {"": rows})

    return replace(carried, finish=finish)


def _is_code(step: Step) -> bool:
    return step.name == "python" and type(step).__module__.startswith(_OWN)


def _made_by(step: Step) -> By:
    return By.STEP if type(step).__module__.startswith(_OWN) else By.COMPONENT


_OWN = "penstock.components."
