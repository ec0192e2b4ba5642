"""An aggregate as kernels know it: the name of its output column, its function, and the column it reads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Aggregate:
    """One output column. Rows whose value in `column` is null do not take part; `count` without a column counts all."""

    name: str
    function: str
    column: str | None = None
    option: float | None = None
    """`percentile`: the fraction between 0 and 1; `top_k`: how many."""
