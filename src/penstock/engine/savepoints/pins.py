"""What sinks must keep for savepoints: noted in the state folder, and told to the sinks by who has them open.

A savepoint may be taken and removed while no sink is open, and who takes one may die; the note outlives that.

savepoints/pins/NAME.json   where the savepoint lies, and what each sink held
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from penstock.components.base import SinkWriter
from penstock.durable import make_folders, write_durably
from penstock.reports.codec import plain, read
from penstock.reports.savepoints import MANIFEST, PINS


@dataclass(frozen=True)
class Pin:
    """What one savepoint keeps: for as long as it is being taken or is there, and until sinks know that it is gone."""

    folder: str
    stage: Literal["taking", "taken", "released"] = "taking"
    sinks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


class Pins:
    def __init__(self, state: Path) -> None:
        self.folder = state / "savepoints" / PINS

    def all(self) -> dict[str, Pin]:
        """By the names of savepoints."""
        found = {}
        for file in sorted(self.folder.glob("*.json")) if self.folder.is_dir() else ():
            pin = _read(file)
            if pin is not None:
                found[file.stem] = pin
        return found

    def note(self, name: str, folder: Path, sinks: Mapping[str, Mapping[str, Any]]) -> None:
        """To be called before any sink is told."""
        self._write(name, Pin(str(folder), "taking", sinks))

    def settle(self, name: str) -> None:
        """After a savepoint was taken, or was not."""
        pin = self.all().get(name)
        if pin is not None and pin.stage == "taking":
            there = (Path(pin.folder) / MANIFEST).is_file()
            self._write(name, replace(pin, stage="taken" if there else "released"))

    def moved(self, name: str, place: str) -> None:
        """After a savepoint was put into another place, where it is as good."""
        pin = self.all().get(name)
        if pin is not None:
            self._write(name, replace(pin, folder=place, stage="taken"))

    def let_go(self, name: str) -> None:
        """After a savepoint was removed."""
        pin = self.all().get(name)
        if pin is not None:
            self._write(name, replace(pin, stage="released"))

    def tell(self, writers: Mapping[str, SinkWriter]) -> None:
        """Lets open sinks know all of it. Only who holds the state may do so, between batches."""
        for name in self.all():
            # One that is still being taken was left by someone who died.
            self.settle(name)
        for name, pin in self.all().items():
            for sink, writer in writers.items():
                if pin.stage == "released":
                    writer.release(name)
                elif sink in pin.sinks:
                    writer.pin(name, pin.sinks[sink])
            if pin.stage == "released":
                (self.folder / f"{name}.json").unlink(missing_ok=True)

    @property
    def to_be_released(self) -> bool:
        return any(pin.stage == "released" for pin in self.all().values())

    def _write(self, name: str, pin: Pin) -> None:
        make_folders(self.folder)
        write_durably(self.folder / f"{name}.json", json.dumps(plain(pin), indent=1) + "\n")


def _read(file: Path) -> Pin | None:
    try:
        return read(Pin, file.read_bytes())
    except (OSError, ValueError):
        return None
