"""What a server lets the files of its pipelines name: paths below certain folders, certain addresses and secrets.

A pipeline runs with the rights of the server, so its author could otherwise read whatever the server can. Each field
says what it holds; a text elsewhere that looks like a path or an address is judged as one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote

from penstock.access.addresses import AddressLimits, file_options, plain_password, url_scheme
from penstock.access.globs import count
from penstock.access.limits import SQLITE, Access, path_not_allowed, path_problem, url_not_allowed
from penstock.access.paths import PathLimits, is_object
from penstock.access.secrets import SecretLimits
from penstock.components.base import Component
from penstock.control.alerts.rules import unknown_channels
from penstock.control.auth.roles import Role
from penstock.control.config import AddressRules, SecretRules, ServerConfig
from penstock.control.launch.launcher import Launcher
from penstock.errors import PenstockError, Problem
from penstock.frontends.findings import place_in_words
from penstock.spec.fields import Config, Holds, held_by
from penstock.spec.location import Path_, PipelineFile
from penstock.spec.pipeline import LatePolicy, Pipeline
from penstock.spec.secrets import SecretRef, references, texts, without_references

FILES = "files"
"""The folder in the server's that is for pipelines of no project."""
PROJECTS = "projects"
"""The folder in the server's with a folder for each project, in which `files` is for its pipelines."""
_PATH_BEGINS = ("/", "~", "./", "../")
_COMMENTS = ("//", "/*")
_BROKER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):\d{1,5}")
_MOST_PATTERNS = 5_000
"""So many patterns may all paths of a file stand for: the folder of each is looked up."""
_SECRET = "secret-reference"
"""Stands for a reference while an address is taken apart."""


@dataclass(frozen=True)
class Policy:
    """The rules of one server."""

    folder: Path
    """Where relative paths start."""
    roots: tuple[str, ...]
    """Folders, and prefixes of buckets, below which paths may lie."""
    data: Path
    """The server's own folder."""
    addresses: AddressRules
    secrets: SecretRules
    channels: frozenset[str] = frozenset()
    """By which alerts may be told."""
    launcher: Launcher = field(default_factory=Launcher)
    """How processes are started that read or run pipelines."""

    @classmethod
    def of(cls, config: ServerConfig, data: Path) -> Policy:
        data = data.resolve()
        folder = (Path(config.paths.folder).expanduser() if config.paths.folder else data / FILES).resolve()
        allowed = (root if is_object(root) else str(Path(root).expanduser().resolve()) for root in config.paths.allowed)
        channels, launcher = frozenset(config.notify), launcher_of(config, data)
        return cls(folder, (str(folder), *allowed), data, config.addresses, config.secrets, channels, launcher)

    @property
    def folders(self) -> tuple[Path, ...]:
        """Folders of this machine below which paths may lie."""
        return tuple(Path(root) for root in self.roots if not is_object(root))

    @cached_property
    def access(self) -> Access:
        """The same for the process that runs a pipeline."""
        rules = self.addresses
        # A project has a folder of its own among the server's files, and no other project's is open to it.
        own = self.folder if self.folder.parent.parent == self.data / PROJECTS else self.data / FILES
        files = tuple(str(Path(root).expanduser().resolve()) for root in self.secrets.files)
        return Access(
            PathLimits(self.roots, str(self.data), (str(own),)),
            AddressLimits(rules.schemes, rules.hosts, rules.denied),
            SecretLimits(self.secrets.env, files),
        )

    def problems(self, file: PipelineFile, role: Role) -> list[Problem]:
        """All that the file may not name, each at its place."""
        found = unknown_channels(file, self.channels)
        patterns = 0
        for path, component in components_of(file.pipeline):
            if names_code(component):
                found += self._code(file, path, "a Python function", role)
            for inner, holds, text in _texts(component, path):
                place = file.places.of(*inner)
                where = place_in_words(inner)
                patterns += count(text) if holds is Holds.PATH or _looks_like_path(text) else 0
                if patterns > _MOST_PATTERNS:
                    reason = f"with those before it, it stands for more than {_MOST_PATTERNS:,} patterns"
                    problem = path_not_allowed(self.access, where, text, reason)
                    return [*found, Problem(problem.code, problem.params, place)]
                found += (Problem(item.code, item.params, place) for item in self._text(where, holds, text))
        return found

    def _code(self, file: PipelineFile, path: Path_, what: str, role: Role) -> Iterator[Problem]:
        if not role.covers(Role.CODER):
            params = {"where": place_in_words(path), "what": what}
            yield Problem("CODE_NOT_ALLOWED", params, file.places.of(*path))

    def _text(self, where: str, holds: Holds | None, text: str) -> Iterator[Problem]:
        try:
            secrets = references(text)
        except PenstockError:
            return  # It is told as what it is, a malformed reference.
        yield from (self._refused(where, secret) for secret in secrets if not self.may_refer(secret))
        # A secret may stand for any part; what it holds is judged where it is used.
        shown = without_references(text, _SECRET)
        if holds is Holds.PATH or (holds is not Holds.ADDRESS and _looks_like_path(shown)):
            yield from self._path(where, shown)
        elif holds is Holds.ADDRESS or url_scheme(shown) is not None or _looks_like_brokers(shown):
            yield from self._address(where, shown)

    def _path(self, where: str, path: str) -> Iterator[Problem]:
        problem = path_problem(self.access, self.folder, path, where)
        if problem is not None:
            yield problem

    def _address(self, where: str, text: str) -> Iterator[Problem]:
        if text.lower().startswith("sqlite:"):
            yield from self._sqlite(where, text)
            return
        if text == _SECRET:
            return
        scheme = url_scheme(text)
        if is_object(text) and scheme in self.addresses.schemes:
            yield from self._path(where, text)
            return
        reason = self.access.addresses.refusal(text)
        if reason is not None:
            yield url_not_allowed(self.access, where, reason)
            return
        for file in file_options(text):
            # Drivers take it from the folder of the process, so only an absolute path says which file it is.
            problem = path_problem(self.access, Path("/"), file, where)
            yield from () if problem is None else (problem,)
        password = plain_password(text)
        if password and _SECRET not in password:
            yield Problem("SECRET_IN_PLAIN_TEXT", {"where": where})

    def _sqlite(self, where: str, text: str) -> Iterator[Problem]:
        if not text.startswith(SQLITE):
            yield url_not_allowed(self.access, where, f"the address of a file of SQLite begins with {SQLITE}")
        else:
            yield from self._path(where, unquote(text.removeprefix(SQLITE)))

    def may_refer(self, reference: SecretRef) -> bool:
        return self.access.secrets.allows(reference.store, reference.key)

    def _refused(self, where: str, reference: SecretRef) -> Problem:
        return Problem("SECRET_NOT_ALLOWED", {"where": where, "reference": reference, "advice": reference.permission})


def launcher_of(config: ServerConfig, data: Path) -> Launcher:
    """How a server with this configuration and this folder starts processes of pipelines."""
    runs = config.runs
    private = (data, *config.private_files)
    return Launcher(runs.environment, config.own_variables, private, runs.readable, runs.mask)


def _looks_like_path(text: str) -> bool:
    """Whether it is a path, in a field of which that is not known; texts with spaces in them are something else."""
    text = text.strip()
    if not text or len(text.split()) > 1 or text.startswith(_COMMENTS):
        return False
    return text.startswith(_PATH_BEGINS) or "/../" in text or text.endswith("/..")


def _looks_like_brokers(text: str) -> bool:
    return all(_BROKER.fullmatch(part.strip()) for part in text.split(","))


def names_code(component: Config) -> bool:
    """Whether it names code that is to be run, as the step `python` does; of other packages others may."""
    return any(holds is Holds.CODE for _, holds, _ in _texts(component, ()))


def components_of(pipeline: Pipeline) -> Iterator[tuple[Path_, Config]]:
    """Every component of a pipeline, with where it stands in a file."""
    for source in pipeline.sources:
        path: Path_ = ("spec", "sources", source.name)
        yield from _at(path, source.component)
        yield from _at((*path, "format"), source.format)
        if source.bootstrap is not None:
            yield from _at((*path, "bootstrap"), source.bootstrap.component)
            yield from _at((*path, "bootstrap", "format"), source.bootstrap.format)
    for step in pipeline.steps:
        yield from _at(("spec", "steps", step.name), step.component)
        yield from _late(("spec", "steps", step.name, "late"), step.late)
    for sink in pipeline.sinks:
        yield from _at(("spec", "sinks", sink.name), sink.component)
    yield from _at(("spec", "deadLetters"), pipeline.dead_letters)
    yield from _late(("spec", "late"), pipeline.late)


def _late(path: Path_, policy: LatePolicy | None) -> Iterator[tuple[Path_, Config]]:
    if policy is not None:
        yield from _at((*path, "sink"), policy.sink)


def _at(path: Path_, component: Config | None) -> Iterator[tuple[Path_, Config]]:
    if component is not None:
        yield (*path, component.name if isinstance(component, Component) else type(component).__name__), component


def _texts(config: Config, path: Path_) -> Iterator[tuple[Path_, Holds | None, str]]:
    """Every text in a configuration: where it stands, what it holds, and the text."""
    for name, info in type(config).model_fields.items():
        value, inner = getattr(config, name), (*path, info.alias or name)
        if isinstance(value, Config):
            yield from _texts(value, inner)
        elif name != "rows":
            for further, text in texts(value if not hasattr(value, "items") else dict(value)):
                yield (*inner, *further), held_by(type(config), name), text
