"""The environments of other systems: made on demand below a cache folder, with the `uv` beside this Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

PACKAGES = {
    "flink": ("apache-flink==2.3.0",),
    "bytewax": ("bytewax==0.21.1", "orjson==3.13.0"),
    "duckdb": ("duckdb==2.0.0",),
}
_SECONDS = 600


def cache() -> Path:
    """Where row sets and environments are kept from one run to the next."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "penstock" / "bench"


class Unavailable(Exception):
    """A system cannot be had here; the message says why, in one line."""


def python_of(system: str) -> str:
    """The Python of an environment that has the system."""
    folder = cache() / f"{system}-venv"
    python, done = folder / "bin" / "python", folder / "packages.txt"
    wanted = "\n".join(PACKAGES[system])
    if not (done.exists() and done.read_text("utf-8") == wanted):
        seconds = _install(system, folder, python)
        done.write_text(wanted, "utf-8")
        print(f"{system}: {', '.join(PACKAGES[system])} installed in {seconds:.0f} s", file=sys.stderr)
    return str(python)


def _install(system: str, folder: Path, python: Path) -> float:
    beside = Path(sys.executable).parent / "uv"
    uv = str(beside) if beside.exists() else shutil.which("uv")
    if uv is None:
        raise Unavailable(f"{system} is left out: `uv` was not found")
    start = time.perf_counter()
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    for command in (
        [uv, "venv", "--quiet", "--no-project", "--python", sys.executable, str(folder)],
        [uv, "pip", "install", "--quiet", "--python", str(python), *PACKAGES[system]],
    ):
        try:
            result = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise Unavailable(f"{system} is left out: not installed in {_SECONDS} s") from None
        if result.returncode:
            reason = (result.stderr.strip().splitlines() or ["uv gave no reason"])[0]
            raise Unavailable(f"{system} is left out: {reason}")
    return time.perf_counter() - start
