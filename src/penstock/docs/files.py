"""The files of the reference, and whether they are up to date."""

from __future__ import annotations

import json
from pathlib import Path

from penstock.docs.capacity import capacity_page, capacity_picture
from penstock.docs.cli import cli_page
from penstock.docs.components import components_page
from penstock.docs.doctor import doctor_page
from penstock.docs.errors import errors_page
from penstock.docs.kills import KILLS, results_page
from penstock.docs.metrics import metrics_page
from penstock.docs.picture import run_picture
from penstock.docs.pipeline_file import pipeline_file_page
from penstock.docs.server import api, server_page
from penstock.frontends.json_schema import json_schema
from penstock.frontends.stubs import STUB, stub_text
from penstock.testing.kills import read_tally

ROOT = Path(__file__).resolve().parents[3]
GENERATED = Path("docs/generated")
PICTURE = Path("docs/images/run.svg")
CAPACITY_PICTURE = Path("docs/images/capacity.svg")
RESULTS = KILLS.with_suffix(".md")


def generated_files() -> dict[Path, str]:
    """The text of every generated file, by its path in the repository."""
    return {
        GENERATED / "components.md": components_page(),
        GENERATED / "pipeline-file.md": pipeline_file_page(),
        GENERATED / "errors.md": errors_page(),
        GENERATED / "metrics.md": metrics_page(),
        GENERATED / "doctor.md": doctor_page(),
        GENERATED / "cli.md": cli_page(),
        GENERATED / "capacity.md": capacity_page(),
        GENERATED / "server.md": server_page(),
        GENERATED / "openapi.json": json.dumps(api().openapi(), indent=1, sort_keys=True) + "\n",
        GENERATED / "penstock.schema.json": json.dumps(json_schema(), indent=2) + "\n",
        RESULTS: results_page(read_tally(ROOT / KILLS)),
        STUB.relative_to(ROOT): stub_text(),
        PICTURE: run_picture(),
        CAPACITY_PICTURE: capacity_picture(ROOT / "examples" / "capacity" / "guide.yaml"),
    }


def stale_files(root: Path) -> list[Path]:
    """Generated files that are missing, differ from what would be written now, or are no longer written at all."""
    wanted = generated_files()
    stale = [path for path, text in wanted.items() if _text(root / path) != text]
    present = (path.relative_to(root) for path in sorted((root / GENERATED).glob("*")))
    return stale + [path for path in present if path not in wanted]


def write_files(root: Path) -> list[Path]:
    """Brings every generated file up to date; gives those that have changed."""
    changed = stale_files(root)
    for path, text in generated_files().items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, "utf-8")
    for path in changed:
        if path not in generated_files():
            (root / path).unlink()
    return changed


def _text(path: Path) -> str | None:
    return path.read_text("utf-8") if path.is_file() else None
