"""Which of the server's environment variables a process of a pipeline gets: those on a list, and no others."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase

ALWAYS = (
    "PATH", "LANG", "LANGUAGE", "LC_*", "TZ", "TZDIR",
    "JAVA_HOME", "PYTHONPATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "LD_LIBRARY_PATH",
    "HADOOP_CONF_DIR", "YARN_CONF_DIR", "KRB5_CONFIG",
    "MALLOC_ARENA_MAX", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS",
    "PENSTOCK_CRASH_*", "PENSTOCK_STOP_AT", "PENSTOCK_TEST_*",
)  # fmt: skip
"""Names and patterns. Those in the last line are set by Penstock's own tests: to kill processes, and to find them."""
SERVER_ONLY = ("PENSTOCK_TOKEN*", "PENSTOCK_URL*", "PENSTOCK_STORE*", "PENSTOCK_OIDC*", "PENSTOCK_SERVE*")
"""Never passed on, whatever a list says."""


def environment(
    variables: Mapping[str, str],
    *,
    further: Collection[str] = (),
    secrets: Collection[str] = (),
    hidden: Collection[str] = (),
) -> dict[str, str]:
    """The variables that are on the list, match `further`, or are named in `secrets`; never those that are `hidden`."""
    wanted = (*ALWAYS, *further)
    found = {
        name: value
        for name, value in variables.items()
        if (name in secrets or _matches(name, wanted)) and name not in hidden and not _matches(name, SERVER_ONLY)
    }
    if "PYTHONPATH" in found:
        # Relative parts would be looked for in the folder of the process.
        parts = (os.path.abspath(part) for part in found["PYTHONPATH"].split(os.pathsep) if part)
        found["PYTHONPATH"] = os.pathsep.join(parts)
    return found


def _matches(name: str, patterns: Collection[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
