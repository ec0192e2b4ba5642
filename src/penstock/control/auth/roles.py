"""Who may do what: five roles, each of which may do all that the ones before it may."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
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


Labels = Mapping[str, str]


@dataclass(frozen=True)
class Access:
    """A role, and the pipelines for which it holds: those that have all labels of `scope`."""

    role: Role
    scope: Labels = field(default_factory=dict)

    def sees(self, labels: Labels) -> bool:
        return all(labels.get(key) == value for key, value in self.scope.items())


@dataclass(frozen=True)
class Grant:
    """What the bearer of a token may do, and with which pipelines: those that have all labels of `scope`.

    A person may be in several projects, with a role in each: the others are in `further`.
    """

    who: str
    role: Role
    scope: Labels = field(default_factory=dict)
    token: str | None = None
    session: bool = False
    further: tuple[Access, ...] = ()

    @classmethod
    def of(cls, who: str, accesses: Sequence[Access], token: str | None = None, *, session: bool = False) -> Grant:
        """A grant of one access at least."""
        first, *others = accesses
        return cls(who, first.role, first.scope, token, session, tuple(others))

    @property
    def accesses(self) -> tuple[Access, ...]:
        return (Access(self.role, self.scope), *self.further)

    @property
    def scopes(self) -> tuple[Labels, ...]:
        """Those labels of which a pipeline needs all of one entry; an empty entry is every pipeline."""
        return tuple(access.scope for access in self.accesses)

    @property
    def whole(self) -> bool:
        """Whether it holds for every pipeline."""
        return not all(self.scopes)

    @property
    def highest(self) -> Role:
        return max((access.role for access in self.accesses), key=_ORDER.index)

    def sees(self, labels: Labels) -> bool:
        return any(access.sees(labels) for access in self.accesses)

    def role_for(self, labels: Labels) -> Role | None:
        """The highest role for a pipeline with these labels; None if it may not be seen."""
        return max((each.role for each in self.accesses if each.sees(labels)), key=_ORDER.index, default=None)

    def limited_to(self, role: Role) -> Grant:
        """Only what it holds with this role or a greater one; raises FORBIDDEN if that is nothing."""
        found = [access for access in self.accesses if access.role.covers(role)]
        if not found:
            self.need(role)
        return Grant.of(self.who, found, self.token, session=self.session)

    def need(self, role: Role, *, to: str = "do this", with_labels: Labels | None = None) -> None:
        """Raises FORBIDDEN unless the role covers what is needed; `with_labels` are those of the pipeline in hand."""
        refuse_lesser(self.highest if with_labels is None else self.role_for(with_labels), role, to=to)

    def need_whole(self, *, to: str) -> None:
        """Raises FORBIDDEN for a bearer who is limited to some pipelines."""
        if not self.whole:
            reason = f"your token is limited to pipelines with {in_words(self.scopes)}, and cannot {to}"
            raise PenstockError.of("FORBIDDEN", reason=reason, advice="Use a token without such a limit.")


def in_words(scopes: Iterable[Labels]) -> str:
    """Labels as a person reads them: `team=a, env=live or team=b`."""
    return " or ".join(", ".join(f"{key}={value}" for key, value in sorted(scope.items())) for scope in scopes)


def highest_of(roles: Mapping[str, Role], groups: Iterable[str], scope: Labels | None = None) -> tuple[Access, ...]:
    """The highest role that one of these groups has, as an access to pipelines with these labels; or nothing."""
    found = [roles[group] for group in groups if group in roles]
    return (Access(max(found, key=_ORDER.index), scope or {}),) if found else ()


def refuse_lesser(held: Role | None, needed: Role, *, to: str) -> None:
    """Raises FORBIDDEN unless the role that somebody has covers what is needed."""
    if held is None or not held.covers(needed):
        reason = f"it takes the role {needed} to {to}, and you have {held or 'none'}"
        raise PenstockError.of("FORBIDDEN", reason=reason, advice="An admin can make a token with that role.")
