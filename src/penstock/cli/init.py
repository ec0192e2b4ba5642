"""`penstock init`: writes a small project that works as it is, to be changed into one's own."""

from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.output import out
from penstock.errors import PenstockError
from penstock.spec.pipeline import PIPELINE_NAME

_TEMPLATES = {
    "pipeline.yaml": "pipeline.yaml",
    "data/views.json": "data/views.json",
    "README.md": "README.md",
    # Without its dot, or git would obey it inside this repository.
    ".gitignore": "gitignore",
}
_SCHEMA = "penstock.schema.json"


def scaffold(folder: Path, name: str) -> list[Path]:
    """Writes the project and returns the files. Nothing is written if the name or the folder will not do."""
    if PIPELINE_NAME.fullmatch(name) is None:
        raise PenstockError.of("SPEC_BAD_NAME", name=name, kind="pipeline")
    contents = _contents(name)
    try:
        _refuse_unless_free(folder)
        return [_write(folder / path, text) for path, text in contents.items()]
    except OSError as error:
        raise PenstockError.of("PATH_NOT_WRITABLE", path=folder, reason=error.strerror or str(error)) from error


def name_from_folder(folder: Path) -> str:
    """The folder's name, made fit for a pipeline."""
    words = re.sub(r"[^a-z0-9_]+", "-", folder.resolve().name.lower()).strip("-_")
    fitting = PIPELINE_NAME.match(words)
    return fitting[0] if fitting else "pipeline"


def _contents(name: str) -> dict[str, str]:
    from penstock.frontends.json_schema import json_schema

    templates = resources.files("penstock.cli") / "templates"
    texts = {
        path: templates.joinpath(template).read_text("utf-8").replace("{{name}}", name)
        for path, template in _TEMPLATES.items()
    }
    return texts | {_SCHEMA: json.dumps(json_schema(), indent=2) + "\n"}


def _refuse_unless_free(folder: Path) -> None:
    """A fresh clone counts as empty."""
    if folder.exists() and any(entry.name != ".git" for entry in folder.iterdir()):
        raise PenstockError.of("TARGET_NOT_EMPTY", path=folder)


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def register(app: typer.Typer) -> None:
    app.command("init")(init)


def init(
    folder: Annotated[Path, typer.Argument(help="Where to put the project; made if it does not exist.")] = Path(),
    name: Annotated[str | None, typer.Option("--name", help="The pipeline's name. Default: the folder's.")] = None,
) -> None:
    """Write a small working project: a pipeline, sample data, tests and a README."""
    for path in scaffold(folder, name or name_from_folder(folder)):
        out.print(f"  wrote {path}", markup=False)
    pipeline = folder / "pipeline.yaml"
    out.print(f"\nTry: penstock test {pipeline}\n     penstock run {pipeline} --once", markup=False)
