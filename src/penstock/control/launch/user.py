"""The system user that processes of pipelines run as, where the server may switch to another than its own."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.control.launch.access import java_home
from penstock.control.launch.environment import environment
from penstock.errors import PenstockError

AS_THE_SERVER = "none"
PREFERRED = ("penstock-run", "nobody")
"""Who processes run as if the configuration names nobody, and the server is started by root."""
_TRIAL = "import json, ssl, sqlite3, penstock.errors, pyspark.version"
_TRIAL_SECONDS = 30


@dataclass(frozen=True)
class SystemUser:
    """A user by the numbers that the kernel knows; processes have its group, and no other."""

    name: str
    number: int
    group: int

    def may(self, path: Path, wanted: int) -> bool:
        """Whether the mode of a path gives this user rights: 4 to read, 2 to write, 1 to enter."""
        found = path.stat()
        shift = 6 if found.st_uid == self.number else 3 if found.st_gid == self.group else 0
        return (found.st_mode >> shift) & wanted == wanted

    def closed(self, path: Path, wanted: int) -> Path | None:
        """The first part of a path that keeps this user from it; None if nothing does."""
        for part in reversed(path.parents):
            if not self.may(part, 1):
                return part
        return None if self.may(path, wanted) else path

    def own(self, *paths: Path) -> None:
        """Lets paths that the server has just made belong to this user; links are not followed."""
        for path in paths:
            os.chown(path, self.number, self.group, follow_symlinks=False)

    def let_read(self, file: Path) -> None:
        """Lets this user read a file of the server, in a folder that only the server changes."""
        os.chown(file, -1, self.group)
        os.chmod(file, 0o640)

    def let_reach(self, path: Path, data: Path) -> None:
        """Lets this user enter the folders that lead to a path, from the server's own folder on."""
        for folder in path.parents:
            if folder.is_relative_to(data):
                self.let_enter(folder)

    def let_enter(self, folder: Path) -> None:
        os.chown(folder, -1, self.group)
        os.chmod(folder, stat.S_IMODE(folder.stat().st_mode) & 0o700 | 0o010)


def user_named(name: str) -> SystemUser | None:
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        return None
    return SystemUser(found.pw_name, found.pw_uid, found.pw_gid)


def choose_user(wanted: str | None, data: Path, folders: Iterable[Path]) -> tuple[SystemUser | None, list[str]]:
    """Who processes of pipelines run as, and why it is nobody else than the server; raises RUN_AS_IMPOSSIBLE.

    Only root may switch. Without a user in the configuration it is tried, and left where it would not work.
    """
    if wanted == AS_THE_SERVER:
        return None, []
    if os.geteuid() != 0:
        if wanted is not None:
            raise PenstockError.of("RUN_AS_IMPOSSIBLE", user=wanted, reason="only a server that root starts may switch")
        return None, []
    user = next((found for name in ([wanted] if wanted else PREFERRED) if (found := user_named(name))), None)
    if user is None or user.number == 0:
        reason = "there is no such user" if user is None else "root is who the server runs as"
        missing = [reason]
    else:
        missing = what_is_missing(user, data, folders)
    if not missing:
        return user, []
    shown = wanted or (user.name if user is not None else PREFERRED[0])
    if wanted is not None:
        raise PenstockError.of("RUN_AS_IMPOSSIBLE", user=shown, reason="; ".join(missing))
    return None, [f"pipelines run as root, as {shown} cannot be switched to: {'; '.join(missing)}"]


def what_is_missing(user: SystemUser, data: Path, folders: Iterable[Path]) -> list[str]:
    """What keeps a user from running pipelines, each with what to do."""
    found = []
    closed = [part for path in _programs() if (part := user.closed(path, 5)) is not None]
    if closed:
        found.append(f"{closed[0]} is closed to it (install Python and Java where all users reach them)")
    for folder in (Path(tempfile.gettempdir()), *data.parents):
        if not folder.is_relative_to(data) and (part := user.closed(folder, 1)) is not None:
            found.append(f"{part} is closed to it (chmod o+x {part})")
            break
    for folder in folders:
        if folder.is_relative_to(data):
            if folder.exists() and any(folder.iterdir()) and folder.stat().st_uid != user.number:
                found.append(f"files in {folder} belong to another user (chown -R {user.name}: {folder})")
        elif not folder.exists() or (part := user.closed(folder, 7)) is not None:
            found.append(f"{folder} is closed to it, and pipelines may use it")
    states = [path for path in data.glob("pipelines/*/state") if path.lstat().st_uid != user.number]
    if states:
        places = f"{data}/pipelines/*/state {data}/pipelines/*/home"
        what = f"the state of {len(states)} pipelines belongs to another user"
        found.append(f"{what} (stop them, and chown -R {user.name}: {places})")
    return found or _tried(user)


def _programs() -> list[Path]:
    """Where Python and Java lie; whether all that they need is open as well is then tried."""
    places = [Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).resolve().parent, *java_home()]
    return [path for path in places if path.exists()]


def _tried(user: SystemUser) -> list[str]:
    """Starts Python as the user once."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _TRIAL],
            cwd="/", env=environment(os.environ), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=_TRIAL_SECONDS, **switched_to(user),
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        return [f"Python cannot be started as it: {error}"]
    lines: Sequence[str] = done.stderr.strip().splitlines()
    return (
        [] if done.returncode == 0 else [f"Python cannot be started as it: {lines[-1] if lines else 'no reason told'}"]
    )


def switched_to(user: SystemUser | None) -> dict[str, Any]:
    """What `subprocess` is told to start a process as a user."""
    return {} if user is None else {"user": user.number, "group": user.group, "extra_groups": []}
