"""Jars that connectors need beside Spark's own, in named sets: fetched once, kept in a cache folder, checked by sha256.

`jars.lock` holds what belongs to each set. A set that the lock does not have is never fetched.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import sys
import tempfile
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pyspark

from penstock.components.base import Component, Sink
from penstock.engine.ivy import SPARK_JARS, IvyFailed, retrieve
from penstock.errors import PenstockError
from penstock.spec.fields import Config
from penstock.spec.pipeline import Pipeline

LOCK = Path(__file__).with_name("jars.lock")
_SPARK = pyspark.__version__
# The version that hadoop-aws 3.5.0 is built with.
_AWS = "2.35.4"
ROOTS: Mapping[str, tuple[str, ...]] = {
    "s3": (
        "org.apache.hadoop:hadoop-aws:3.5.0",
        f"software.amazon.awssdk:s3:{_AWS}",
        f"software.amazon.awssdk:s3-transfer-manager:{_AWS}",
        f"software.amazon.awssdk:sts:{_AWS}",
    ),
}
"""What each set is for; the lock adds what these need and Spark does not have."""
# The bundle holds all of the AWS SDK in 600 MB, where four of its modules do; Spark has its own bridge for logging.
_EXCLUDED = ("software.amazon.awssdk:bundle", "commons-logging:commons-logging")
_S3_SCHEME = "s3a://"


def jars_of(names: Iterable[str]) -> list[Path]:
    """The jars of some sets, each once; fetched if they are not there yet, and checked when first asked for."""
    jars = (jar for name in dict.fromkeys(names) for jar in _set(name, cache_folder() / "jars"))
    return list({jar.name: jar for jar in jars}.values())


SHARED = "PENSTOCK_JARS"
"""Names a folder of jars that is looked in before any is fetched."""


def obtainable(names: Iterable[str] = tuple(ROOTS)) -> tuple[str, ...]:
    """Those of the sets that are there or can be fetched; each is tried once in a process."""
    return tuple(name for name in names if _can_be_had(name, cache_folder()))


def sets_for(pipeline: Pipeline, *, audited: bool = False) -> tuple[str, ...]:
    """The sets that a pipeline needs: `s3` if Spark is to read or write a path that starts with `s3a://`.

    When it is audited, Spark also reads what sinks hold.
    """
    needed = [name for component in _components(pipeline) for name in _sets_of(component, audited)]
    return tuple(dict.fromkeys(needed))


def cache_folder() -> Path:
    """Where Penstock keeps what it has fetched."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "penstock"


@cache
def _can_be_had(name: str, folder: Path) -> bool:
    try:
        _set(name, folder / "jars")
    except PenstockError:
        return False
    return True


def _components(part: object) -> Iterator[Component]:
    """All components below a part of a pipeline: of its nodes, their formats, late rows and dead letters."""
    if isinstance(part, Component):
        yield part
    elif isinstance(part, Config):
        for name in type(part).model_fields:
            yield from _components(getattr(part, name))
    elif isinstance(part, tuple):
        for item in part:
            yield from _components(item)


def _sets_of(component: Component, audited: bool) -> Iterator[str]:
    by_spark = audited and isinstance(component, Sink) and component.read_with_spark
    if (by_spark or not component.own_s3) and any(
        text.startswith(_S3_SCHEME) for text in _texts(component.model_dump())
    ):
        yield "s3"


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, Collection):
        for item in value:
            yield from _texts(item)


# --- the cache -----------------------------------------------------------------------------------------------


@cache
def _set(name: str, root: Path) -> tuple[Path, ...]:
    if name not in ROOTS:
        raise _unavailable(name, "there is no such set", f"Known: {', '.join(ROOTS)}.")
    locked = read_lock(LOCK).get(name)
    if not locked:
        wanted = ", ".join(ROOTS[name])
        advice = f"They could not be had when this Penstock was made: {wanted}. A later Penstock may have them."
        raise _unavailable(name, f"the lock has none for Spark {_SPARK}", advice)
    return tuple(locked_jars(name, locked, root))


def locked_jars(name: str, locked: Mapping[str, str], root: Path) -> list[Path]:
    """The jars of a locked set, in a folder of its own below `root`; fetched if one is missing, and checked."""
    folder = _there(name, locked) or set_folder(name, locked, root)
    jars = {folder / file_name(coordinate): sha256 for coordinate, sha256 in locked.items()}
    if not all(jar.is_file() for jar in jars):
        try:
            with _alone(root / f".{folder.name}.lock"):
                missing = {key: value for key, value in locked.items() if not (folder / file_name(key)).is_file()}
                if missing:
                    _fetch(name, missing, folder)
        except OSError as error:
            raise PenstockError.of("PATH_NOT_WRITABLE", path=root, reason=error.strerror or error) from error
    for jar, sha256 in jars.items():
        _check(jar, sha256)
    return list(jars)


def _there(name: str, locked: Mapping[str, str]) -> Path | None:
    """The folder of a whole set that a server has fetched for its pipelines, which may only read it."""
    if SHARED not in os.environ:
        return None
    folder = set_folder(name, locked, Path(os.environ[SHARED]))
    return folder if all((folder / file_name(coordinate)).is_file() for coordinate in locked) else None


def set_folder(name: str, locked: Mapping[str, str], root: Path) -> Path:
    """Named for the set, its version and its content, so that another lock never meets these jars."""
    version = next(iter(locked)).split(":")[2]
    content = hashlib.sha256("\n".join(f"{key} {value}" for key, value in locked.items()).encode()).hexdigest()
    return root / f"{name}-{version}-{content[:8]}"


def file_name(coordinate: str) -> str:
    _, artifact, version = coordinate.split(":")
    return f"{artifact}-{version}.jar"


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Lets one process in at a time; the kernel opens the door when it dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as door:
        fcntl.flock(door, fcntl.LOCK_EX)
        yield


def _fetch(name: str, missing: Mapping[str, str], folder: Path) -> None:
    """Each jar is moved to its place when all of them have been checked."""
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder.parent) as temporary:
        try:
            found = retrieve(missing, Path(temporary))
        except IvyFailed as error:
            files = ", ".join(file_name(coordinate) for coordinate in missing)
            advice = f"Run again with a network, or put these files into {folder} by hand: {files}."
            raise _unavailable(name, str(error), advice) from None
        for coordinate, sha256 in missing.items():
            _check(found[coordinate], sha256)
        folder.mkdir(exist_ok=True)
        for coordinate in missing:
            found[coordinate].replace(folder / file_name(coordinate))


def _check(jar: Path, sha256: str) -> None:
    if digest(jar) != sha256:
        raise PenstockError.of("JAR_DAMAGED", path=jar)


def digest(jar: Path) -> str:
    """The sha256 of a jar."""
    with jar.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _unavailable(name: str, reason: str, advice: str) -> PenstockError:
    return PenstockError.of("JARS_UNAVAILABLE", name=name, reason=reason, advice=advice)


# --- the lock ------------------------------------------------------------------------------------------------


def read_lock(path: Path) -> dict[str, dict[str, str]]:
    """By set: `group:artifact:version` and sha256."""
    return tomllib.loads(path.read_text("utf-8"))


def write_lock(
    path: Path = LOCK,
    roots: Mapping[str, Sequence[str]] = ROOTS,
    *,
    provided: Path | None = SPARK_JARS,
    excluded: Iterable[str] = _EXCLUDED,
) -> None:
    """Resolves sets anew and writes what was found; other sets of the lock stay. For maintainers.

    Jars that lie in `provided`, in whatever version, are left out.
    """
    there = {artifact_of(jar) for jar in provided.glob("*.jar")} if provided else set()
    lock = read_lock(path) if path.exists() else {}
    for name, wanted in roots.items():
        with tempfile.TemporaryDirectory(prefix="penstock-lock-") as temporary:
            try:
                found = retrieve(wanted, Path(temporary), transitive=True, excluded=excluded)
            except IvyFailed as error:
                raise _unavailable(name, str(error), "The lock is as it was.") from None
            ordered = sorted(found, key=lambda coordinate: (coordinate not in wanted, coordinate))
            kept = [coordinate for coordinate in ordered if coordinate.split(":")[1] not in there]
            lock[name] = {coordinate: digest(found[coordinate]) for coordinate in kept}
    path.write_text(_as_toml(lock), "utf-8")


def artifact_of(jar: Path) -> str:
    """The name of a jar without its version."""
    return re.sub(r"-\d.*", "", jar.stem)


def _as_toml(lock: Mapping[str, Mapping[str, str]]) -> str:
    lines = ["# Written by penstock.engine.jars.write_lock."]
    for name, jars in lock.items():
        lines += ["", f"[{name}]", *(f'"{coordinate}" = "{sha256}"' for coordinate, sha256 in jars.items())]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Fetches all that the lock has, so that no pipeline waits for it later: `python -m penstock.engine.jars`."""
    names = tuple(read_lock(LOCK))
    try:
        jars_of(names)
    except PenstockError as error:
        print(error.problems[0].message)
        return 1
    print(", ".join(names))
    return 0


if __name__ == "__main__":
    sys.exit(main())
