"""One pipeline between looks: its backlog, changes of its size, and decisions. No store, no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from penstock.capacity.autoscale.decide import Action, Change, Decision, Memory, decide, started
from penstock.capacity.autoscale.evaluate import Rules
from penstock.capacity.autoscale.observe import Backlog, Observed, observe
from penstock.capacity.fit import BATCH, STATE_ROW, MeasuredBatch, fit
from penstock.errors import PenstockError
from penstock.spec.scale import ScaleSettings

FIT_EVERY = 600.0
SAY_AGAIN = 1800.0
"""After how long advice that still holds is noted again."""
_KEPT = 3600.0
_USUAL_RESTART = 60.0


@dataclass(frozen=True)
class Look:
    """What is known of a pipeline at a moment."""

    now: float
    run: str
    started: float
    """When the run began."""
    cores: int
    batches: Sequence[MeasuredBatch]
    """Of the last hour, the oldest first."""
    waiting: float | None
    """Rows that wait at its sources; None if they count something else, such as files."""
    batch_limit: int | None = None


def rules_of(settings: ScaleSettings, restart: float = _USUAL_RESTART) -> Rules:
    """`restart`: how long the pipeline took to run again, in seconds, as it was seen last."""
    stabilisation = settings.stabilisation.millis / 1000
    return Rules(
        least=settings.min,
        most=settings.max,
        busy=settings.utilisation,
        catch_up=settings.catch_up.millis / 1000,
        restart=restart,
        window=stabilisation,
        stabilisation=stabilisation,
        down_delay=settings.down_after.millis / 1000,
        most_per_day=settings.max_per_day,
        excluded=tuple((each.start * 60.0, each.end * 60.0) for each in settings.excluded),
    )


@dataclass
class Track:
    """Advises only: what it remembers of changes are those that it sees to have been made."""

    memory: Memory = field(default_factory=Memory)
    decision: Decision | None = None
    backlogs: deque[Backlog] = field(default_factory=deque)
    _run: str | None = None
    _ended: float | None = None
    """When the last batch of the runs before ended."""
    _restart: float = _USUAL_RESTART
    _fixed: float = 0.0
    _fitted: float | None = None
    _seen: Observed | None = None
    """What was observed last."""
    _said: tuple[float, Action, int] | None = None

    def look(self, look: Look, settings: ScaleSettings) -> str | None:
        """Decides; gives back what is to be noted, if anything has changed or was not said for long."""
        rules = rules_of(settings, self._restart)
        if look.run != self._run:
            self._begin(look, rules)
        if look.waiting is not None:
            self.backlogs.append(Backlog(look.now, look.waiting))
        while self.backlogs and self.backlogs[0].at < look.now - _KEPT:
            self.backlogs.popleft()
        own = [batch for batch in look.batches if batch.run == look.run]
        self._measure_restart(own)
        self._fit(look)
        observed = observe(
            own, list(self.backlogs), now=look.now, window=rules.window, cores=look.cores, fixed=self._fixed,
            batch_limit=look.batch_limit,
        )  # fmt: skip
        decision, memory = decide(observed, self.memory, rules, look.now)
        # Nobody carries it out here: a change is only remembered once it is seen.
        self.memory = self.memory if decision.after != decision.before else memory
        self._seen = observed or self._seen
        self.decision = decision
        return self._news(decision)

    def _begin(self, look: Look, rules: Rules) -> None:
        """Another run; with other cores, somebody has changed its size."""
        before = self._seen
        if before is not None and before.cores != look.cores:
            change = Change(look.started, before.cores, look.cores, before.capacity, before.capacity_of(look.cores))
            self.memory = replace(self.memory, changes=(*self.memory.changes, change))
        self._ended = max((batch.at + batch.seconds for batch in look.batches if batch.run != look.run), default=None)
        self.memory = started(self.memory, rules, look.started)
        self._run, self._said = look.run, None
        self.backlogs.clear()

    def _measure_restart(self, own: Sequence[MeasuredBatch]) -> None:
        """From the end of the last batch before a restart to the begin of the first after it, if that was short."""
        if self._ended is not None and own:
            length, self._ended = own[0].at - self._ended, None
            if 0 < length < _KEPT / 4:
                self._restart = length

    def _fit(self, look: Look) -> None:
        """The fixed part of a batch, as the last hour tells; until it can be told, none."""
        if self._fitted is not None and look.now - self._fitted < FIT_EVERY:
            return
        self._fitted = look.now
        try:
            model = fit(look.batches, "")
        except PenstockError:
            return
        state = next((batch.state_rows for batch in reversed(look.batches) if batch.state_rows is not None), 0)
        self._fixed = model.cost(BATCH) + model.cost(STATE_ROW) * state

    def _news(self, decision: Decision) -> str | None:
        if decision.ineffective is not None:
            self._said = (decision.at, decision.action, decision.after)
            return f"{decision.ineffective}; {decision.in_words}"
        said, quiet = self._said, decision.action is Action.KEEP
        same = said is not None and said[1:] == (decision.action, decision.after)
        if quiet and (said is None or said[1] is Action.KEEP or decision.evaluation is None):
            return None
        if same and said is not None and decision.at - said[0] < SAY_AGAIN:
            return None
        self._said = (decision.at, decision.action, decision.after)
        return f"no change is advised any more: {decision.in_words}" if quiet else decision.in_words
