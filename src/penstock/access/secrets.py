"""Which secrets a pipeline may refer to."""

from __future__ import annotations

import os
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

_OWN = "PENSTOCK_"
"""How the names of the server's own variables begin."""


@dataclass(frozen=True)
class SecretLimits:
    """Names of environment variables, as patterns, and folders with files; nothing else may be referred to."""

    env: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    """Absolute, with links resolved."""

    def allows(self, store: str, key: str) -> bool:
        if store == "env":
            return not key.upper().startswith(_OWN) and any(fnmatchcase(key, pattern) for pattern in self.env)
        if not key.startswith("/") or "\x00" in key or ".." in key.split("/"):
            return False
        found = Path(os.path.realpath(key))
        return any(found.is_relative_to(root) for root in self.files)
