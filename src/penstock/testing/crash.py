"""Kills a running pipeline for real, together with its JVM, and lets it go on: what is left when a run dies.

The pipeline runs as a process of its own, so nothing is tidied up when it is killed. It dies at a named point, right
after Spark has noted something, or at a moment that a seed chooses; it is started again as often as it takes, and the
test compares what is stored with what must be there.
"""

from __future__ import annotations

import random
import signal
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from penstock.components.shared.crashpoints import AT, HISTORY_POINTS, MEANINGS, TRACE
from penstock.engine.checkpoint import last_committed, last_number, state_versions
from penstock.errors import PenstockError
from penstock.frontends.load import load
from penstock.runner.loop import RunOptions, state_path
from penstock.testing.kills import Kill, note
from penstock.testing.processes import LIGHT, Process, kill, until, with_variable

MOMENTS = {
    "offsets.written": "Spark has noted what the batch reads; it has not begun",
    "tasks.running": "the batch has just begun to compute",
    "state.upload": "some of the batch's state is stored, some is not",
    "commit.lost": "every sink and the ledger have the batch; Spark's note of it is gone",
    "commits.written": "Spark has just committed the batch",
    "random": "a moment that the seed has chosen",
}
"""Where a run is killed from outside, beside the points that it reaches itself."""

Target = Literal["driver", "jvm", "both"]
"""What is killed. The JVM dies with the driver, and the driver ends when it finds the JVM gone."""

_RUN = "PENSTOCK_CRASH_RUN"
_ENDING = 10.0
"""Seconds in which the JVM and its workers must have died with the driver, or the driver with the JVM."""
_QUICK = 0.004
"""Seconds between two looks, where the moment is short that is waited for."""


class CrashTest:
    """A pipeline that is run with `--once`, again and again, and killed.

    >>> crashes = CrashTest("pipeline.yaml", check=nothing_is_there_twice)     # doctest: +SKIP
    >>> crashes.kill_at("sink.in_transaction", batch=1)                        # doctest: +SKIP
    >>> crashes.kill_often(seed=7, times=5)                                    # doctest: +SKIP
    >>> crashes.finish()                                                       # doctest: +SKIP

    `check` is called after each kill: what it finds must hold at any moment. `env` are variables of the process,
    such as secrets.
    """

    def __init__(
        self,
        pipeline: str | Path,
        *,
        state_dir: Path | None = None,
        check: Callable[[], None] = lambda: None,
        env: Mapping[str, str] | None = None,
        options: Sequence[object] = LIGHT,
    ) -> None:
        self.pipeline = Path(pipeline)
        self.file = load(self.pipeline)
        self.state = state_path(self.file, RunOptions(state_dir=state_dir))
        self.check = check
        self.env = dict(env or {})
        self.options = tuple(options)
        self.log = self.state.with_name(f"{self.state.name}.log")
        self.kills: list[Kill] = []
        self._trace = self.state.with_name(f"{self.state.name}.trace")
        self._run = ""

    # --- running -----------------------------------------------------------------------------------------

    def start(self, *, crash_at: str = "") -> Process:
        """Starts it; leaving the context of the process kills it."""
        self.state.parent.mkdir(parents=True, exist_ok=True)
        self._trace.unlink(missing_ok=True)
        self._run = uuid.uuid4().hex
        own = {AT: crash_at, TRACE: str(self._trace), _RUN: self._run}
        arguments = ["run", self.pipeline, "--once", "--state-dir", self.state, *self.options]
        return Process(arguments, self.log, {**self.env, **own})

    def run(self, *, crash_at: str = "") -> tuple[int, str]:
        """Runs it until it ends: exit code and what it printed."""
        with self.start(crash_at=crash_at) as process:
            return process.wait(), process.text

    def finish(self) -> None:
        """Runs it to its end, which must be a good one."""
        code, text = self.run()
        assert code == 0, f"ended with {code}\n{text}"

    # --- where it is -------------------------------------------------------------------------------------

    @property
    def planned(self) -> int:
        """The last batch of which Spark has noted what it reads; -1 if there is none."""
        return last_number(self.state / "checkpoint" / "offsets")

    @property
    def committed(self) -> int:
        """The last batch that Spark has committed; -1 if there is none."""
        return last_committed(self.state / "checkpoint")

    def reached(self) -> list[str]:
        """The points that the last run has passed, in order, as `point@batch@sink`."""
        return self._trace.read_text("utf-8").splitlines() if self._trace.exists() else []

    # --- killing -----------------------------------------------------------------------------------------

    def kill_at(self, point: str, batch: int = 0, sink: str = "") -> Kill:
        """Runs it until it dies at a point of a batch; at the first sink that gets there, unless one is named."""
        if point not in MEANINGS:
            raise PenstockError.of("USAGE", reason=f"no crash point '{point}'", advice=", ".join(MEANINGS))
        place = f"{point}@{batch}@{sink}" if sink else f"{point}@{batch}"
        code, text = self.run(crash_at=place)
        assert code == -signal.SIGKILL, f"did not die at {place} but ended with {code}\n{text}"
        return self._killed(Kill(point, batch, sink))

    def kill_when(
        self, moment: str, condition: Callable[[], object], *, after: float = 0.0, target: Target = "driver"
    ) -> Kill:
        """Runs it until a condition holds, and so many seconds more, and kills it."""
        with self.start() as process:
            process.wait_until(condition, moment, every=_QUICK)
            time.sleep(after)
            assert self._strike(process, target), f"ended too early: {moment}\n{process.text}"
        return self._killed(Kill(moment, self.planned, reached=self._last_reached()))

    def kill_after_offsets(self, target: Target = "driver") -> Kill:
        """Kills it as soon as Spark has noted what the next batch reads."""
        before = self.planned
        return self.kill_when("offsets.written", lambda: self.planned > before, target=target)

    def kill_after_commit(self, target: Target = "driver") -> Kill:
        """Kills it as soon as Spark has committed the next batch."""
        before = self.committed
        return self.kill_when("commits.written", lambda: self.committed > before, target=target)

    def kill_while_tasks_run(self, after: float = 0.3, target: Target = "driver") -> Kill:
        """Kills it shortly after the next batch has begun to compute."""
        return self.kill_when("tasks.running", self._in_batch, after=after, target=target)

    def kill_during_upload(self, target: Target = "driver", tries: int = 5) -> Kill:
        """Kills it while the state of a batch is stored: some of it is there, some is not.

        A kill that came too late to hit that counts as one at any other moment, and the next batch is tried.
        """
        for _ in range(tries):
            before = self._state_versions()
            halfway = partial(self._half_stored, before)
            found = self.kill_when("state.upload", halfway, target=target)
            if halfway():
                return found
            self.kills[-1] = Kill("random", found.batch, reached=found.reached)
        raise AssertionError(f"state was never half stored in {tries} tries; does the pipeline keep any?")

    def forget_commit(self) -> Kill:
        """Makes it look as if the last run had died after all sinks had the last batch, and before Spark's commit."""
        last = self.committed
        assert last >= 0, "nothing has been committed yet"
        for name in (str(last), f".{last}.crc"):
            (self.state / "checkpoint" / "commits" / name).unlink(missing_ok=True)
        return self._killed(Kill("commit.lost", last))

    def kill_at_random(self, chance: random.Random, *, seed: int | None = None) -> Kill | None:
        """Kills it up to a second after one of the points of its first two batches; None if it had ended by then.

        Moments are counted in points, not in seconds alone, so that slow machines are hit everywhere too.
        """
        target: Target = chance.choice(("driver", "driver", "jvm", "both"))
        points = chance.randint(1, 2 * (3 + 3 * len(self.file.pipeline.sinks)))
        after = chance.uniform(0, 1)
        with self.start() as process:
            until(lambda: len(self.reached()) >= points or not process.alive, f"{points} points")
            time.sleep(after)
            struck = self._strike(process, target)
        if not struck:
            assert process.process.returncode == 0, process.text
            return None
        return self._killed(Kill("random", self.planned, reached=self._last_reached(), seed=seed))

    def kill_often(self, seed: int, times: int) -> int:
        """Kills it at moments that the seed chooses, until it has come to its end; how often it was killed."""
        print(f"seed {seed}")
        chance = random.Random(seed)
        for done in range(times):
            if self.kill_at_random(chance, seed=seed) is None:
                return done
        return times

    def survived(self) -> None:
        """Says that all is there as it must be: the kills count, and are noted where PENSTOCK_KILLS says."""
        note({sink.name: sink.component for sink in self.file.pipeline.sinks}, self.kills)

    def _in_batch(self) -> bool:
        """Whether the run has begun a batch, or has passed a point of its history."""
        return any(line.startswith(("batch.start@", *HISTORY_POINTS)) for line in self.reached())

    def _state_versions(self) -> dict[Path, int]:
        return state_versions(self.state / "checkpoint")

    def _half_stored(self, before: Mapping[Path, int]) -> bool:
        """Whether some parts of the state have been stored since then, and others have not."""
        now = self._state_versions()
        return now != before and len(set(now.values())) > 1

    def _last_reached(self) -> str:
        return next(reversed(self.reached()), "")

    def _strike(self, process: Process, target: Target) -> bool:
        """Kills it; whether it was still alive."""
        if not process.alive:
            return False
        jvm = process.jvm() if target != "driver" else None
        if target != "jvm":
            process.signal(signal.SIGKILL)
        if jvm is not None:
            kill(jvm)
        code = process.wait(_ENDING if target != "jvm" else 3 * _ENDING)
        assert code == (1 if target == "jvm" else -signal.SIGKILL), f"ended with {code}\n{process.text}"
        return True

    def _killed(self, found: Kill) -> Kill:
        until(lambda: not with_variable(_RUN, self._run), "the end of all that it had started", _ENDING)
        print(f"killed at {found}" + (f", after {found.reached}" if found.reached else ""))
        self.kills.append(found)
        self.check()
        return found
