"""`penstock` whose `serve` starts runners without Spark; all else is the real command."""

from __future__ import annotations

import sys
from pathlib import Path

from penstock.cli.main import main
from penstock.control import serve

serve.RUNNER = (sys.executable, str(Path(__file__).parent / "supervisor" / "fake_runner.py"))

if __name__ == "__main__":
    main()
