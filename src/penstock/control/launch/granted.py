"""What the policy of a server lets one pipeline use: folders, and exactly those secrets that it refers to."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from penstock.control.launch.access import ProcessAccess
from penstock.control.launch.limits import RUN, ProcessLimits
from penstock.control.policy import Policy
from penstock.spec.secrets import SecretRef


def access_of(policy: Policy, references: Iterable[SecretRef], limits: ProcessLimits = RUN) -> ProcessAccess:
    """References that the policy does not allow, or no longer allows, are left out."""
    allowed = [reference for reference in references if policy.may_refer(reference)]
    names = frozenset(reference.key for reference in allowed if reference.store == "env")
    files = tuple(Path(reference.key) for reference in allowed if reference.store == "file")
    return ProcessAccess(read=files, write=policy.folders, secrets=names, limits=limits)
