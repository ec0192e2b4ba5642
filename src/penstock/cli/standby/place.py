"""Where a standby process listens, and which commands it may run.

The name of its socket is made of all that it has in common with a command: the user, the code, the interpreter, the
folder and the environment. A command that differs in any of these, a secret for example, does not find it.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
import sysconfig
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

SWITCH = "PENSTOCK_STANDBY"
"""`on` or `off`; if it is not set, commands at a terminal use a standby process, and others do not."""
_OF_ONE_COMMAND = frozenset(
    {"_", "OLDPWD", "SHLVL", "COLUMNS", "LINES", "TERM", "COLORTERM", "WINDOWID", "GPG_TTY", "SSH_TTY", SWITCH}
)
"""Variables that a standby process takes over from each command: Java and Spark do not read them."""
_LONGEST = 100
"""Bytes of a path that a socket may have on every system."""


def socket_path(environment: Mapping[str, str]) -> Path | None:
    """Where a standby process for commands with these variables would listen; None if there can be none."""
    folder = private_folder()
    if folder is None:
        return None
    found = folder / f"{_common_name(environment)}.sock"
    return found if len(os.fsencode(found)) <= _LONGEST else None


def private_folder() -> Path | None:
    """A folder that belongs to this user alone; None if there is none to be had."""
    base = os.environ.get("XDG_RUNTIME_DIR") or os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(base) / "penstock" / "standby"
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        found = folder.lstat()
    except OSError:
        return None
    mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return folder if mine else None


def _common_name(environment: Mapping[str, str]) -> str:
    umask = os.umask(0o077)
    os.umask(umask)
    common = [
        sys.executable,
        _code(),
        [os.getuid(), os.geteuid(), os.getgid(), os.getegid(), sorted(os.getgroups())],
        umask,
        os.getcwd(),
        sorted((name, value) for name, value in environment.items() if name not in _OF_ONE_COMMAND),
    ]
    return hashlib.sha256(json.dumps(common).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _code() -> list[object]:
    """What tells one state of the code from another: of Penstock's own files and of what is installed."""
    package = Path(__file__).parents[2]
    files = []
    for folder, folders, names in os.walk(package):
        folders[:] = [name for name in folders if name not in ("__pycache__", "console_dist")]
        for name in names:
            found = os.stat(os.path.join(folder, name))
            files.append((os.path.join(folder, name), found.st_mtime_ns, found.st_size))
    return [sorted(files), os.stat(sysconfig.get_path("purelib")).st_mtime_ns]
