"""Starts the processes of pipelines: runs, operations, trials, examinations and questions about state.

None of them runs as the server does. Each gets an environment made of a list, a home and a folder for temporary files
of its own, limits, and a list of the files it may use, which the kernel keeps to.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from penstock.control.launch import landlock
from penstock.control.launch.access import DEVICES, ProcessAccess, needed_by_every_process, without
from penstock.control.launch.environment import environment
from penstock.control.launch.user import SystemUser, switched_to

_WRAPPER = "penstock.control.launch.confined"
JARS = "PENSTOCK_JARS"
"""Names the folder of jars that the server has fetched, which its pipelines only read."""
_Output = int | IO[bytes] | None


@dataclass(frozen=True)
class Launcher:
    """How this server starts processes."""

    variables: tuple[str, ...] = ()
    """Further environment variables that every pipeline gets: names and patterns."""
    hidden: frozenset[str] = frozenset()
    """Variables with secrets of the server itself."""
    private: tuple[Path, ...] = ()
    """Files and folders of the server, kept from every process even where they lie in a folder that it may use."""
    readable: tuple[Path, ...] = ()
    """Further files and folders that every process may read."""
    umask: int = 0o077
    user: SystemUser | None = None
    """Who processes run as; None for the server's own user."""
    kernel_list: bool = field(default_factory=lambda: landlock.version() >= landlock.LEAST)
    """Whether the kernel keeps the list of files."""

    def start(
        self,
        command: Sequence[str],
        access: ProcessAccess,
        *,
        folder: Path,
        home: Path,
        scratch: Path,
        own: Sequence[Path] = (),
        more: Mapping[str, str] | None = None,
        stdin: _Output = subprocess.DEVNULL,
        stdout: _Output = subprocess.DEVNULL,
        stderr: _Output = subprocess.DEVNULL,
    ) -> subprocess.Popen[bytes]:
        """Starts a command in a session of its own; raises OSError.

        It begins in `folder`, and may write to `home`, `scratch` and whatever is its `own`.
        """
        if shutil.which(command[0]) is None:
            raise FileNotFoundError(2, "No such file or directory", command[0])
        with tempfile.TemporaryFile() as rules:
            rules.write(json.dumps(self.rules(access, (home, scratch, *own))).encode())
            rules.seek(0)
            return subprocess.Popen(
                [sys.executable, "-P", "-m", _WRAPPER, str(rules.fileno()), *command],
                cwd=folder,
                env=self.environment(access.secrets, home, scratch, more or {}),
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                pass_fds=(rules.fileno(),),
                start_new_session=True,
                umask=self.umask,
                **switched_to(self.user),
            )

    def give(self, *paths: Path) -> None:
        """Lets what the server has just made belong to the user that processes run as."""
        if self.user is not None:
            self.user.own(*paths)

    def rules(self, access: ProcessAccess, own: Sequence[Path]) -> dict[str, Any]:
        """What `penstock.control.launch.confined` is to keep the process to."""
        if not self.kernel_list:
            return {"limits": access.limits.rules, "files": None}
        jars = [path for path in (self._jars(),) if path is not None]
        read = without(
            [*needed_by_every_process(), *(path.resolve() for path in (*self.readable, *access.read, *jars))],
            self.private,
        )
        places = [str(place.parent.resolve() / place.name) for place in own]
        write = [*without(access.write, self.private), *places]
        return {"limits": access.limits.rules, "files": {"read": read, "write": write, "devices": DEVICES}}

    def environment(
        self, secrets: Collection[str], home: Path, scratch: Path, more: Mapping[str, str]
    ) -> dict[str, str]:
        found = environment(os.environ, further=self.variables, secrets=secrets, hidden=self.hidden)
        jars = self._jars()
        return {
            **found,
            **({} if jars is None else {JARS: str(jars)}),
            **more,
            "HOME": str(home),
            "TMPDIR": str(scratch),
        }

    def _jars(self) -> Path | None:
        """The server's own cache of jars, if it has one that processes reach."""
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        found = Path(cache) / "penstock" / "jars"
        there = found.is_dir() and (self.user is None or self.user.closed(found, 5) is None)
        return found if there else None
