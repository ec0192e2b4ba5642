"""What a server lets the files of its pipelines name: paths below certain folders, certain addresses and secrets.

A pipeline runs with the rights of the server, so its author could otherwise read whatever the server can. Every text in
every component is looked at; what looks like a path or an address is one, whatever the field is called.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import urlsplit

from penstock.components.base import Component, resolve_path
from penstock.control.alerts.rules import unknown_channels
from penstock.control.auth.roles import Role
from penstock.control.config import AddressRules, SecretRules, ServerConfig
from penstock.errors import PenstockError, Problem
from penstock.frontends.findings import place_in_words
from penstock.spec.fields import Config
from penstock.spec.location import Path_, PipelineFile
from penstock.spec.pipeline import LatePolicy, Pipeline
from penstock.spec.secrets import SecretRef, references, texts

PATH_FIELDS = {"path", "archive_to", "schema_file", "descriptors", "ca", "certificate", "certificate_key"}
"""Fields that hold a path even if it does not look like one."""
_SCHEME = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]*):(?=/|[A-Za-z][A-Za-z0-9+.-]*:/)")
_PATH_SCHEME = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]*):")
_LOOKS_LIKE_PATH = re.compile(r"\s*(/(?![/*])\S*|~\S*|\.\.?/\S*|\S*/\.\./\S*|\S*/\.\.)\s*")
_BROKERS = re.compile(r"\s*(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):\d{1,5}\s*")
_PARTS = re.compile(r"[/{},]")
_CODE = re.compile(
    r"(?i)(?<![A-Za-z0-9_])(reflect|try_reflect|java_method)`?\s*(/\*.*?\*/|--[^\n]*\n|\s)*\(", re.DOTALL
)
"""Functions of SQL that call Java."""
_SECRET = "secret-reference"
"""Stands for a reference while an address is taken apart."""
_METADATA_NAMES = ("metadata", "metadata.google.internal", "instance-data", "instance-data.ec2.internal")
_METADATA_NETWORKS = tuple(
    ipaddress.ip_network(network)
    for network in (
        "169.254.0.0/16", "fe80::/10", "fd00:ec2::254/128", "100.100.100.200/32", "192.0.0.192/32", "168.63.129.16/32",
    )
)  # fmt: skip


@dataclass(frozen=True)
class Policy:
    """The rules of one server."""

    folder: Path
    """Where relative paths start."""
    roots: tuple[Path, ...]
    addresses: AddressRules
    secrets: SecretRules
    channels: frozenset[str] = frozenset()
    """By which alerts may be told."""

    @classmethod
    def of(cls, config: ServerConfig, data: Path) -> Policy:
        folder = (Path(config.paths.folder).expanduser() if config.paths.folder else data / "files").resolve()
        allowed = (Path(root).expanduser().resolve() for root in config.paths.allowed)
        return cls(folder, (folder, *allowed), config.addresses, config.secrets, frozenset(config.notify))

    def problems(self, file: PipelineFile, role: Role) -> list[Problem]:
        """All that the file may not name, each at its place."""
        found = unknown_channels(file, self.channels)
        for path, component in components_of(file.pipeline):
            if getattr(component, "name", "") == "python" and getattr(component, "kind", "") == "step":
                found += self._code(file, path, "a Python function", role)
            for inner, name, text in _texts(component, path):
                place = file.places.of(*inner)
                where = place_in_words(inner)
                found += (Problem(item.code, item.params, place) for item in self._text(where, name, text))
                if _CODE.search(text):
                    found += self._code(file, inner, "a SQL function that calls Java", role)
        return found

    def _code(self, file: PipelineFile, path: Path_, what: str, role: Role) -> Iterator[Problem]:
        if not role.covers(Role.CODER):
            params = {"where": place_in_words(path), "what": what}
            yield Problem("CODE_NOT_ALLOWED", params, file.places.of(*path))

    def _text(self, where: str, name: str, text: str) -> Iterator[Problem]:
        try:
            secrets = references(text)
        except PenstockError:
            return  # It is told as what it is, a malformed reference.
        for reference in secrets:
            if not self._may_refer(reference):
                yield Problem("SECRET_NOT_ALLOWED", {"where": where, "reference": reference})
        scheme = (_PATH_SCHEME if name in PATH_FIELDS else _SCHEME).match(text)
        if scheme is not None and scheme[1].lower() == "sqlite":
            yield from self._path(where, text.strip()[len("sqlite:///") :], secret=bool(secrets))
        elif scheme is not None:
            yield from self._address(where, text, scheme[1].lower())
        elif name in PATH_FIELDS or _LOOKS_LIKE_PATH.fullmatch(text):
            yield from self._path(where, text, secret=bool(secrets))
        elif all(_BROKERS.fullmatch(part) for part in text.split(",")):
            for part in text.split(","):
                yield from self._host(where, part.strip().rpartition(":")[0])

    def _path(self, where: str, path: str, *, secret: bool) -> Iterator[Problem]:
        if secret or not self._may_use(path):
            shown = ", ".join(map(str, self.roots))
            yield Problem("PATH_NOT_ALLOWED", {"where": where, "path": path, "allowed": shown})

    def _may_use(self, path: str) -> bool:
        # Globs may hold alternatives in braces, and a backslash hides what follows it.
        if "\\" in path or "\x00" in path or ".." in _PARTS.split(path):
            return any(root == Path("/") for root in self.roots)
        resolved = Path(resolve_path(self.folder, path.strip())).resolve()
        return any(resolved.is_relative_to(root) for root in self.roots)

    def _may_refer(self, reference: SecretRef) -> bool:
        if reference.store == "env":
            allowed = any(fnmatchcase(reference.key, pattern) for pattern in self.secrets.env)
            return allowed and not reference.key.upper().startswith("PENSTOCK_")
        resolved = Path(reference.key).resolve()
        roots = (Path(root).expanduser().resolve() for root in self.secrets.files)
        return ".." not in Path(reference.key).parts and any(resolved.is_relative_to(root) for root in roots)

    def _address(self, where: str, text: str, scheme: str) -> Iterator[Problem]:
        if scheme not in self.addresses.schemes:
            advice = "Write a plain path." if scheme == "file" else f"Allowed: {', '.join(self.addresses.schemes)}."
            yield _refused(where, f"addresses that start with {scheme}: are not allowed", advice)
            return
        if scheme in ("s3", "s3a"):
            return  # A bucket's name, not a host's.
        try:
            # A secret may stand for any part; what it holds is the operator's.
            parts = urlsplit(re.sub(r"\$\{secret:[^}]*\}", _SECRET, text.strip()))
            host = parts.hostname
        except ValueError:
            yield _refused(where, "it cannot be read as an address", "")
            return
        if not host:
            yield _refused(where, "it names no host", "")
            return
        if parts.password and _SECRET not in parts.password:
            yield Problem("SECRET_IN_PLAIN_TEXT", {"where": where})
        yield from self._host(where, host)

    def _host(self, where: str, host: str) -> Iterator[Problem]:
        name = host.strip("[]").rstrip(".").lower()
        if is_metadata(name) or any(fnmatchcase(name, pattern.lower()) for pattern in self.addresses.denied):
            yield _refused(where, f"{name} may not be reached by pipelines", "")
        elif self.addresses.hosts and not any(fnmatchcase(name, item.lower()) for item in self.addresses.hosts):
            yield _refused(where, f"{name} is not among the hosts that pipelines may reach", "")


def _refused(where: str, reason: str, advice: str) -> Problem:
    return Problem("URL_NOT_ALLOWED", {"where": where, "reason": reason, "advice": advice})


def is_metadata(host: str) -> bool:
    """Whether a host is where a cloud tells a machine its secrets, in any way of writing an address."""
    if host in _METADATA_NAMES:
        return True
    address = _as_address(host)
    if address is None:
        return False
    mapped = getattr(address, "ipv4_mapped", None) or getattr(address, "sixtofour", None)
    return any(each in network for each in (address, mapped) if each for network in _METADATA_NETWORKS)


def _as_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        pass
    try:
        # Also what only the C library takes for an address, such as 2852039166 and 0xa9.0xfe.43518.
        return ipaddress.IPv4Address(socket.inet_aton(host)) if host and host[0].isdigit() else None
    except OSError:
        return None


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


def _texts(config: Config, path: Path_) -> Iterator[tuple[Path_, str, str]]:
    """Every text in a configuration: where it stands, the field that holds it, and the text."""
    for name, info in type(config).model_fields.items():
        value, inner = getattr(config, name), (*path, info.alias or name)
        if isinstance(value, Config):
            yield from _texts(value, inner)
        elif name != "rows":
            for further, text in texts(value if not hasattr(value, "items") else dict(value)):
                yield (*inner, *further), name, text
