"""Writes the reference: `python -m penstock.docs`; `--check` fails if a file is out of date."""

from __future__ import annotations

import argparse
import sys

from penstock.docs.files import ROOT, stale_files, write_files


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m penstock.docs", description="Write the generated reference.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is out of date")
    if parser.parse_args(arguments).check:
        stale = stale_files(ROOT)
        for path in stale:
            print(f"{path} is out of date; run `make docs`", file=sys.stderr)
        return 1 if stale else 0
    for path in write_files(ROOT):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
