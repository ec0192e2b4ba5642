"""The kills that pipelines have survived, added up by sink and moment in a small file.

Tests add to the file that PENSTOCK_KILLS names, once they have found that nothing is lost and nothing is there twice;
the documentation shows what is in it.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from penstock.spec.fields import Config

FILE = "PENSTOCK_KILLS"
WRITING = "random.writing"
"""Kills at random moments that came while the sink was storing a batch."""
_WRITING = ("sink.before_write", "sink.staged", "sink.in_transaction", "sink.compacting", "sink.compacted")


@dataclass(frozen=True)
class Kill:
    """One kill: at which point or moment, in which batch, and at which sink if one was meant."""

    moment: str
    batch: int
    sink: str = ""
    reached: str = ""
    """The last point that the run had passed, as `point@batch@sink`, if it was killed from outside."""
    seed: int | None = None

    @property
    def writing(self) -> str:
        """The sink that was storing a batch when the kill came at a random moment; empty if none was."""
        point, _, place = self.reached.partition("@")
        return place.partition("@")[2] if self.moment == "random" and point in _WRITING else ""

    def __str__(self) -> str:
        return "@".join(filter(None, (self.moment, str(self.batch), self.sink)))


@dataclass(frozen=True)
class Tally:
    """Kills by kind of sink and moment, and the seeds of the random ones."""

    kills: dict[str, dict[str, int]] = field(default_factory=dict)
    seeds: tuple[int, ...] = ()

    def with_kills(self, sinks: Mapping[str, str], kills: Sequence[Kill]) -> Tally:
        """With those of one pipeline; `sinks` are its sinks and their kinds. A kind counts each kill once."""
        counts = {kind: Counter(moments) for kind, moments in self.kills.items()}
        for kill in kills:
            for kind in _concerned(sinks, kill):
                counts.setdefault(kind, Counter())[kill.moment] += 1
            writing = kill.writing
            if writing in sinks:
                counts[sinks[writing]][WRITING] += 1
        seeds = {*self.seeds, *(kill.seed for kill in kills if kill.seed is not None)}
        return Tally({kind: dict(moments) for kind, moments in counts.items()}, tuple(sorted(seeds)))

    def to_json(self) -> str:
        kills = {kind: dict(sorted(moments.items())) for kind, moments in sorted(self.kills.items())}
        return json.dumps({"kills": kills, "seeds": list(self.seeds)}, indent=1) + "\n"


def read_tally(path: Path) -> Tally:
    if not path.exists():
        return Tally()
    found = json.loads(path.read_text("utf-8") or "{}")
    return Tally(found.get("kills", {}), tuple(found.get("seeds", ())))


def _concerned(sinks: Mapping[str, str], kill: Kill) -> set[str]:
    """The kinds of sinks for which a kill says something: all, unless it was at a point of one of them."""
    if kill.sink:
        return {sinks[kill.sink]} if kill.sink in sinks else set()
    if kill.moment.startswith("sink.") and len(sinks) > 1:
        return set()
    return set(sinks.values())


def note(sinks: Mapping[str, Config], kills: Sequence[Kill]) -> None:
    """Adds survived kills to the file that PENSTOCK_KILLS names; several processes may do so at once."""
    path = os.environ.get(FILE)
    if not path:
        return
    kinds = {name: str(getattr(component, "name", "")) for name, component in sinks.items()}
    with Path(path).open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        tally = read_tally(Path(path)).with_kills(kinds, kills)
        file.truncate(0)
        file.write(tally.to_json())
