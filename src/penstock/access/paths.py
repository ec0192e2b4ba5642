"""Which paths a pipeline may open. What is judged is what Spark, Hadoop or the operating system will open for it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from penstock.access.globs import BadGlob, expand, is_glob

OBJECT_SCHEMES = ("s3", "s3a")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?=:)")
NO_BUCKET = "it does not name a bucket"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")
_LONGEST = 4096
_MOST_DECODED = 3
"""How often a path may be decoded on its way."""


@dataclass(frozen=True)
class PathLimits:
    """Folders, and prefixes of buckets, below which paths may lie."""

    roots: tuple[str, ...]
    """Absolute, with links resolved, or `s3a://bucket/prefix`."""
    closed: str | None = None
    """The folder with the server's own files, which is never open, whatever the roots are."""
    opened: tuple[str, ...] = ()
    """The folders in there that are for pipelines."""

    @property
    def local_roots(self) -> tuple[str, ...]:
        return tuple(root for root in self.roots if not is_object(root))

    @property
    def object_roots(self) -> tuple[str, ...]:
        return tuple(root for root in self.roots if is_object(root))

    def refusal(self, path: str) -> str | None:
        """Why a path may not be opened: a local one that is absolute, or one in an object store; None if it may."""
        reason = unclear(path)
        if reason is not None:
            return reason
        if is_object(path):
            return self._object_refusal(path)
        if not path.startswith("/"):
            return "it is not absolute"
        try:
            return next((reason for one in [path, *expand(path)] if (reason := self._local_refusal(one))), None)
        except BadGlob as error:
            return str(error)

    def refusal_of_file(self, path: str) -> str | None:
        """Why a file that was found may not be read: its name is taken literally, and links are resolved."""
        if is_object(path):
            return self._object_refusal(path, literal=True)
        if not path.startswith("/") or path.startswith("//") or ".." in path.split("/"):
            return "it is not the path of a file"
        return self._outside(path)

    def _local_refusal(self, pattern: str) -> str | None:
        # Hadoop takes two slashes at the beginning for a host.
        if pattern.startswith("//"):
            return "it begins with two slashes"
        parts = [part for part in pattern.split("/") if part not in ("", ".")]
        if ".." in parts:
            return "it goes up with '..'"
        fixed = next((number for number, part in enumerate(parts) if is_glob(part)), len(parts))
        # What takes no patterns opens the name as it is written.
        return self._outside("/" + "/".join(parts[:fixed])) or self._outside("/" + "/".join(parts))

    def _outside(self, literal: str) -> str | None:
        """Whether the file, wherever links lead, lies below a root and not among the server's own files."""
        try:
            found = Path(_resolved(literal))
        except (OSError, ValueError):
            return "it cannot be resolved"
        if not any(found.is_relative_to(root) for root in self.local_roots):
            return "it leads out of these folders" if str(found) != literal else "it lies in none of these folders"
        inside = self.closed is not None and found.is_relative_to(self.closed)
        if inside and not any(found.is_relative_to(folder) for folder in self.opened):
            return "the files of the server itself lie there"
        return None

    def _object_refusal(self, path: str, *, literal: bool = False) -> str | None:
        bucket, _, key = path.partition("://")[2].partition("/")
        if not _BUCKET.fullmatch(bucket):
            return NO_BUCKET
        try:
            # What takes no patterns, such as a table or a sink, opens the name as it is written.
            keys = [key] if literal else [f"/{key}", *expand(f"/{key}")]
        except BadGlob as error:
            return str(error)
        return next((reason for one in keys if (reason := self._key_refusal(bucket, one))), None)

    def _key_refusal(self, bucket: str, key: str) -> str | None:
        parts = [part for part in key.split("/") if part not in ("", ".")]
        if ".." in parts:
            return "it goes up with '..'"
        fixed = next((number for number, part in enumerate(parts) if is_glob(part)), len(parts))
        roots = [_object_parts(root) for root in self.object_roots]
        if not roots or any([bucket, *parts[:fixed]][: len(root)] == root for root in roots):
            return None
        return "it lies in none of these places"


def _resolved(literal: str) -> str:
    """A path without links. Below what is not there nothing is, and nothing is looked for."""
    parts = [part for part in literal.split("/") if part not in ("", ".")]
    there = 0
    while there < len(parts) and os.path.lexists("/" + "/".join(parts[: there + 1])):
        there += 1
    return "/".join([os.path.realpath("/" + "/".join(parts[:there])).rstrip("/"), *parts[there:]]) or "/"


def is_object(path: str) -> bool:
    """Whether it names something in an object store."""
    return path.partition("://")[0] in OBJECT_SCHEMES and "://" in path


def scheme_of(path: str) -> str | None:
    """The scheme of a URI as Hadoop sees it: what stands before a colon that comes before any slash."""
    found = _SCHEME.match(path)
    return found[0] if found and "/" not in found[0] else None


def resolve_text(folder: Path, path: str) -> str:
    """An absolute path or URI: paths in a pipeline file are relative to the file's folder."""
    if "://" in path:
        return path
    expanded = Path(path).expanduser()
    return str(expanded if expanded.is_absolute() else (folder / expanded).resolve())


def unclear(path: str) -> str | None:
    """What makes a path one that the parts of Spark might read in different ways."""
    if not path or path != path.strip():
        return "it is empty, or begins or ends with a space"
    if len(path) > _LONGEST:
        return f"it is longer than {_LONGEST:,} characters"
    if "\\" in path:
        return "it holds a backslash"
    if any(char < " " or char == "\x7f" for char in path) or not _is_unicode(path):
        return "it holds a control character"
    if path.startswith("~"):
        return "it begins with ~"
    # In the text itself too, as Hadoop takes `x/..` away before it expands braces.
    if any(".." in re.split(r"[/{},\\]", form) for form in _decoded(path)):
        return "it goes up with '..'"
    if not is_object(path) and ("://" in path or scheme_of(path) is not None):
        return "it is the address of another file system"
    return None


def _decoded(path: str) -> Iterator[str]:
    """The path as it is and as a URL would be read: libraries that take a path for one take `%2e%2e` for `..`."""
    for _ in range(_MOST_DECODED):
        yield path
        decoded = unquote(path, errors="surrogateescape")
        if decoded == path:
            return
        path = decoded
    yield path


def leads_out(name: str) -> bool:
    """Whether the name of a file that a table or a manifest gives is anything but a place below its folder."""
    return name.startswith(("/", "~")) or "://" in name or "\\" in name or ".." in re.split(r"[/{},]", name)


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _object_parts(root: str) -> list[str]:
    return [part for part in root.partition("://")[2].split("/") if part]
