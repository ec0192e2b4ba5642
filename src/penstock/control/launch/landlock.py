"""The kernel's allow-list of files for a process and all it starts: Landlock, which any user may use.

A process that has restricted itself cannot open anything else again, nor look into processes outside, nor signal them.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys
from collections.abc import Iterable

LEAST = 2
"""From this version on files can be moved between folders that are both allowed, which savepoints need."""
_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_VERSION_FLAG = 1
_BELOW_A_PATH = 1
_EXECUTE, _WRITE, _READ, _LIST = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_TRUNCATE, _IOCTL = 1 << 14, 1 << 15
_RIGHTS_SINCE = {1: (1 << 13) - 1, 2: 1 << 13, 3: _TRUNCATE, 5: _IOCTL}
"""Which rights each version of Landlock came with."""
_OF_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE | _IOCTL
"""Rights that mean something for what is not a folder."""
_SCOPES = 1 | 2
"""No abstract sockets of others, and no signals to them; from version 6 on."""
_NO_NEW_PRIVILEGES = 38
_OPEN, _HERE, _NO_LINKS = 437, -100, 4


class _Ruleset(ctypes.Structure):
    _fields_ = [("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _How(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("access", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def version() -> int:
    """The version of Landlock in this kernel; 0 if there is none, or it is off."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(0, int(_call(_CREATE, None, 0, _VERSION_FLAG)))


def restrict(read: Iterable[str], write: Iterable[str], devices: Iterable[str] = ()) -> None:
    """Limits this process to reading and running `read`, and to changing `write`; raises OSError.

    Paths that do not exist are left out. Only the thread that calls this and what it starts later are limited, so it
    belongs to the very beginning of a process.
    """
    known = version()
    handled = sum(rights for since, rights in _RIGHTS_SINCE.items() if since <= known)
    change = handled & ~(_EXECUTE | _MAKE_CHAR | _MAKE_BLOCK | _IOCTL)
    attributes = _Ruleset(handled, 0, _SCOPES if known >= 6 else 0)
    size = 24 if known >= 6 else 16 if known >= 4 else 8
    ruleset = _checked(_call(_CREATE, ctypes.byref(attributes), size, 0))
    try:
        for paths, rights in (
            (read, _EXECUTE | _READ | _LIST),
            (write, change),
            (devices, handled & (_READ | _WRITE | _TRUNCATE | _IOCTL)),
        ):
            for path in paths:
                _allow(ruleset, path, rights)
        libc = ctypes.CDLL(None, use_errno=True)
        _checked(libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
        _checked(_call(_RESTRICT, ruleset, 0))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        opened = _open_without_links(path)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(opened).st_mode):
            rights &= _OF_FILES
        rule = _Beneath(rights, opened)
        _checked(_call(_ADD_RULE, ruleset, _BELOW_A_PATH, ctypes.byref(rule), 0))
    finally:
        os.close(opened)


def _open_without_links(path: str) -> int:
    """A path in which nobody has put a link since it was looked up."""
    how = _How(os.O_PATH | os.O_CLOEXEC, 0, _NO_LINKS)
    return _checked(_call(_OPEN, _HERE, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how)))


def _call(number: int, *arguments: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    found: int = libc.syscall(ctypes.c_long(number), *arguments)
    return found


def _checked(found: int) -> int:
    if found < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return found
