"""`python -m benchmarks`: runs the benchmarks and prints ratios; `--report FILE` writes them as JSON too."""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

import pyarrow.dataset
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.contender import Contender
from benchmarks.views import write_views

_WARM_UP = 3


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--report", type=Path, help="also write the figures to this file as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        figures = passthrough(Path(folder), options.rows, options.repetitions)
    show(figures)
    if options.report:
        options.report.write_text(json.dumps(figures, indent=2) + "\n", "utf-8")
    return 0 if figures["equal"] else 1


def passthrough(folder: Path, rows: int, repetitions: int) -> dict[str, Any]:
    """Interleaved repetitions of both contenders, each in its own warm process."""
    data = folder / "views"
    write_views(data, rows, files=40)
    names = ("by hand", "penstock")
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    answers: dict[str, tuple[int, int]] = {}
    contenders = [Contender(name, "benchmarks.passthrough", [str(data)]) for name in names]
    try:
        for turn in track(range(_WARM_UP + repetitions), description="passthrough", console=Console(stderr=True)):
            for contender in contenders if turn % 2 else reversed(contenders):
                place = folder / f"{contender.name.replace(' ', '-')}-{turn}"
                figures = contender.run(place)
                if turn >= _WARM_UP:
                    runs[contender.name].append(figures)
                answers[contender.name] = checksum(place / "out")
                shutil.rmtree(place)
    finally:
        for contender in contenders:
            contender.__exit__()
    medians = {name: statistics.median(run["seconds"] for run in runs[name]) for name in names}
    return {
        "workload": "passthrough",
        "rows": rows,
        "machine": {"cores": 2, "python": platform.python_version(), "system": platform.system()},
        "equal": answers["by hand"] == answers["penstock"],
        "answer": answers["penstock"],
        "seconds": medians,
        "cpu_seconds": {name: statistics.median(run["cpu"] for run in runs[name]) for name in names},
        "rows_per_second": {name: rows / medians[name] for name in names},
        "ratio": medians["penstock"] / medians["by hand"],
        "runs": runs,
    }


def checksum(output: Path) -> tuple[int, int]:
    """Rows and the sum of a column over everything written."""
    files = [str(file) for file in output.rglob("*.parquet")]
    table = pyarrow.dataset.dataset(files, format="parquet").to_table(columns=["ms"])
    return table.num_rows, sum(chunk.to_numpy().sum().item() for chunk in table["ms"].chunks)


def show(figures: dict[str, Any]) -> None:
    table = Table(title=f"{figures['workload']} · {figures['rows']:,} rows · answers equal: {figures['equal']}")
    for column in ("", "median s", "CPU s", "rows/s"):
        table.add_column(column, justify="right" if column else "left")
    for name, seconds in figures["seconds"].items():
        cpu, rate = figures["cpu_seconds"][name], figures["rows_per_second"][name]
        table.add_row(name, f"{seconds:.2f}", f"{cpu:.2f}", f"{rate:,.0f}")
    Console().print(table)
    Console().print(f"penstock takes {figures['ratio']:.3f} times as long as the script by hand")


if __name__ == "__main__":
    raise SystemExit(main())
