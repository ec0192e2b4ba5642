"""Pipeline files that someone sends to the server: read, and checked against its rules, without running their code."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol, cast

from penstock.access.limits import MALFORMED
from penstock.control.asking import Busy, NoAnswer, ask
from penstock.control.auth.roles import Role
from penstock.control.launch.access import ProcessAccess
from penstock.control.launch.limits import EXAMINATION
from penstock.control.policy import Policy, names_code
from penstock.control.projects import Project
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
from penstock.spec.secrets import SecretRef, references_in

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
    project: Project | None = None
    """Whose rules it keeps to."""

    @property
    def pipeline(self) -> Pipeline:
        return self.graph.file.pipeline

    @property
    def draft(self) -> Draft:
        return Draft(self.kind, self.text, dict(self.pipeline.labels), as_document(self.pipeline))


@dataclass(frozen=True)
class Rules:
    """By which a file is judged."""

    policy: Policy
    role: Role
    """That its sender has in the project."""
    project: Project | None = None


class RulesOf(Protocol):
    """By which rules the files of a sender are judged."""

    @property
    def unread(self) -> Policy:
        """The policy for code that has to be run to know the pipeline."""

    def __call__(self, pipeline: Pipeline) -> Rules:
        """Raises FORBIDDEN if there are none by which its sender may make it."""


@dataclass(frozen=True)
class Same:
    """The same rules for all files."""

    rules: Rules

    @property
    def unread(self) -> Policy:
        return self.rules.policy

    def __call__(self, pipeline: Pipeline) -> Rules:
        return self.rules


def check_all(files: Iterable[Submitted], policy: Policy | RulesOf, role: Role) -> list[Checked]:
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


def check_file(file: Submitted, policy: Policy | RulesOf, role: Role) -> Checked:
    """Reads one file; raises everything that is wrong with it."""
    draft = drafted(file, policy, role)
    errors = [problem for problem in draft.problems if problem.severity is Severity.ERROR]
    if errors:
        raise PenstockError(errors)
    assert draft.graph is not None
    project = None if draft.rules is None else draft.rules.project
    return Checked(file.path, draft.kind, file.text, draft.graph, draft.problems, project)


@dataclass(frozen=True)
class Drafted:
    """A file as far as it can be read, with all that is wrong with it."""

    kind: FileKind
    graph: Graph | None
    problems: tuple[Problem, ...]
    refused: bool
    """Whether it names what the server does not allow."""
    rules: Rules | None = None
    """None if too little of it could be read."""

    @property
    def secrets(self) -> frozenset[SecretRef]:
        if self.graph is None:
            return frozenset()
        return references_in(as_document(self.graph.file.pipeline))

    @property
    def runs_code(self) -> bool:
        """Whether trying it out runs code of its author."""
        found = () if self.graph is None else self.graph.nodes.values()
        return self.kind == "py" or any(names_code(node.component) for node in found)


def drafted(file: Submitted, policy: Policy | RulesOf, role: Role) -> Drafted:
    """Reads one file as far as that goes; raises if it may not be read at all.

    `role` is the highest that its sender has. Without a policy for all files, each is judged by the rules of its own.
    """
    kind = _KINDS.get(PurePosixPath(file.path).suffix.lower())
    if kind is None:
        raise PenstockError.of("FILE_KIND_UNKNOWN", Location(file.path), path=file.path)
    if kind == "py" and not role.covers(Role.CODER):
        raise PenstockError.of("CODE_NOT_ALLOWED", Location(file.path), where=file.path, what="a Python file")
    rules_of = _Once(Same(Rules(policy, role)) if isinstance(policy, Policy) else policy)
    # Whether what it names is there is seen where it runs: to ask would let anyone make the server reach out.
    try:
        found = examined(lambda: _read(file, kind, rules_of), World.CLOSED)
    except RecursionError:
        raise PenstockError.of("SPEC_TOO_DEEP", Location(file.path), path=file.path) from None
    if found.graph is None:
        return Drafted(kind, None, tuple(sorted(found.problems, key=_place)), refused=False)
    rules = rules_of(found.graph.file.pipeline)
    # What the server does not allow is told first: it decides how the request is answered.
    refused = rules.policy.problems(found.graph.file, rules.role)
    if kind == "py" and not rules.role.covers(Role.CODER):
        refused.append(Problem("CODE_NOT_ALLOWED", {"where": file.path, "what": "a Python file"}, Location(file.path)))
    known = {(problem.code, problem.location) for problem in refused}
    others = sorted((item for item in found.problems if (item.code, item.location) not in known), key=_place)
    # A broker or bucket that is none is told once, by its component.
    wrong = {item.location for item in others if item.code == "SPEC_BAD_VALUE" and item.severity is Severity.ERROR}
    told = [item for item in refused if item.params.get("reason") not in MALFORMED or item.location not in wrong]
    return Drafted(kind, found.graph, (*told, *others), bool(refused), rules)


class _Once:
    """Asks for the rules of a file once."""

    def __init__(self, rules_of: RulesOf) -> None:
        self._rules_of = rules_of
        self._known: Rules | None = None

    @property
    def unread(self) -> Policy:
        return self._rules_of.unread

    def __call__(self, pipeline: Pipeline) -> Rules:
        if self._known is None:
            self._known = self._rules_of(pipeline)
        return self._known


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


def _read(file: Submitted, kind: FileKind, rules_of: RulesOf) -> PipelineFile:
    shown = Path(file.path)
    if kind == "py":
        read = _from_python(file, rules_of.unread)
    else:
        read = parse_sql(file.text, shown) if kind == "sql" else parse_yaml(file.text, shown)
    # Relative paths start in the folder of the project, wherever the file was sent from.
    return PipelineFile(read.pipeline, read.places, rules_of(read.pipeline).policy.folder / f"pipeline.{kind}")


def _repeated(checked: Sequence[Checked]) -> Iterable[Problem]:
    first: dict[str, str] = {}
    for item in checked:
        name = item.pipeline.name
        if name in first:
            yield Problem("SPEC_DUPLICATE_NAME", {"name": name, "first": first[name]}, Location(item.path))
        first.setdefault(name, item.path)


# --- Python files, in a process of their own ---------------------------------------------------------------


def _from_python(file: Submitted, policy: Policy) -> PipelineFile:
    with tempfile.TemporaryDirectory(prefix="penstock-examine-") as folder:
        path = Path(folder, "pipeline.py")
        path.write_text(file.text, "utf-8")
        policy.launcher.give(Path(folder), path)
        found = _examined(path, file.path, policy)
    if "problems" in found:
        raise PenstockError(_told(item, str(path), file.path) for item in found["problems"])
    values = {tuple(place): Location(file.path, int(line), int(column)) for place, line, column in found["places"]}
    places = Places(file.path, values=values)
    return PipelineFile(assemble(found["document"], places), places, Path(file.path))


def _examined(path: Path, shown: str, policy: Policy) -> dict[str, Any]:
    access = ProcessAccess((path, *policy.folders), limits=EXAMINATION)
    try:
        found = ask(policy.launcher, "penstock.control.examine", [str(path)], access, _PATIENCE)
    except Busy:
        raise PenstockError.of("SERVER_BUSY", kind="files", seconds=2) from None
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
