"""Compares how far sinks say they are with how far the pipeline's own records say they are.

A database that was restored from a backup, or whose replica took over before it had everything, has lost batches that
Spark has committed long ago. A state folder that was restored from a backup is older than its sinks, which would then
skip new batches with old numbers. Neither can be mended by going on, so both are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from penstock.components.base import Noted, SinkWriter
from penstock.engine.ledger import Gap, Ledger
from penstock.engine.savepoints.places import found_in, readable
from penstock.errors import PenstockError


class SinkPositions:
    """What is known of the sinks of one pipeline; `committed` is its last batch, `begun` the last it has planned."""

    def __init__(self, state: Path, ledger: Ledger, committed: int, begun: int) -> None:
        self.state = state
        self.ledger = ledger
        self.begun = begun
        self._places: dict[str, str] = {}
        self._noted: dict[str, Noted] = ledger.noted(committed)
        self._counted: dict[str, str] = {}

    def compare(self, name: str, counted_as: str, place: str, writer: SinkWriter) -> None:
        """Raises SINK_BEHIND or SINK_AHEAD, before anything is written. The ledger counts its rows under a name."""
        self._places[name] = place
        self._counted[name] = counted_as
        found = writer.last_batch()
        if found is not None and found > self.begun:
            node = writer.node or name
            raise PenstockError.of("SINK_AHEAD", node=node, position=found, begun=self.begun)
        noted = self._noted.get(name)
        if noted is None or noted.place != place:
            writer.noted = found
            return
        try:
            writer.expect(noted)
        except PenstockError as error:
            if error.code != "SINK_BEHIND" or not self._is_accepted(name, error):
                raise self.explained(name, error) from None
            writer.noted = found

    def notes(self, writers: Mapping[str, SinkWriter], known_as: Callable[[str], str]) -> dict[str, Noted]:
        """How far each sink is now, those included that are not open."""
        for key, writer in writers.items():
            name = known_as(key)
            if name in self._places and writer.noted is not None and writer.noted >= 0:
                self._noted[name] = Noted(writer.noted, self._places[name], dict(writer.ends))
        return dict(self._noted)

    def explained(self, name: str, error: PenstockError) -> PenstockError:
        """The refusal with what is missing and the savepoint to go back to; it can be accepted from now on."""
        if error.code != "SINK_BEHIND":
            return error
        gap = self._gap(name, error)
        self.ledger.note_gap(gap)
        counted = self._counted.get(name, name)
        lost = [entry for entry in self.ledger.entries(gap.position + 1) if entry.rows_out.get(counted)]
        missing = f": {len(lost)} batches with {gap.rows:,} rows are missing" if gap.rows else ""
        names = [one.name for one in readable(found_in(self.state)) if one.batch <= gap.position]
        way = f" (the newest is `{names[-1]}`: `penstock run FILE --restore {names[-1]}`)" if names else ""
        return PenstockError(
            replace(one, params={**one.params, "missing": missing, "way": way}) for one in error.problems
        )

    def _gap(self, name: str, error: PenstockError) -> Gap:
        (problem,) = error.problems
        position, noted = int(str(problem.params["position"])), int(str(problem.params["noted"]))
        counted = self._counted.get(name, name)
        rows = sum(entry.rows_out.get(counted, 0) for entry in self.ledger.entries(position + 1))
        return Gap(name, position, noted, rows)

    def _is_accepted(self, name: str, error: PenstockError) -> bool:
        wanted = self._gap(name, error)
        found = [gap for gap in self.ledger.gaps() if gap.accepted is not None and gap.sink == name]
        return any((gap.position, gap.noted) == (wanted.position, wanted.noted) for gap in found)
