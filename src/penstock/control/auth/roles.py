"""Who may do what: five roles, each of which may do all that the ones before it may."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from penstock.errors import PenstockError


class Role(StrEnum):
    """In the order of what they may do."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    AUTHOR = "author"
    CODER = "coder"
    ADMIN = "admin"

    @property
    def meaning(self) -> str:
        return _MEANINGS[self]

    def covers(self, other: Role) -> bool:
        """Whether this role may do what the other may."""
        return _ORDER.index(self) >= _ORDER.index(other)


_ORDER = list(Role)
_MEANINGS = {
    Role.VIEWER: "sees pipelines, runs, logs and alerts",
    Role.OPERATOR: "also starts and stops pipelines, silences alerts and takes targets out of use",
    Role.AUTHOR: "also applies and deletes pipelines in YAML and SQL",
    Role.CODER: "also applies pipelines that run Python",
    Role.ADMIN: "also manages tokens and reads the audit log",
}
LABEL_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,62}")
"""Keys of labels by which tokens are limited and lists are filtered."""


@dataclass(frozen=True)
class Grant:
    """What the bearer of a token may do, and with which pipelines: those that have all labels of `scope`."""

    who: str
    role: Role
    scope: Mapping[str, str] = field(default_factory=dict)
    token: str | None = None
    session: bool = False

    def sees(self, labels: Mapping[str, str]) -> bool:
        return all(labels.get(key) == value for key, value in self.scope.items())

    def need(self, role: Role, *, to: str = "do this") -> None:
        """Raises FORBIDDEN unless the role covers what is needed."""
        if not self.role.covers(role):
            reason = f"it takes the role {role} to {to}, and you have {self.role}"
            raise PenstockError.of("FORBIDDEN", reason=reason, advice="An admin can make a token with that role.")

    def need_whole(self, *, to: str) -> None:
        """Raises FORBIDDEN for a bearer who is limited to some pipelines."""
        if self.scope:
            labels = ", ".join(f"{key}={value}" for key, value in sorted(self.scope.items()))
            reason = f"your token is limited to pipelines with {labels}, and cannot {to}"
            raise PenstockError.of("FORBIDDEN", reason=reason, advice="Use a token without such a limit.")
