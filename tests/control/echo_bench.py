"""Stands for the process that tries out pipelines: it answers with what it was asked and what it is."""

from __future__ import annotations

import json
import os
import sys
import time


def main() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        if asked.get("verb") == "die":
            sys.exit(3)
        if asked.get("verb") == "sleep":
            time.sleep(60)
        known = {key: value for key, value in os.environ.items() if key.startswith(("BENCH_", "PENSTOCK_"))}
        print(json.dumps({"answer": {"asked": asked, "pid": os.getpid(), "environment": known}}), flush=True)


if __name__ == "__main__":
    main()
