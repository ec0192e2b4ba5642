"""Pipeline files that someone sends to the server: read, and checked against its rules, without running their code."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, cast

from penstock.control.asking import NoAnswer, ask
from penstock.control.auth.roles import Role
from penstock.control.policy import Policy
from penstock.control.store.pipelines import Draft, FileKind, Version
from penstock.errors import CODES, Location, PenstockError, Problem, Severity
from penstock.frontends.assemble import assemble
from penstock.frontends.examine import examined
from penstock.frontends.sql import parse_sql
from penstock.frontends.yaml import parse_yaml
from penstock.graph.build import build
from penstock.graph.nodes import Graph
from penstock.graph.validate import World
from penstock.spec.dump import as_document
from penstock.spec.location import PipelineFile, Places
from penstock.spec.pipeline import Pipeline
from penstock.spec.secrets import SecretRef, references, texts

_KINDS: Mapping[str, FileKind] = {".yaml": "yaml", ".yml": "yaml", ".sql": "sql", ".py": "py"}
_PATIENCE = 60.0
"""Seconds that reading a Python file may take."""


@dataclass(frozen=True)
class Submitted:
    """A file by the name its sender knows it by, which is never used as a path."""

    path: str
    text: str


@dataclass(frozen=True)
class Checked:
    """A file that the server would take."""

    path: str
    kind: FileKind
    text: str
    graph: Graph
    warnings: tuple[Problem, ...] = ()

    @property
    def pipeline(self) -> Pipeline:
        return self.graph.file.pipeline

    @property
    def draft(self) -> Draft:
        return Draft(self.kind, self.text, dict(self.pipeline.labels), as_document(self.pipeline))


def check_all(files: Iterable[Submitted], policy: Policy, role: Role) -> list[Checked]:
    """Reads all files; raises everything that is wrong with any of them."""
    checked: list[Checked] = []
    problems: list[Problem] = []
    for file in files:
        try:
            checked.append(check_file(file, policy, role))
        except PenstockError as error:
            problems += error.problems
    problems += _repeated(checked)
    if problems:
        raise PenstockError(problems)
    return checked


def check_file(file: Submitted, policy: Policy, role: Role) -> Checked:
    """Reads one file; raises everything that is wrong with it."""
    draft = drafted(file, policy, role)
    errors = [problem for problem in draft.problems if problem.severity is Severity.ERROR]
    if errors:
        raise PenstockError(errors)
    assert draft.graph is not None
    return Checked(file.path, draft.kind, file.text, draft.graph, draft.problems)


@dataclass(frozen=True)
class Drafted:
    """A file as far as it can be read, with all that is wrong with it."""

    kind: FileKind
    graph: Graph | None
    problems: tuple[Problem, ...]
    refused: bool
    """Whether it names what the server does not allow."""

    @property
    def secrets(self) -> frozenset[SecretRef]:
        if self.graph is None:
            return frozenset()
        return frozenset(
            found for _, text in texts(as_document(self.graph.file.pipeline)) for found in references(text)
        )

    @property
    def runs_code(self) -> bool:
        """Whether trying it out runs code of its author."""
        found = () if self.graph is None else self.graph.nodes.values()
        return self.kind == "py" or any(node.component.name == "python" for node in found)


def drafted(file: Submitted, policy: Policy, role: Role) -> Drafted:
    """Reads one file as far as that goes; raises if it may not be read at all."""
    kind = _KINDS.get(PurePosixPath(file.path).suffix.lower())
    if kind is None:
        raise PenstockError.of("FILE_KIND_UNKNOWN", Location(file.path), path=file.path)
    if kind == "py" and not role.covers(Role.CODER):
        raise PenstockError.of("CODE_NOT_ALLOWED", Location(file.path), where=file.path, what="a Python file")
    # Whether what it names is there is seen where it runs: to ask would let anyone make the server reach out.
    found = examined(lambda: _read(file, kind, policy.folder), World.CLOSED)
    # What the server does not allow is told first: it decides how the request is answered.
    refused = [] if found.graph is None else policy.problems(found.graph.file, role)
    known = {(problem.code, problem.location) for problem in refused}
    others = sorted((item for item in found.problems if (item.code, item.location) not in known), key=_place)
    return Drafted(kind, found.graph, (*refused, *others), bool(refused))


def _place(problem: Problem) -> tuple[int, int]:
    return (problem.location.line, problem.location.column) if problem.location else (0, 0)


def from_document(document: Mapping[str, Any]) -> Pipeline | None:
    """A pipeline that was taken earlier; None if this Penstock can no longer read it."""
    try:
        return assemble(document, Places("stored"))
    except PenstockError:
        return None


def graph_of(version: Version, folder: Path) -> Graph | None:
    """The pipeline of a version that was taken earlier; None if this Penstock can no longer read it."""
    pipeline = from_document(version.document)
    if pipeline is None:
        return None
    return build(PipelineFile(pipeline, Places("stored"), folder / f"pipeline.{version.kind}"))


def _read(file: Submitted, kind: FileKind, folder: Path) -> PipelineFile:
    shown = Path(file.path)
    if kind == "py":
        return _from_python(file, folder / "pipeline.py")
    read = parse_sql(file.text, shown) if kind == "sql" else parse_yaml(file.text, shown)
    # Relative paths start in the server's folder, wherever the file was sent from.
    return PipelineFile(read.pipeline, read.places, folder / f"pipeline.{kind}")


def _repeated(checked: Sequence[Checked]) -> Iterable[Problem]:
    first: dict[str, str] = {}
    for item in checked:
        name = item.pipeline.name
        if name in first:
            yield Problem("SPEC_DUPLICATE_NAME", {"name": name, "first": first[name]}, Location(item.path))
        first.setdefault(name, item.path)


# --- Python files, in a process of their own ---------------------------------------------------------------


def _from_python(file: Submitted, at: Path) -> PipelineFile:
    with tempfile.TemporaryDirectory(prefix="penstock-examine-") as folder:
        path = Path(folder, "pipeline.py")
        path.write_text(file.text, "utf-8")
        found = _examined(path, file.path)
    if "problems" in found:
        raise PenstockError(_told(item, str(path), file.path) for item in found["problems"])
    values = {tuple(place): Location(file.path, int(line), int(column)) for place, line, column in found["places"]}
    places = Places(file.path, values=values)
    return PipelineFile(assemble(found["document"], places), places, at)


def _examined(path: Path, shown: str) -> dict[str, Any]:
    try:
        found = ask("penstock.control.examine", [str(path)], path.parent, _PATIENCE)
    except NoAnswer as reason:
        raise PenstockError.of("EXAMINATION_FAILED", Location(shown), path=shown, reason=reason) from None
    if not ({"problems", "places"} & found.keys()):
        raise PenstockError.of("EXAMINATION_FAILED", Location(shown), path=shown, reason="there is no answer in it")
    return found


def _told(item: Mapping[str, Any], path: str, shown: str) -> Problem:
    """A problem as the process told it, with the file's own name."""
    code = item["code"] if item.get("code") in CODES else "EXAMINATION_FAILED"
    params = {key: str(value).replace(path, shown) for key, value in item.get("params", {}).items()}
    place = cast(dict[str, Any], item.get("location") or {})
    return Problem(code, params, Location(shown, int(place.get("line", 1)), int(place.get("column", 1))))
