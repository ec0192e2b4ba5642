"""What the pipeline of this process may open, and the doors through which everything is opened.

A process runs one pipeline, so its limits are those of the process: whatever opens something asks here, and nothing has
to be handed down to it. A server tells a process its limits when it starts it; without any, as with `penstock run`,
whoever started it may open what they may open themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.access.addresses import NO_ADDRESS, AddressLimits, file_options, servers
from penstock.access.paths import NO_BUCKET, OBJECT_SCHEMES, PathLimits, is_object, resolve_text, scheme_of, unclear
from penstock.access.secrets import SecretLimits
from penstock.errors import PenstockError, Problem

MALFORMED = (NO_ADDRESS, NO_BUCKET)
"""Reasons that say that a text names nothing, whatever is allowed."""
SQLITE = "sqlite:///"


@dataclass(frozen=True)
class Access:
    """All that one pipeline may open."""

    paths: PathLimits
    addresses: AddressLimits
    secrets: SecretLimits

    def with_own(self, folder: Path) -> Access:
        """The same with the folder in which the pipeline keeps its state, where its late rows and dead letters lie."""
        own = str(folder.resolve())
        paths = replace(self.paths, roots=(*self.paths.roots, own), opened=(*self.paths.opened, own))
        return replace(self, paths=paths)


_current: Access | None = None


def limit(access: Access | None) -> None:
    """From now on this process opens nothing else."""
    global _current
    _current = access


def current() -> Access | None:
    return _current


@contextmanager
def limited(access: Access | None) -> Iterator[None]:
    """The same for a while, for a process that answers several questions."""
    before = _current
    limit(access)
    try:
        yield
    finally:
        limit(before)


def checked_path(folder: Path, path: str, where: str = "the pipeline") -> str:
    """An absolute path or URI that may be opened; raises PATH_NOT_ALLOWED or URL_NOT_ALLOWED."""
    if _current is None:
        return resolve_text(folder, path)
    problem = path_problem(_current, folder, path, where)
    if problem is not None:
        raise PenstockError(problem)
    return resolve_text(folder, path)


def path_problem(access: Access, folder: Path, path: str, where: str) -> Problem | None:
    """What forbids a path as it is written in a pipeline."""
    scheme = scheme_of(path)
    if scheme is not None and not is_object(path):
        return _of_other_system(access, path, scheme.lower(), where)
    if scheme is not None and scheme not in access.addresses.schemes:
        return url_not_allowed(access, where, scheme_reason(scheme))
    reason = unclear(path) or access.paths.refusal(resolve_text(folder, path))
    return None if reason is None else path_not_allowed(access, where, path, reason)


def _of_other_system(access: Access, path: str, scheme: str, where: str) -> Problem | None:
    """Of file systems that an operator may have allowed: that of the machine is named by plain paths only."""
    if scheme in OBJECT_SCHEMES:
        return url_not_allowed(access, where, f"it must begin with {scheme}://")
    if scheme == "file" or scheme not in access.addresses.schemes:
        return url_not_allowed(access, where, scheme_reason(scheme))
    reason = access.addresses.refusal(path)
    if reason is None and ".." in re.split(r"[/{},\\]", path):
        reason = "it goes up with '..'"
    return None if reason is None else url_not_allowed(access, where, reason)


def check_files(files: Iterable[str], where: str = "the pipeline") -> None:
    """Refuses files that were found where a path leads, and lie elsewhere: behind a link, or named by a manifest."""
    if _current is None:
        return
    for file in files:
        reason = _current.paths.refusal_of_file(file)
        if reason is not None:
            raise PenstockError(path_not_allowed(_current, where, file, reason))


def check_address(address: str, where: str = "the pipeline") -> None:
    """Refuses an address that may not be reached now, or whose options name files that may not be read."""
    if _current is None or address.startswith(SQLITE):
        return
    reason = _current.addresses.refusal(address)
    for host in () if reason else servers(address):
        reason = reason or _current.addresses.refusal_of_server(host)
    if reason is not None:
        raise PenstockError(url_not_allowed(_current, where, reason))
    for file in file_options(address):
        checked_path(Path("/"), file, where)


def scheme_reason(scheme: str) -> str:
    return f"addresses that start with {scheme}: are not allowed"


def path_not_allowed(access: Access, where: str, path: str, reason: str) -> Problem:
    allowed = ", ".join(access.paths.roots)
    return Problem("PATH_NOT_ALLOWED", {"where": where, "path": path, "reason": reason, "allowed": allowed})


def url_not_allowed(access: Access, where: str, reason: str) -> Problem:
    advice = ""
    if "that start with" in reason:
        file = " file:" in reason
        advice = "Write a plain path." if file else f"Allowed: {', '.join(access.addresses.schemes)}."
    return Problem("URL_NOT_ALLOWED", {"where": where, "reason": reason, "advice": advice})
