"""`penstock` whose `serve` starts runners without Spark; all else is the real command."""

from __future__ import annotations

import os
import sys

from tests.control.supervisor.world import FAKE, FAKE_WORKER

from penstock.cli.main import main
from penstock.control import serve

serve.RUNNER = (sys.executable, os.environ["FAKE_RUNNER"]) if "FAKE_RUNNER" in os.environ else FAKE
serve.WORKER = FAKE_WORKER

if __name__ == "__main__":
    main()
