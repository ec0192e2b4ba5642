"""Which files and secrets a process of a pipeline may use, beside what every process of Python and Java needs."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from penstock.control.launch.limits import RUN, ProcessLimits

_SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store",
    "/proc", "/sys/fs/cgroup", "/sys/devices/system", "/sys/kernel/mm/transparent_hugepage",
    "/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager",
)  # fmt: skip
_CONFIGURATION = (
    "alternatives", "ca-certificates", "ca-certificates.conf", "crypto-policies", "gai.conf", "group", "hadoop",
    "host.conf", "hosts", "java*", "jvm*", "krb5.conf", "krb5.conf.d", "ld.so.*", "locale.*", "localtime",
    "machine-id", "magic", "mime.types", "nsswitch.conf", "os-release", "passwd", "pki/ca-trust", "pki/java",
    "pki/tls/certs", "pki/tls/cert.pem", "pki/tls/openssl.cnf", "protocols", "resolv.conf", "services",
    "ssl/certs", "ssl/cert.pem", "ssl/java", "ssl/openssl.cnf", "timezone",
)  # fmt: skip
"""As much of /etc as names, certificates and libraries take; passwords and keys of the machine lie there as well."""
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_NAMED_BY = ("JAVA_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "KRB5_CONFIG")
"""Variables that name a file or folder which is to be read."""


@dataclass(frozen=True)
class ProcessAccess:
    """What one process may use; its own folders are added by who starts it."""

    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    secrets: frozenset[str] = frozenset()
    """Environment variables that its pipeline refers to, and may."""
    limits: ProcessLimits = field(default=RUN)

    def only_reading(self) -> ProcessAccess:
        return ProcessAccess((*self.read, *self.write), (), self.secrets, self.limits)


NOTHING = ProcessAccess()


@cache
def needed_by_every_process() -> tuple[Path, ...]:
    """Interpreter, libraries, Java and the system's own files."""
    found = [Path(path) for path in _SYSTEM]
    found += (path for pattern in _CONFIGURATION for path in sorted(Path("/etc").glob(pattern)))
    found += (Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).resolve().parent)
    found += (Path(part) for part in sys.path if part and os.path.isabs(part))
    found += (Path(part).absolute() for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part)
    found += (Path(os.environ[name]) for name in _NAMED_BY if os.environ.get(name))
    found += java_home()
    found += _loaded_libraries()
    return tuple(dict.fromkeys(path.resolve() for path in found if path.exists()))


def java_home() -> Iterator[Path]:
    home = os.environ.get("JAVA_HOME")
    java = (shutil.which("java", path=str(Path(home) / "bin")) if home else None) or shutil.which("java")
    if java is not None:
        yield Path(java).resolve().parent.parent


def _loaded_libraries() -> Iterator[Path]:
    """Folders of the libraries that this interpreter has loaded, wherever it was installed."""
    try:
        lines = Path("/proc/self/maps").read_text("utf-8", "replace").splitlines()
    except OSError:
        return
    for line in lines:
        parts = line.split(maxsplit=5)
        if len(parts) == 6 and parts[5].startswith("/") and ".so" in parts[5]:
            yield Path(parts[5]).parent


def without(paths: Iterable[Path], private: Sequence[Path]) -> list[str]:
    """The paths, with those that hold something private replaced by what else lies in them.

    The kernel's list can allow a folder with all that is below it, and cannot except a part of that. Paths must have
    been resolved: a process may have put a link into one of them since, which is then not followed.
    """
    hidden = [path.resolve() for path in private]
    return sorted({str(found) for path in paths for found in _around(path, hidden)})


def _around(path: Path, hidden: Sequence[Path]) -> Iterator[Path]:
    if any(path == each for each in hidden):
        return
    if not any(each.is_relative_to(path) for each in hidden):
        yield path
        return
    try:
        inside = sorted(path.iterdir())
    except OSError:
        return
    for item in inside:
        # A link may lead to what is private.
        if not item.is_symlink():
            yield from _around(item, hidden)
