"""Whether the number of cores is changed now, and why, or why not. What is remembered between two looks is a value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from penstock.capacity.autoscale.evaluate import Evaluation, Rules, evaluate, too_little, too_much
from penstock.capacity.autoscale.observe import Observed
from penstock.capacity.figures import length, number, time_of_day

DAY = 86_400.0
LEAST_EFFECT = 0.1
"""More cores that bring less of what they promised than this did not help."""
LEAST_SCALING = 0.3
INEFFECTIVE_FOR = 6 * 3600.0
"""How long no more cores are given after some did not help."""
_FOR_UP = 2
"""Changes of a day that are kept for more cores."""


class Action(StrEnum):
    KEEP = "keep"
    UP = "up"
    DOWN = "down"
    HELD = "held"
    """A change is due, and something speaks against it."""


@dataclass(frozen=True)
class Change:
    """A number of cores that was changed, and what was expected of it."""

    at: float
    before: int
    after: int
    capacity_before: float
    capacity_promised: float


@dataclass(frozen=True)
class Memory:
    """What is remembered of a pipeline between two looks."""

    changes: tuple[Change, ...] = ()
    """Of the last day, the oldest first."""
    judged: float = 0.0
    """When the change was made whose effect was judged last."""
    scaling: float = 1.0
    """How much of what more cores promise comes true."""
    ineffective_until: float = 0.0
    up_since: float | None = None
    """Since when more cores are needed."""
    down_since: float | None = None
    """Since when fewer cores have been enough."""
    down_to: int = 0
    """The most cores that were needed since then."""
    settled: float = 0.0
    """Until when what is observed is not judged."""


@dataclass(frozen=True)
class Decision:
    """What is to be done, with the formula it follows from."""

    at: float
    action: Action
    before: int
    after: int
    """Cores; the same as before unless they are changed."""
    why: str
    evaluation: Evaluation | None = None
    ineffective: str | None = None
    """That an earlier change did not help, if that was found now."""

    @property
    def in_words(self) -> str:
        formula = f"{self.evaluation.in_words}: " if self.evaluation is not None else ""
        return f"{formula}{self.why}"


def decide(observed: Observed | None, memory: Memory, rules: Rules, now: float) -> tuple[Decision, Memory]:
    """One look. The memory that comes back takes the decision to be carried out."""
    memory = replace(memory, changes=tuple(change for change in memory.changes if now - change.at < DAY))
    if observed is None:
        return Decision(now, Action.KEEP, 0, 0, "too few batches to judge"), replace(
            memory, up_since=None, down_since=None
        )
    last = memory.changes[-1] if memory.changes else None
    if now < memory.settled:
        left = length(memory.settled - now)
        why = f"changed {length(now - last.at)} ago; judged again in {left}" if last else f"judged in {left}"
        return Decision(now, Action.KEEP, observed.cores, observed.cores, why), memory
    memory, ineffective = _judge_last(observed, memory, now)
    found = evaluate(observed, rules, memory.scaling)
    if found.cores < rules.least or (too_little(found, rules) and found.needed > found.cores):
        decision, memory = _up(found, replace(memory, down_since=None), rules, now)
    elif found.cores > rules.most or (found.needed < found.cores and too_much(found, rules)):
        decision, memory = _down(found, replace(memory, up_since=None), rules, now)
    else:
        memory = replace(memory, up_since=None, down_since=None)
        decision = Decision(now, Action.KEEP, found.cores, found.cores, _enough(found, rules), found)
    return replace(decision, ineffective=ineffective), memory


def started(memory: Memory, rules: Rules, now: float) -> Memory:
    """After a start: what is observed while Java compiles and what waited is worked off is not judged."""
    settled = max(memory.settled, now + rules.stabilisation)
    return replace(memory, settled=settled, up_since=None, down_since=None)


def _enough(found: Evaluation, rules: Rules) -> str:
    if too_little(found, rules):
        return f"{found.cores} is the most that is allowed, and it is not enough"
    share = (found.load + found.by_lag) / found.capacity
    if share < rules.busy - rules.band:
        return f"busy for {share:.0%}, and fewer cores would not be enough"
    return f"busy for {share:.0%}, within {rules.busy - rules.band:.0%} to {min(1.0, rules.busy + rules.band):.0%}"


def _judge_last(observed: Observed, memory: Memory, now: float) -> tuple[Memory, str | None]:
    """What the last change to more cores has brought, once."""
    last = memory.changes[-1] if memory.changes else None
    if last is None or last.at <= memory.judged or last.after <= last.before or observed.cores != last.after:
        return memory, None
    promised = last.capacity_promised - last.capacity_before
    brought = observed.capacity - last.capacity_before
    effect = brought / promised if promised > 0 else 1.0
    scaling = min(1.0, max(LEAST_SCALING, effect * memory.scaling))
    memory = replace(memory, judged=last.at, scaling=scaling)
    if effect >= LEAST_EFFECT:
        return memory, None
    text = (
        f"{last.before} → {last.after} cores was to bring {number(promised)} rows/s and brought {number(brought)}; "
        f"no more are given for {length(INEFFECTIVE_FOR)}"
    )
    return replace(memory, ineffective_until=now + INEFFECTIVE_FOR), text


def _up(found: Evaluation, memory: Memory, rules: Rules, now: float) -> tuple[Decision, Memory]:
    against = _excluded(rules, now) or _quota(memory, rules, rules.most_per_day)
    if against is None and now < memory.ineffective_until:
        against = f"more cores did not help; tried again in {length(memory.ineffective_until - now)}"
    if against is not None:
        return Decision(now, Action.HELD, found.cores, found.cores, against, found), memory
    since = memory.up_since if memory.up_since is not None else now
    if now - since < rules.up_delay and found.cores >= rules.least:
        # At the beginning of a rise it is not seen yet how high it goes, and the next change has to wait.
        why = f"more is needed; given in {length(rules.up_delay - (now - since))} if that stays so"
        return Decision(now, Action.KEEP, found.cores, found.cores, why, found), replace(memory, up_since=since)
    return _changed(found, memory, rules, now, Action.UP, found.needed, "more is needed")


def _down(found: Evaluation, memory: Memory, rules: Rules, now: float) -> tuple[Decision, Memory]:
    if found.catching_up:
        why = "fewer cores are never given while it is catching up"
        return Decision(now, Action.KEEP, found.cores, found.cores, why, found), replace(memory, down_since=None)
    since = memory.down_since if memory.down_since is not None else now
    most = max(found.needed, memory.down_to if memory.down_since is not None else 0)
    memory = replace(memory, down_since=since, down_to=most)
    if now - since < rules.down_delay and found.cores <= rules.most:
        left = length(rules.down_delay - (now - since))
        why = f"{most} have been enough for {length(now - since)}; taken away in {left} if that stays so"
        return Decision(now, Action.KEEP, found.cores, found.cores, why, found), memory
    against = _excluded(rules, now) or _quota(memory, rules, max(1, rules.most_per_day - _FOR_UP))
    if against is not None:
        return Decision(now, Action.HELD, found.cores, found.cores, against, found), memory
    after = min(max(most, rules.least), rules.most)
    why = f"fewer have been enough for {length(now - since)}"
    return _changed(found, memory, rules, now, Action.DOWN, after, why)


def _changed(
    found: Evaluation, memory: Memory, rules: Rules, now: float, action: Action, after: int, why: str
) -> tuple[Decision, Memory]:
    change = Change(now, found.cores, after, found.capacity, found.capacity_then)
    memory = replace(
        memory,
        changes=(*memory.changes, change),
        settled=now + rules.restart + rules.stabilisation,
        up_since=None,
        down_since=None,
    )
    return Decision(now, action, found.cores, after, f"{why}, {found.cores} → {after} cores", found), memory


def _excluded(rules: Rules, now: float) -> str | None:
    second = now % DAY
    for start, end in rules.excluded:
        inside = start <= second < end if start <= end else second >= start or second < end
        if inside:
            return f"nothing is changed from {time_of_day(start)} to {time_of_day(end)}"
    return None


def _quota(memory: Memory, rules: Rules, most: int) -> str | None:
    if len(memory.changes) < most:
        return None
    if most < rules.most_per_day:
        return f"{len(memory.changes)} changes in 24 hours, and the last ones are kept for more cores"
    return f"{len(memory.changes)} changes in 24 hours are the most that are allowed"
