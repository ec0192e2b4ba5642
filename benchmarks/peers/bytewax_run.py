"""Runs the bytewax dataflow in two processes with a worker each, with recovery snapshots every ten seconds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bytewax.recovery import init_db_dir

from benchmarks.contender import serve


def run(data: Path, folder: Path) -> None:
    out, recovery = folder / "out", folder / "recovery"
    out.mkdir()
    recovery.mkdir()
    init_db_dir(recovery, 2)
    own = {"BENCH_DATA": str(data), "BENCH_OUT": str(out), "BENCH_OVER_MS": "3600000"}
    command = ["-m", "bytewax.testing", "-p", "2", "-r", str(recovery), "-s", "10", "-b", "0"]
    subprocess.run(
        [sys.executable, *command, "benchmarks.peers.bytewax_flow:dataflow"],
        env=os.environ | own, stdout=sys.stderr, check=True,
    )  # fmt: skip


if __name__ == "__main__":
    serve(lambda: run)
