"""The lock of packages: a file beside the server's configuration with the checksum of each jar of a target's packages.

The server reads it when it starts and hands its content to runs, so that no run believes a file in its own reach.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from penstock.control.config import ServerConfig
from penstock.errors import PenstockError, Problem
from penstock.frontends.document import read_document, read_text

FILE = "packages.lock"
_PART = r"[A-Za-z0-9._-]+"
_JAR = re.compile(rf"{_PART}(:{_PART}){{2,3}}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class LockedTarget:
    """What a target loads."""

    packages: tuple[str, ...]
    """Those that were resolved, as the configuration named them."""
    jars: Mapping[str, str] = field(default_factory=dict)
    """`group:artifact:version` or `group:artifact:version:classifier`, and sha256."""


Lock = Mapping[str, LockedTarget]
_READER = TypeAdapter(dict[str, LockedTarget])


def lock_beside(config: Path) -> Path:
    return config.with_name(FILE)


def read_lock(path: Path) -> Lock:
    """By target; nothing if there is no such file. Raises PACKAGES_LOCK_INVALID."""
    try:
        found = _READER.validate_python(tomllib.loads(path.read_text("utf-8")))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise PenstockError.of("PACKAGES_LOCK_INVALID", path=path, reason=error.strerror or error) from error
    except ValidationError as error:
        place = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise PenstockError.of("PACKAGES_LOCK_INVALID", path=path, reason=f"{place} is not as it is written") from error
    except ValueError as error:
        raise PenstockError.of("PACKAGES_LOCK_INVALID", path=path, reason=error) from error
    for target in found.values():
        for jar, sha256 in target.jars.items():
            if not _JAR.fullmatch(jar) or not _SHA256.fullmatch(sha256):
                raise PenstockError.of(
                    "PACKAGES_LOCK_INVALID", path=path, reason=f"'{jar}' has no such name and sha256"
                )
    return found


def as_toml(lock: Lock) -> str:
    """The text of a lock; names of targets and jars need no escapes."""
    lines = ["# Written by `penstock packages lock`."]
    for name, target in lock.items():
        lines += ["", f"[{name}]", "packages = [", *(f'  "{package}",' for package in target.packages), "]"]
        lines += ["", f"[{name}.jars]", *(f'"{jar}" = "{sha256}"' for jar, sha256 in target.jars.items())]
    return "\n".join(lines) + "\n"


def locked_jars(config: ServerConfig, file: Path | None) -> dict[str, Mapping[str, str]]:
    """The jars of each target with packages; raises PACKAGES_UNLOCKED for one whose packages the lock does not hold."""
    wanted = {name: target.packages for name, target in config.targets.items() if target.packages}
    if not wanted or file is None:
        return {}
    lock = read_lock(lock_beside(file))
    problems: list[Problem] = []
    for name, packages in wanted.items():
        if not _holds(lock.get(name), packages):
            place = read_document(read_text(file), str(file)).places.of("targets", name, "packages")
            error = PenstockError.of(
                "PACKAGES_UNLOCKED",
                place,
                target=name,
                packages=", ".join(packages),
                lock=lock_beside(file),
                config=file,
            )
            problems += error.problems
    if problems:
        raise PenstockError(problems)
    return {name: lock[name].jars for name in wanted}


def _holds(locked: LockedTarget | None, packages: Sequence[str]) -> bool:
    return locked is not None and set(locked.packages) == set(packages)


def refuse_changed(lock: Lock, jars: Mapping[str, str]) -> None:
    """Raises PACKAGE_CHANGED if a jar that the lock knows is another one now: what was published never changes."""
    known = {jar: sha256 for target in lock.values() for jar, sha256 in target.jars.items()}
    problems = [
        problem
        for jar, sha256 in jars.items()
        if known.get(jar, sha256) != sha256
        for problem in PenstockError.of(
            "PACKAGE_CHANGED", coordinate=jar, path="what the repository has", expected=known[jar], found=sha256
        ).problems
    ]
    if problems:
        raise PenstockError(problems)


def differences(before: Lock, now: Lock) -> list[tuple[str, str, str]]:
    """The jars that are new in a lock (`+`) or no longer there (`-`), with their sha256."""
    old = {jar: sha256 for target in before.values() for jar, sha256 in target.jars.items()}
    new = {jar: sha256 for target in now.values() for jar, sha256 in target.jars.items()}
    added = [("+", jar, sha256) for jar, sha256 in new.items() if jar not in old]
    return added + [("-", jar, sha256) for jar, sha256 in old.items() if jar not in new]
