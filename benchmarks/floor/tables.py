"""The figures as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table

from benchmarks.floor.measurement import Cost
from benchmarks.floor.results import Check, Ratio, Results, ratios
from benchmarks.floor.start_up import Medians

_COSTS = (
    "cores", "MB", "pro-\ncesses", "programs\n/s", "forks\n/s", "batch\nms", "p99\nms", "rows\n/s",
)  # fmt: skip


def cost_table(results: Results) -> Table:
    title = "floor: what a small pipeline costs; ratios are of Penstock over the other"
    table = _table(title, "", "", *_COSTS, "cores\nratio", "memory\nratio")
    for case, found in results.costs.items():
        for name, cost in found.items():
            table.add_row(case, name, *cost_cells(cost), *_ratio_cells(ratios(found).get(name)))
    return table


def start_table(results: Results) -> Table:
    table = _table("floor: start-up", "", "seconds to the first result", "to the end", "runs")
    for name, starts in results.starts.items():
        found = Medians.of(starts)
        table.add_row(name, _number(found.first_result_seconds, 1), _number(found.seconds, 1), str(len(starts)))
    return table


def limit_table(checks: Sequence[Check]) -> Table:
    table = _table("floor: limits for Penstock", "", "", "at most", "reached", "")
    for check in checks:
        digits = 2 if check.what == "cores" else 0 if check.limit >= 100 else 1
        reached = "not measured" if check.reached is None else _number(check.reached, digits)
        table.add_row(check.case, check.what, f"{check.limit:g}", reached, "pass" if check.passed else "fail")
    return table


def curve_table(name: str, points: Mapping[int, Cost]) -> Table:
    table = _table(f"floor: cost by {name}", name, *_COSTS)
    for value, cost in points.items():
        table.add_row(f"{value:,}", *cost_cells(cost))
    return table


def cost_cells(cost: Cost) -> list[str]:
    rows = None if cost.rows is None else cost.rows / cost.seconds
    return [
        f"{cost.cores:.3f}" if cost.cores < 0.1 else f"{cost.cores:.2f}",
        f"{cost.memory_bytes / 1e6:,.0f}",
        str(cost.processes),
        _number(cost.programs_a_second, 1),
        _number(cost.forks_a_second, 1),
        _number(cost.batch_quantile(50), 0),
        _number(cost.batch_quantile(99), 0),
        _number(rows, 0),
    ]


def _ratio_cells(ratio: Ratio | None) -> list[str]:
    return ["", ""] if ratio is None else [f"{value:.1f}" for value in ratio]


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for place, column in enumerate(columns):
        words = place == 0 or column == ""
        table.add_column(column, justify="left" if words else "right")
    return table
