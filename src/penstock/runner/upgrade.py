"""Carries the state of a pipeline over to another version of it: a savepoint first, then the work, then the swap."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.engine.evolution.going_on import Verdict, judge
from penstock.engine.evolution.graft import Grafted, graft
from penstock.engine.evolution.rescale import Rescaled, partitions_before
from penstock.engine.evolution.rescale import rescale as divide_anew
from penstock.engine.savepoints.journal import pending
from penstock.engine.savepoints.standing import note_standing
from penstock.engine.savepoints.take import Moment, Wish
from penstock.engine.savepoints.trees import Progress, quiet
from penstock.engine.stage.choose import analyse_on, refuse_chunks
from penstock.engine.statedir import StateDir, read_identity, refuse_foreign
from penstock.errors import PenstockError, Problem, Severity, did_you_mean
from penstock.graph.again import why_not_again
from penstock.graph.build import build
from penstock.graph.nodes import Graph
from penstock.graph.validate import check
from penstock.reports.savepoints import SavedSink
from penstock.runner.savepoints import session_for, take_here
from penstock.runner.unfinished import as_it_ran, finish_batch
from penstock.spec.location import PipelineFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Upgraded:
    """What was done; without a savepoint if there was nothing to do."""

    savepoint: str | None = None
    rescaled: Rescaled | None = None
    grafted: Grafted | None = None


def upgrade(
    file: PipelineFile,
    path: Path,
    lose: Collection[str] = (),
    bootstrap: Collection[str] = (),
    progress: Progress = quiet,
    spark: SparkSession | None = None,
) -> Upgraded:
    """Carries over a state that no run holds; if anything fails, it is as it was.

    `lose` names those whose state may be given up, `bootstrap` steps whose state is made anew: what was read so far is
    read again. Starts Spark unless it is given one.
    """
    graph = build(file)
    errors = [problem for problem in check(graph) if problem.severity is Severity.ERROR]
    if errors:
        raise PenstockError(errors)
    name = file.pipeline.name
    refuse_foreign(path, name)
    if read_identity(path) is None:
        raise PenstockError.of("STATE_MISSING", path=path, name=name)
    with StateDir(path, name) as state:
        if pending(path) is not None:
            raise PenstockError.of("RESTORE_UNFINISHED", path=path)
        log = state.logs / "upgrade.log"
        with session_for(file.pipeline, log, spark) as session:
            finish_batch(session, file, state, log)
            before = partitions_before(state)
            return _upgrade(session, graph, state, before, frozenset(lose), frozenset(bootstrap), progress)


def _upgrade(
    spark: SparkSession,
    graph: Graph,
    state: StateDir,
    partitions: int,
    lose: frozenset[str],
    bootstrap: frozenset[str],
    progress: Progress,
) -> Upgraded:
    verdict = _verdict(spark, graph, state)
    if bootstrap:
        refuse_chunks(state.checkpoint, "`--bootstrap`")
    _refuse_bootstraps(graph, verdict, bootstrap)
    given = {verdict.plan.kept.get(step, step) for step in bootstrap} & {*verdict.lost, *verdict.plan.lost}
    _refuse_losses(verdict, lose | given)
    moves = verdict.moves or bool(bootstrap)
    wanted = graph.file.pipeline.state.partitions
    rescales = wanted is not None and wanted != partitions
    if not rescales and not moves:
        state.note_version(verdict.now)
        return Upgraded()
    taken, moment = take_here(as_it_ran(state, graph.file), state, Wish(note="before an upgrade"), progress, spark)
    name = taken.savepoint.name
    rescaled = grafted = None
    if rescales:
        assert wanted is not None
        rescaled = divide_anew(spark, state, wanted, name)
        moment = replace(moment, batch=rescaled.batch)
        note_standing(state.path, state.identity.lineage, moment)
    if moves:
        steps = {operator.id: operator.step for operator in taken.savepoint.operators if operator.step is not None}
        grafted = graft(spark, state, graph, verdict, steps, name, sorted(bootstrap))
        moment = replace(moment, sinks=renamed_sinks(moment, verdict), steps=grafted.steps)
        note_standing(state.path, state.identity.lineage, moment)
    return Upgraded(name, rescaled, grafted)


def _verdict(spark: SparkSession, graph: Graph, state: StateDir) -> Verdict:
    analysed = analyse_on(spark, graph, state)
    analysed.raise_errors()
    version = state.identity.version
    verdict = None if version is None else judge(version, graph, analysed)
    if verdict is None:
        reason = "it is not known which version of the pipeline it is of; run that one once more"
        raise PenstockError.of("UPGRADE_FAILED", path=state.path, reason=reason)
    return verdict


def _refuse_bootstraps(graph: Graph, verdict: Verdict, bootstrap: frozenset[str]) -> None:
    problems = []
    for step in sorted(bootstrap):
        known = did_you_mean(step, verdict.now.stateful)
        reason = why_not_again(graph, step) if step in verdict.now.stateful else f"no such step keeps state. {known}"
        if reason is not None:
            problems.append(Problem("BOOTSTRAP_REFUSED", {"node": step, "reason": reason.strip()}))
    if problems:
        raise PenstockError(problems)


def _refuse_losses(verdict: Verdict, lose: frozenset[str]) -> None:
    problems = [
        Problem("CHANGE_LOSES_STATE", {"node": name, "reason": reason})
        for name, reason in verdict.lost.items()
        if name not in lose
    ]
    known = {*verdict.lost, *verdict.plan.lost}
    problems += [Problem("CHANGE_LOSES_NOTHING", {"node": name}) for name in sorted(lose - known)]
    if problems:
        raise PenstockError(problems)


def renamed_sinks(moment: Moment, verdict: Verdict) -> tuple[SavedSink, ...]:
    new_names = {old: new for new, old in verdict.plan.kept.items()}
    return tuple(replace(sink, name=new_names[sink.name]) for sink in moment.sinks if sink.name in new_names)
