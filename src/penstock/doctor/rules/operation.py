"""Rules on how a pipeline is run: restarts, savepoints, batches, and tests."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.doctor.checkup import Checkup
from penstock.doctor.findings import Severity
from penstock.doctor.rule import Found, rule
from penstock.spec.pipeline import Sink, Source, Step
from penstock.spec.units import Duration

_MOST_RESTARTS = 60
_SHORTEST_TRIGGER = Duration(200)
_SHORTEST_SAVEPOINTS = Duration(60_000)
_MOST_SAVEPOINTS = 100


@rule(
    "restart-budget-zero",
    Severity.WARNING,
    message="a run that fails is not started again: `maxPerHour` is 0",
    why="A database that was restarted, or a lost connection, then stops the pipeline until somebody starts it.",
    fix="Write for example `maxPerHour: 6`, which is the default.",
)
def restart_budget_zero(checkup: Checkup) -> Iterator[Found]:
    if checkup.pipeline.run.restart.max_per_hour == 0:
        yield Found(("spec", "run", "restart", "maxPerHour"), {"maxPerHour": 0})


@rule(
    "restart-budget-large",
    Severity.WARNING,
    message="a run that fails is started again up to {maxPerHour} times in an hour",
    why="A pipeline that fails every minute looks alive, costs the start of Spark each time, and hides its mistake.",
    fix="Write at most a few in an hour, for example `maxPerHour: 6`; the pauses between them grow by themselves.",
)
def restart_budget_large(checkup: Checkup) -> Iterator[Found]:
    budget = checkup.pipeline.run.restart.max_per_hour
    if budget > _MOST_RESTARTS:
        yield Found(("spec", "run", "restart", "maxPerHour"), {"maxPerHour": budget})


@rule(
    "trigger-short",
    Severity.INFO,
    message="batches start every {trigger}",
    why="Each batch plans, commits and writes to checkpoint and ledger, which takes longer than that by itself. "
    "Small batches only add files and work.",
    fix="Write how old results may be, for example `trigger: 1 second`.",
)
def trigger_short(checkup: Checkup) -> Iterator[Found]:
    trigger = checkup.pipeline.run.trigger
    if trigger < _SHORTEST_TRIGGER:
        yield Found(("spec", "run", "trigger"), {"trigger": str(trigger)})


@rule(
    "savepoints-off",
    Severity.WARNING,
    message="steps keep state ({steps}), and no savepoints are taken",
    why="Without a savepoint there is no way back after a wrong version or a damaged disk, but to read everything "
    "again, as far as the source still has it.",
    fix="Write for example `savepoints: {{every: 6 hours}}`; the newest 5 are kept.",
    production_only=True,
)
def savepoints_off(checkup: Checkup) -> Iterator[Found]:
    steps = [node.name for node, _ in checkup.stateful()]
    if steps and checkup.pipeline.savepoints.every is None:
        yield Found(("spec", "savepoints"), {"steps": ", ".join(steps), "every": None}, key=True)


@rule(
    "savepoints-many",
    Severity.WARNING,
    message="{keep} savepoints are kept, one every {every}",
    why="A savepoint holds on to files of the checkpoint that would be removed otherwise, and batches wait while one "
    "is taken.",
    fix="Take them less often, or keep fewer.",
)
def savepoints_many(checkup: Checkup) -> Iterator[Found]:
    settings = checkup.pipeline.savepoints
    if settings.every is None:
        return
    if settings.every < _SHORTEST_SAVEPOINTS or settings.keep > _MOST_SAVEPOINTS:
        key = "every" if settings.every < _SHORTEST_SAVEPOINTS else "keep"
        yield Found(("spec", "savepoints", key), {"every": str(settings.every), "keep": settings.keep})


@rule(
    "tests-missing",
    Severity.INFO,
    message="the pipeline has no tests",
    why="What a change of a query does to results is seen only after it runs in production.",
    fix="Add `tests` with rows that are given and rows that are expected; `penstock test` runs them.",
)
def tests_missing(checkup: Checkup) -> Iterator[Found]:
    if not checkup.pipeline.tests:
        yield Found(("spec", "tests"), {"tests": 0}, key=True)


@rule(
    "renamed-from-left",
    Severity.INFO,
    message="'{name}' still says that it was called '{renamedFrom}'",
    why="State goes by names. Once the pipeline has run under the new name, the old one is of no use, and nothing else "
    "can be called so.",
    fix="Remove `renamedFrom` when the pipeline has run under the new name.",
)
def renamed_from_left(checkup: Checkup) -> Iterator[Found]:
    for spec in checkup.pipeline.nodes():
        section = "sources" if isinstance(spec, Source) else "steps" if isinstance(spec, Step) else "sinks"
        assert isinstance(spec, Source | Step | Sink)
        if spec.renamed_from is not None:
            path = ("spec", section, spec.name, "renamedFrom")
            yield Found(path, {"name": spec.name, "renamedFrom": spec.renamed_from})
