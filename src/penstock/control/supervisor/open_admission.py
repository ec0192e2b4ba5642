"""For a server without projects: every pipeline may run in one folder, on all targets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.control.supervisor.ports import Refusal, Target, Wanted


@dataclass(frozen=True)
class OpenAdmission:
    """`penstock.control.supervisor.ports.Admission` that refuses nothing."""

    base: Path
    all_targets: Callable[[], Mapping[str, Target]]

    def folder(self, wanted: Wanted) -> Path:
        return self.base

    def targets(self, wanted: Wanted) -> Mapping[str, Target]:
        return self.all_targets()

    def refusal(
        self,
        wanted: Wanted,
        target: str,
        version: int | None = None,
        running: Callable[[], Iterable[tuple[Wanted, str]]] | None = None,
    ) -> Refusal | None:
        return None
