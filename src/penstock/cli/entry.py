"""Where the command `penstock` begins: a standby process runs it if there is one, and else this process does."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Runs the command and ends the process with its exit code."""
    from penstock.cli.standby.client import hand_over, is_for, start_next

    if not is_for(sys.argv[1:]):
        _run()
        return
    # The command itself sets variables for Spark.
    environment = dict(os.environ)
    try:
        code = hand_over(sys.argv[1:], environment)
        if code is not None:
            sys.exit(code)
        _run()
    finally:
        start_next(environment)


def _run() -> None:
    from penstock.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
