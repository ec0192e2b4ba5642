"""The jars of a target's packages: resolved when an operator locks them, and loaded only as they were then.

A jar lies in a folder that is named for its sha256, in the cache of the server or in that of the run, and is checked
each time before Spark gets it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from penstock.engine.ivy import SPARK_JARS, IvyFailed, retrieve
from penstock.engine.jars import SHARED, artifact_of, cache_folder, digest
from penstock.errors import PenstockError

FOLDER = "packages"
_REPOSITORIES, _EXCLUDES = "spark.jars.repositories", "spark.jars.excludes"


def resolve(name: str, packages: Sequence[str], conf: Mapping[str, str]) -> dict[str, str]:
    """All jars of a target's packages, with their sha256; puts them into the cache. Raises JARS_UNAVAILABLE.

    `spark.jars.repositories` and `spark.jars.excludes` in `conf` mean what they mean to Spark.
    """
    excluded = [*_of_spark(), *_listed(conf, _EXCLUDES)]
    with _beside_the_cache() as temporary:
        try:
            found = retrieve(
                packages, Path(temporary), transitive=True, excluded=excluded, repositories=_listed(conf, _REPOSITORIES)
            )
        except IvyFailed as error:
            raise _unavailable(f"target {name}", error, "Nothing has changed; try again.") from None
        ordered = sorted(found, key=lambda coordinate: (coordinate not in packages, coordinate))
        checksums = {coordinate: digest(found[coordinate]) for coordinate in ordered}
        _keep(found, checksums)
    return checksums


def package_jars(locked: Mapping[str, str], conf: Mapping[str, str]) -> list[Path]:
    """The jars of packages, each as it was locked; fetched if it is not there yet.

    Raises PACKAGE_CHANGED or JARS_UNAVAILABLE.
    """
    missing = {each: sha256 for each, sha256 in locked.items() if _there(each, sha256) is None}
    if missing:
        _fetch(missing, _listed(conf, _REPOSITORIES))
    jars = []
    for coordinate, sha256 in locked.items():
        jar = _there(coordinate, sha256) or _place(_own(), coordinate, sha256)
        _check(jar, coordinate, sha256, jar)
        jars.append(jar)
    return jars


def jar_name(coordinate: str) -> str:
    """Unlike that of every other jar, as Spark sends jars to executors by their names alone."""
    group, artifact, *rest = coordinate.split(":")
    return f"{group}_{'-'.join([artifact, *rest])}.jar"


def _fetch(missing: Mapping[str, str], repositories: Sequence[str]) -> None:
    """Keeps the jars when all of them have been checked."""
    with _beside_the_cache() as temporary:
        try:
            found = retrieve(missing, Path(temporary), repositories=repositories)
        except IvyFailed as error:
            advice = "Run `penstock packages lock` on this machine, as the user of the server, while it has a network."
            raise _unavailable("the packages", error, advice) from None
        for coordinate, sha256 in missing.items():
            if coordinate not in found:
                raise _unavailable(coordinate, "the repositories do not have it", "Lock the packages again.")
            _check(found[coordinate], coordinate, sha256, jar_name(coordinate))
        _keep(found, missing)


def _keep(found: Mapping[str, Path], checksums: Mapping[str, str]) -> None:
    for coordinate, sha256 in checksums.items():
        place = _place(_own(), coordinate, sha256)
        place.parent.mkdir(parents=True, exist_ok=True)
        found[coordinate].replace(place)


def _check(jar: Path, coordinate: str, sha256: str, shown: Path | str) -> None:
    found = digest(jar)
    if found != sha256:
        raise PenstockError.of("PACKAGE_CHANGED", coordinate=coordinate, path=shown, expected=sha256, found=found)


def _there(coordinate: str, sha256: str) -> Path | None:
    """Where a jar lies: in the server's cache, which runs only read, or in the own one."""
    shared = os.environ.get(SHARED)
    folders = [*([Path(shared) / FOLDER] if shared else []), _own()]
    places = (_place(folder, coordinate, sha256) for folder in folders)
    return next((place for place in places if os.access(place, os.R_OK)), None)


def _place(folder: Path, coordinate: str, sha256: str) -> Path:
    return folder / sha256 / jar_name(coordinate)


def _own() -> Path:
    return cache_folder() / "jars" / FOLDER


def _beside_the_cache() -> tempfile.TemporaryDirectory[str]:
    """A temporary folder from which files can be moved into the cache; raises PATH_NOT_WRITABLE."""
    try:
        _own().mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryDirectory(prefix=".new-", dir=_own())
    except OSError as error:
        raise PenstockError.of("PATH_NOT_WRITABLE", path=_own(), reason=error.strerror or error) from error


def _of_spark() -> Iterable[str]:
    """What Spark has in a version of its own; it comes first in any case."""
    yield "*:scala-library"
    yield from (f"org.apache.spark:{artifact_of(jar)}" for jar in sorted(SPARK_JARS.glob("spark-*.jar")))


def _listed(conf: Mapping[str, str], key: str) -> list[str]:
    return [text.strip() for text in conf.get(key, "").split(",") if text.strip()]


def _unavailable(name: str, reason: object, advice: str) -> PenstockError:
    return PenstockError.of("JARS_UNAVAILABLE", name=name, reason=reason, advice=advice)
