"""A Delta table: where it is, what its columns are, and what errors of its library mean."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.access.limits import check_files
from penstock.components.shared.delta_log import LOG
from penstock.components.shared.place import Place
from penstock.components.shared.s3 import S3, Access, Trouble, access, failure, is_s3
from penstock.components.shared.storage import S3Storage
from penstock.errors import PenstockError, Problem

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import SparkSession

_ARROW = re.compile(r"(?<!\s)\s*\x1b\[\d+m↳\x1b\[0m\s*")
_ASKED = re.compile(r"S3 error|status code|Error performing")
_NO_SPACE = ("No space left on device", "Disk quota exceeded")
_NOT_LITERAL = frozenset("%?#[]\\^|")
_PLAIN = "Use a folder whose name has none of these: % ? # [ ] \\ ^ |"
_NO_RIGHT = ("Permission denied", "Read-only file system")


@dataclass(frozen=True)
class Location:
    """A folder, or a prefix in a bucket."""

    path: str
    access: Access | None = None

    @property
    def place(self) -> Place:
        return Place(self.path, self.access)

    @property
    def options(self) -> dict[str, str] | None:
        return None if self.access is None else self.access.delta_options()

    def exists(self) -> bool:
        from deltalake import DeltaTable

        return bool(DeltaTable.is_deltatable(self.path, self.options))

    def load(self, version: int | None = None) -> DeltaTable:
        from deltalake import DeltaTable

        return DeltaTable(self.path, version, storage_options=self.options)


def located(path: str, s3: S3, spark: SparkSession | None) -> Location:
    """Where a table is; raises S3Failed if its bucket cannot be used."""
    reason = _misread(path)
    if reason is not None:
        raise PenstockError.of("SPEC_BAD_VALUE", where="the path of a Delta table", reason=reason, advice=_PLAIN)
    if not is_s3(path):
        check_files((str(entry) for entry in Path(path, LOG).glob("*")), "a Delta table")
        return Location(path)
    found = access(path, s3, spark)
    S3Storage(found).probe()
    return Location(path, found)


def path_problems(path: str, s3: S3, node: str) -> Iterator[Problem]:
    yield from s3.problems(path, node)
    if "://" in path and not is_s3(path):
        params = {"where": f"path of '{node}'", "reason": f"{path} is neither a folder nor in an object store"}
        yield Problem("SPEC_BAD_VALUE", {**params, "advice": "Write a path, or s3a://bucket/folder."}, at=("path",))
    reason = _misread(path)
    if reason is not None:
        yield Problem(
            "SPEC_BAD_VALUE", {"where": f"path of '{node}'", "reason": reason, "advice": _PLAIN}, at=("path",)
        )


def _misread(path: str) -> str | None:
    """Why the library would open another place than this: it makes a URL of the path, in which `%2e%2e` goes up."""
    found = sorted(_NOT_LITERAL & set(path))
    return f"{path} holds {' and '.join(found)}, which Delta's library does not take as written" if found else None


# --- columns -------------------------------------------------------------------------------------------------


def shape(kind: Any) -> Any:
    """A type without what readers need not agree on: whether values may be null, and notes."""
    if not isinstance(kind, Mapping):
        return kind
    if kind["type"] == "struct":
        return {"struct": {item["name"]: shape(item["type"]) for item in kind["fields"]}}
    if kind["type"] == "array":
        return {"array": shape(kind["elementType"])}
    return {"map": [shape(kind["keyType"]), shape(kind["valueType"])]}


def nullable(kind: Any) -> Any:
    """A type of Spark's in which all values may be null, without notes; Delta tables use the same words."""
    if not isinstance(kind, Mapping):
        return kind
    if kind["type"] == "struct":
        fields = [{"name": item["name"], "type": nullable(item["type"])} for item in kind["fields"]]
        return {"type": "struct", "fields": [{**item, "nullable": True, "metadata": {}} for item in fields]}
    if kind["type"] == "array":
        return {"type": "array", "elementType": nullable(kind["elementType"]), "containsNull": True}
    types = {"keyType": nullable(kind["keyType"]), "valueType": nullable(kind["valueType"])}
    return {"type": "map", **types, "valueContainsNull": True}


# --- errors --------------------------------------------------------------------------------------------------


def said(error: Exception) -> str:
    """What the library says, without colours and the drawing of its causes."""
    return _ARROW.sub(": ", str(error)).strip()


def told(
    error: Exception, location: Location, node: str, batch: int | None = None, *, reading: bool = False
) -> PenstockError:
    """An error of the library for the one who runs the pipeline."""
    text = said(error)
    if location.access is not None and _ASKED.search(text):
        failed = failure(Exception(text), location.access)
        if failed.trouble is not Trouble.OTHER:
            return failed.told(node, batch, reading=reading)
    if any(words in text for words in _NO_SPACE):
        return PenstockError.of("DISK_FULL", path=location.path)
    if any(words in text for words in _NO_RIGHT):
        reason = next(words for words in _NO_RIGHT if words in text)
        return PenstockError.of("PATH_NOT_WRITABLE", path=location.path, reason=reason)
    reason = text.split("\n")[0]
    if reading:
        return PenstockError.of("SOURCE_FAILED", node=node, reason=reason, advice="Check the table.")
    number, advice = "?" if batch is None else batch, "Nothing of the batch was stored."
    return PenstockError.of("SINK_FAILED", node=node, batch=number, reason=reason, advice=advice)


@contextmanager
def telling(location: Location, node: str, batch: int | None = None, *, reading: bool = False) -> Iterator[None]:
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError) as error:
        raise told(error, location, node, batch, reading=reading) from None
