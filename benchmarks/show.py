"""Figures as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from benchmarks.match import Match, Record

_COLUMNS = (
    "", "answers", "rows", "whole run\nrows/s", "steady\nrows/s", "steady\nrows/CPU s",
    "whole run\ns", "warm\ns", "warm\nCPU s", "peak\nMB",
)  # fmt: skip


def show(match: Match, console: Console) -> None:
    """One table of contenders, one of targets."""
    table = Table(title=f"{match.workload.name}: {match.workload.title}", title_justify="left")
    for column in _COLUMNS:
        table.add_column(column, justify="right" if column not in ("", "answers") else "left")
    for record in match.records:
        table.add_row(*_row(record))
    console.print(table)
    for line in (*match.workload.missing, *(f"{r.entry.name}: {r.entry.note}" for r in match.records if r.entry.note)):
        console.print(line)
    console.print(_targets(match))


def _row(record: Record) -> list[str]:
    entry = record.entry
    if record.failure:
        return [entry.name, record.failure.splitlines()[0]]
    answers = {True: "equal", False: "WRONG", None: "none"}[record.right]
    rows = f"{entry.small // 1000:,} k – {entry.large // 1000:,} k"
    if record.not_done and not record.large:
        slower = f"< {record.highest_rate:,.0f}"
        whole_run = _number(record.rate("whole")) if record.whole else slower
        return [entry.name, answers, rows, whole_run, slower, "", f"not done in {record.not_done:.0f} s"]
    whole, warm = record.figures()["medians"]["whole"], record.figures()["medians"]["large"]
    return [
        entry.name,
        answers,
        rows,
        _number(record.rate("whole")),
        _number(record.rate("steady")),
        _number(record.rate("cpu")),
        f"{whole['seconds']:.1f}",
        f"{warm['seconds']:.1f}",
        f"{warm['cpu_seconds']:.1f}",
        f"{warm['memory_bytes'] / 1e6:,.0f}",
    ]


def _number(rate: float | None) -> str:
    return "?" if rate is None else f"{rate:,.0f}"


def _targets(match: Match) -> Table:
    table = Table(title="Targets: one rate over the other", title_justify="left")
    for column in ("", "over", "rate", "target", "reached", ""):
        table.add_column(column, justify="right" if column in ("target", "reached") else "left")
    for target in match.workload.targets:
        found = match.ratio(target)
        reached = "not measured" if found is None else f"{'> ' if found[1] else ''}{found[0]:.2f}"
        passed = "" if found is None else "pass" if found[0] >= target.ratio else "fail"
        table.add_row(target.own, target.other, target.rate, f"≥ {target.ratio:g}", reached, passed)
    return table
