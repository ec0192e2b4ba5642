"""How a step with a kernel reads its chunks, as JSON values beside the state: enough to show them to people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.kernels.base import NO_WATERMARK, Kernel, State
from penstock.kernels.catalog import understood, written
from penstock.kernels.shown import EVENT_TIME

if TYPE_CHECKING:
    from penstock.engine.frames import CarriedStep


@dataclass(frozen=True)
class Described:
    """A kernel, and what its columns are called."""

    kernel: Kernel
    hold: int
    timed: bool
    labels: Mapping[str, str | None]

    @property
    def keys(self) -> pa.Schema:
        """The columns of the key, as they are shown."""
        schema = self.shown({}, NO_WATERMARK).schema
        return pa.schema([schema.field(self._label(name) or name) for name in self.kernel.shown_keys])

    def key_of_kernel(self, key: pa.Table) -> pa.Table:
        """A key under the names that the kernel has for its columns."""
        return key.rename_columns(list(self.kernel.shown_keys))

    def shown(self, state: State, watermark: int) -> pa.Table:
        """What a bucket keeps, under names that people know."""
        table = self.kernel.shown(state, watermark)
        names = {name: self._label(name) for name in table.schema.names}
        if not self.timed:
            names[EVENT_TIME] = None
        labelled = {label for name, label in names.items() if label is not None and label != name}
        kept = [name for name, label in names.items() if label is not None and not (label == name and name in labelled)]
        return table.select(kept).rename_columns([str(names[name]) for name in kept])

    def _label(self, name: str) -> str | None:
        return self.labels.get(name, name)


def described(step: CarriedStep) -> dict[str, Any] | None:
    """A step of a query as JSON values; None if its kernel is not one of Penstock's."""
    kernel = written(step.carried.kernel)
    if kernel is None:
        return None
    carried = step.carried
    return {**kernel, "hold": step.hold, "timed": carried.timed, "labels": dict(carried.labels)}


def read_described(found: Mapping[str, Any]) -> Described:
    """What was described; raises ValueError if this Penstock does not understand it."""
    kernel = understood(found)
    try:
        return Described(kernel, int(found["hold"]), bool(found["timed"]), dict(found["labels"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"it is not described well: {error}") from None
