"""References to secrets. A spec holds the reference only; the value is looked up in the process that runs."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus, unquote, unquote_plus, urlsplit

from penstock.access.limits import current
from penstock.errors import PenstockError, Problem

REFERENCE_LIMIT = 200
"""A reference is no longer than this, and holds no `$`: so a text with many beginnings is read once."""
_REFERENCE = re.compile(rf"\$\{{secret:([^}}$]{{1,{REFERENCE_LIMIT}}})\}}")
_resolved: dict[str, str] = {}
"""References by value, of the secrets this process has looked up: what must not be shown."""
_noted: set[SecretRef] | None = None
"""References that were met, while that is noted."""
_SHORTEST = 6
"""What only may be secret is hidden from this length on: a line of a secret, and what may be one."""
_LONGEST_EXCERPT = 30
"""A message shows no more of a broken reference: what follows may be the secret itself."""


@dataclass(frozen=True)
class SecretRef:
    """`${secret:env/NAME}` or `${secret:file/PATH}`."""

    store: str
    key: str

    def __str__(self) -> str:
        return f"${{secret:{self.store}/{self.key}}}"

    @property
    def permission(self) -> str:
        """What an operator writes so that pipelines may refer to it."""
        if self.store == "env":
            return f"secrets: {{env: [{self.key}]}}"
        return f"secrets: {{files: [{Path(self.key).parent}]}}"

    def value(self) -> str:
        """Looks the secret up; raises SECRET_NOT_SET, and SECRET_NOT_ALLOWED if this process may not have it."""
        access = current()
        if access is not None and not access.secrets.allows(self.store, self.key):
            raise PenstockError.of("SECRET_NOT_ALLOWED", where="the pipeline", reference=self, advice=self.permission)
        if self.store == "env":
            value = os.environ.get(self.key)
            if value is None:
                raise PenstockError.of(
                    "SECRET_NOT_SET", reference=self, advice=f"Set the environment variable {self.key}."
                )
            return value
        try:
            return Path(self.key).read_text("utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8 text"
            advice = f"The file {self.key} must exist and be readable ({reason})."
            raise PenstockError.of("SECRET_NOT_SET", reference=self, advice=advice) from None


def references(text: str) -> list[SecretRef]:
    """All references inside a text; raises SECRET_SYNTAX for a malformed one."""
    found = []
    for match in _REFERENCE.finditer(text):
        store, slash, key = match[1].partition("/")
        if store not in ("env", "file") or not slash or not key:
            raise PenstockError.of("SECRET_SYNTAX", text=match[0])
        found.append(SecretRef(store, key))
    if _noted is not None:
        _noted.update(found)
    left = _REFERENCE.sub("", text)
    if "${secret" in left:
        raise PenstockError.of("SECRET_SYNTAX", text=left[left.index("${secret") :][:_LONGEST_EXCERPT])
    return found


def well_formed(text: str) -> list[SecretRef]:
    """The references inside a text that can be read, as those that cannot are told elsewhere."""
    try:
        return references(text)
    except PenstockError:
        return []


def without_references(text: str, instead: str) -> str:
    """The text with the same in place of every reference."""
    return _REFERENCE.sub(instead, text)


def references_in(document: Any) -> frozenset[SecretRef]:
    """All references inside nested mappings and lists; raises SECRET_SYNTAX for a malformed one."""
    return frozenset(reference for _, text in texts(document) for reference in references(text))


def resolve(text: str) -> str:
    """The text with every reference replaced by its value."""
    values = {str(ref): ref.value() for ref in references(text)}
    for reference, value in values.items():
        _remember(value, reference)
    return _REFERENCE.sub(lambda match: values[match[0]], text)


def _remember(value: str, reference: str) -> None:
    """From now on the value is not shown, nor is what it may look like where it is printed."""
    for part in forms(value):
        _resolved[part] = reference


def forms(value: str) -> list[str]:
    """A value as messages may show it: whole, by lines, and as it is written in URLs, headers and JSON."""
    if not value:
        return []
    derived = {line.strip() for line in value.splitlines()}
    for text in {value, *_passwords(value)}:
        encoded = {quote(text, safe=""), quote(text), quote_plus(text), unquote(text), unquote_plus(text)}
        derived |= {text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], *encoded}
        derived |= {base64.b64encode(text.encode("utf-8", "surrogateescape")).decode().rstrip("=")}
    return [value, *sorted(part for part in derived if len(part) >= _SHORTEST and part != value)]


def _passwords(value: str) -> list[str]:
    """The password in a value that is a URL, which drivers take out of it."""
    try:
        found = urlsplit(value).password if "://" in value else None
    except ValueError:
        found = None
    return [] if not found else [found, unquote(found)]


@contextmanager
def noting(text: str = "") -> Iterator[None]:
    """Every reference in this text, and every one met while this lasts, counts as looked up when it ends.

    So the values are hidden that a pipeline file may have shown while it was read. If that failed, it may not have come
    to its references: then every variable of the environment counts whose name is in the text.
    """
    global _noted
    _noted = set()
    try:
        for match in _REFERENCE.finditer(text):
            with suppress(PenstockError):
                references(match[0])
        yield
    except BaseException:
        words = set(re.findall(r"\w+", text))
        _noted.update(
            SecretRef("env", name) for name in os.environ.keys() & words if len(os.environ[name]) >= _SHORTEST
        )
        raise
    finally:
        found, _noted = _noted, None
        for reference in found:
            # One that is not set is told by whoever needs it.
            with suppress(PenstockError):
                _remember(reference.value(), str(reference))


def hide(text: str) -> str:
    """The text with every secret this process has looked up replaced by its reference."""
    for value, reference in sorted(_resolved.items(), key=lambda item: -len(item[0])):
        text = text.replace(value, reference)
    return text


def hidden(error: PenstockError) -> PenstockError:
    """The same error without the values of secrets."""
    if not _resolved:
        return error
    return PenstockError(
        Problem(problem.code, {key: hide(str(value)) for key, value in problem.params.items()}, problem.location)
        for problem in error.problems
    )


def texts(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Every string inside nested mappings and lists, with its path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from texts(inner, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from texts(inner, (*path, index))
