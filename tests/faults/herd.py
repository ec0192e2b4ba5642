"""Pipelines that are killed together: one process runs them all, and each is at a place of its own when it dies.

What a kill does to one sink does not depend on the others, so one kill shows as much as one for each, and starting
Spark is what costs.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.faults.victim import Victim

from penstock.testing.kills import Kill
from penstock.testing.processes import until, with_variable

_RUN = "PENSTOCK_HERD_RUN"
_SECONDS = 240
_ENDING = 10.0


class Herd:
    def __init__(self, folder: Path, **victims: Victim) -> None:
        self.victims = victims
        self.log = folder / "herd.log"

    def kill_at(self, **places: str) -> None:
        """Kills those that are named when each is at its place, `point@batch` or `point@batch@sink`."""
        code = self._run({name: self.victims[name] for name in places}, list(places.values()))
        assert code == -signal.SIGKILL, f"ended with {code}\n{self.log.read_text('utf-8', 'replace')}"
        for name, place in places.items():
            point, batch, sink = f"{place}@".split("@")[:3]
            self.victims[name].crashes.kills.append(Kill(point, int(batch), sink))
            self.victims[name].check_nothing_twice()

    def finish(self) -> None:
        """To their end, and once more with the last batch given again."""
        self._to_the_end()
        last = {name: victim.crashes.forget_commit().batch for name, victim in self.victims.items()}
        self._to_the_end()
        assert {name: victim.crashes.committed for name, victim in self.victims.items()} == last
        for victim in self.victims.values():
            victim.crashes.survived()

    def _to_the_end(self) -> None:
        code = self._run(self.victims, [])
        assert code == 0, f"ended with {code}\n{self.log.read_text('utf-8', 'replace')}"
        for victim in self.victims.values():
            victim.check_complete()

    def _run(self, victims: Mapping[str, Victim], places: Sequence[str]) -> int:
        run = uuid.uuid4().hex
        secrets = {name: value for victim in victims.values() for name, value in victim.crashes.env.items()}
        files = [str(victim.pipeline) for victim in victims.values()]
        command = [sys.executable, "-m", "tests.faults.herd_run", json.dumps(places), *files]
        with self.log.open("wb") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                env={**os.environ, **secrets, _RUN: run},
            )  # fmt: skip
        try:
            return process.wait(_SECONDS)
        finally:
            process.kill()
            process.wait()
            until(lambda: not with_variable(_RUN, run), "the end of all that it had started", _ENDING)
