"""Puts the state of a pipeline where another version of it looks for it: what stays goes on, what is new begins empty.

The work is done on a copy and compared before it takes the place of what was there.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.components.shared.crashpoints import reach
from penstock.engine.checkpoint import last_committed
from penstock.engine.checkpoint_cut import operators as operators_in
from penstock.engine.evolution import operators
from penstock.engine.evolution.contents import Content, Variable, contents
from penstock.engine.evolution.feed import feed, missing_files
from penstock.engine.evolution.going_on import Verdict
from penstock.engine.evolution.seed import Seed, grow
from penstock.engine.evolution.spools import carry_paths, carry_spool, new_places
from penstock.engine.evolution.streams import carry_positions
from penstock.engine.evolution.working_copy import put_in_place, working_copy
from penstock.engine.ledger import Ledger, add
from penstock.engine.state.chunk_store import FOLDER, StateIndex, in_chunks, newest_epoch, put_index, read_index
from penstock.engine.statedir import StateDir, identity_text
from penstock.errors import PenstockError
from penstock.graph.flow import origins
from penstock.graph.nodes import Graph
from penstock.reports.state_folder import state_partitions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Grafted:
    kept: Mapping[str, int]
    """Rows of state by step that goes on."""
    begun: tuple[str, ...]
    """Steps whose state begins empty."""
    steps: Mapping[int, str]
    """The steps whose state is kept, by the number of the operator."""
    bootstrapped: tuple[str, ...] = ()
    """Steps whose state was made anew from what was read before."""


def graft(
    spark: SparkSession,
    state: StateDir,
    graph: Graph,
    verdict: Verdict,
    steps: Mapping[int, str],
    savepoint: str,
    bootstrap: Collection[str] = (),
) -> Grafted:
    """Carries an open state over. `steps` are those of before, by the number of the operator that keeps their state.

    Steps in `bootstrap` get their state from what was read so far, which is read again.
    """
    batch = last_committed(state.checkpoint)
    if in_chunks(state.checkpoint):
        return _graft_chunks(state, verdict, batch, savepoint, bootstrap)
    partitions = state_partitions(state.checkpoint) or 1
    with working_copy(state, batch) as new:
        reach("graft.copied", 0)
        checkpoint = new / "checkpoint"
        held = contents(spark, checkpoint, batch) if (checkpoint / "state").is_dir() else {}
        found = Seed(new / "seed", {})
        if verdict.now.stateful:
            found = _grown(spark, graph, new / "seed", partitions, state)
            _refuse_unnamed(found, state)
        sources = _origins_of_state(found, verdict, steps, checkpoint, bootstrap)
        place_streams(new, state, verdict)
        fed = _fed(spark, graph, new, batch, partitions, state, verdict, bootstrap) if bootstrap else None
        seeds = {number: fed if fed and step in bootstrap else found for number, step in found.steps.items()}
        _place_state(seeds, sources, checkpoint, state.checkpoint, batch + 1, partitions)
        wanted = _wanted(spark, held, sources, fed, [n for n, step in found.steps.items() if step in bootstrap])
        kept = _verified(spark, state, checkpoint, batch, wanted, found)
        for name in ("seed", "fed", "fed-carefully"):
            shutil.rmtree(new / name, ignore_errors=True)
        version = replace(verdict.now, sinks=known_as(state, verdict))
        operators_now = {str(number): step for number, step in sorted(found.steps.items())}
        text = identity_text(replace(state.identity, version=version, operators=operators_now))
        (new / "pipeline.json").write_text(text, "utf-8")
        reach("graft.grafted", 0)
        put_in_place(state, new, batch, savepoint)
    state.adopt()
    begun = tuple(
        dict.fromkeys(step for n, step in found.steps.items() if sources[n] is None and step not in bootstrap)
    )
    return Grafted(kept, begun, dict(found.steps), tuple(bootstrap))


def _graft_chunks(state: StateDir, verdict: Verdict, batch: int, savepoint: str, bootstrap: Collection[str]) -> Grafted:
    """State in chunk files is carried over by an index that names the steps as they are called now."""
    if bootstrap:
        raise PenstockError.of("STATE_STORE_UNSUPPORTED", what="`--bootstrap`")
    now = [name for name in verdict.now.document["spec"].get("steps", {}) if name in verdict.now.stateful]
    old = {step: name for step in now if (name := verdict.plan.kept.get(step)) and name not in verdict.lost}
    with working_copy(state, batch) as new:
        reach("graft.copied", 0)
        folder = new / "checkpoint" / FOLDER
        before = read_index(folder, batch)
        missing = [name for name in old.values() if name in verdict.stateful and name not in before.steps]
        if missing:
            raise _failed(state.path, f"nothing is known of the state of '{missing[0]}'")
        place_streams(new, state, verdict)
        after = StateIndex(batch, before.watermark, {step: before.steps.get(old.get(step, ""), {}) for step in now})
        put_index(folder, after, newest_epoch(folder) + 1)
        version = replace(verdict.now, sinks=known_as(state, verdict))
        operators_now = {str(number): step for number, step in enumerate(now)}
        text = identity_text(replace(state.identity, version=version, operators=operators_now))
        (new / "pipeline.json").write_text(text, "utf-8")
        reach("graft.grafted", 0)
        put_in_place(state, new, batch, savepoint)
    state.adopt()
    kept = {step: len(after.steps[step]) for step in old}
    return Grafted(kept, tuple(step for step in now if step not in old), dict(enumerate(now)))


def _grown(spark: SparkSession, graph: Graph, folder: Path, partitions: int, state: StateDir) -> Seed:
    assert state.identity.buckets is not None
    try:
        return grow(spark, graph, folder, partitions, state.identity.buckets)
    except PenstockError:
        raise
    except Exception as error:
        reason = (str(error).splitlines() or ["unknown"])[0]
        raise _failed(state.path, f"the new version does not run: {reason}") from error


def _fed(
    spark: SparkSession,
    graph: Graph,
    new: Path,
    batch: int,
    partitions: int,
    state: StateDir,
    verdict: Verdict,
    bootstrap: Collection[str],
) -> Seed:
    spool = new / "spool" if (new / "spool").is_dir() else state.spool
    gone = missing_files(new / "checkpoint" / "sources")
    if gone:
        raise _failed(state.path, f"what was read before cannot be read again: {gone[0]} is gone")

    def read_again(*, careful: bool) -> tuple[Seed, dict[str, int]]:
        folder, buckets = new / ("fed-carefully" if careful else "fed"), state.identity.buckets
        assert buckets is not None
        return feed(spark, graph, new / "checkpoint", spool, folder, batch, partitions, buckets, careful=careful)

    try:
        try:
            fed, rows = read_again(careful=False)
        except PenstockError:
            raise
        except Exception:
            # It may be a row, as it was for the run that first read it.
            fed, rows = read_again(careful=True)
    except PenstockError:
        raise
    except Exception as error:
        reason = (str(error).splitlines() or ["unknown"])[0]
        raise _failed(state.path, f"what was read before cannot be read again: {reason}") from error
    _refuse_fewer(graph, state, verdict, bootstrap, rows)
    return fed


def _refuse_fewer(
    graph: Graph, state: StateDir, verdict: Verdict, bootstrap: Collection[str], rows: Mapping[str, int]
) -> None:
    """Raises if a source has given fewer rows than the ledger has counted."""
    counted = add(entry.rows_in for entry in Ledger(state.ledger).entries())
    needed = {name for step in bootstrap for name in graph.ancestors(step)}
    for name in sorted(needed & rows.keys()):
        before = counted.get(verdict.plan.kept.get(name, ""), 0)
        if rows[name] < before:
            reason = f"of {before:,} rows of '{name}' that were read before, {rows[name]:,} are still there"
            raise _failed(state.path, reason)


def _origins_of_state(
    seed: Seed, verdict: Verdict, steps: Mapping[int, str], checkpoint: Path, bootstrap: Collection[str]
) -> dict[int, int | None]:
    """For each new operator the old one whose state it goes on with; None if it begins anew.

    A query may compute a step several times, each with a state of its own; they hold the same.
    """
    found: dict[int, int | None] = {}
    for step, numbers in _by_step(seed.steps).items():
        name = None if step in bootstrap else verdict.plan.kept.get(step)
        old = [] if name is None or name in verdict.lost else _by_step(steps).get(name, [])
        found |= {number: old[place % len(old)] if old else None for place, number in enumerate(numbers)}
        if name in verdict.stateful and name not in verdict.lost and not old:
            # A run that was killed may not have told where it keeps what.
            reason = f"it is not known where the state of '{name}' is; run the earlier version once with --once"
            raise PenstockError.of("UPGRADE_FAILED", path=checkpoint.parent.parent, reason=reason)
    _refuse_unlike(seed, found, checkpoint, verdict)
    return dict(sorted(found.items()))


def _refuse_unnamed(seed: Seed, state: StateDir) -> None:
    """Raises if it cannot be told of which step some state of the new version is."""
    unnamed = [one.id for one in operators_in(seed.checkpoint) if one.id not in seed.steps]
    if unnamed:
        raise _failed(state.path, f"it cannot be told whose state operator {unnamed[0]} keeps")


def _by_step(steps: Mapping[int, str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number, step in sorted(steps.items()):
        found.setdefault(step, []).append(number)
    return found


def _refuse_unlike(seed: Seed, found: Mapping[int, int | None], checkpoint: Path, verdict: Verdict) -> None:
    for new, old in found.items():
        if old is None:
            continue
        there = operators.kind(seed.checkpoint / "state" / str(new))
        if operators.kind(checkpoint / "state" / str(old)) != there:
            node = verdict.plan.kept[seed.steps[new]]
            raise PenstockError.of("CHANGE_LOSES_STATE", node=node, reason="Spark keeps its state in another shape now")


def _place_state(
    seeds: Mapping[int, Seed],
    sources: Mapping[int, int | None],
    copy: Path,
    live: Path,
    version: int,
    partitions: int,
) -> None:
    old = copy / "state-before"
    if (copy / "state").is_dir():
        (copy / "state").rename(old)
    for number, origin in sources.items():
        new = copy / "state" / str(number)
        if origin is None:
            seed = seeds[number]
            operators.begin(seed.checkpoint / "state" / str(number), new, version, seed.version)
            operators.set_partitions(new, partitions)
        else:
            operators.move(old / str(origin), new, live / "state" / str(origin))
    shutil.rmtree(old, ignore_errors=True)


def stream_origins(verdict: Verdict) -> dict[str, frozenset[str]]:
    """For each new stream the old ones it goes on from; empty if it begins."""
    kept = verdict.plan.kept
    found = origins(verdict.before, verdict.after, kept)
    for stream in verdict.after.streams:
        if kept.get(stream.source) in verdict.lost:
            found[stream.name] = frozenset()
    return found


def place_streams(new: Path, state: StateDir, verdict: Verdict) -> None:
    """Lets the streams of the new version find their positions, notes and files in a copy of the checkpoint."""
    found, renamed = stream_origins(verdict), verdict.plan.renamed
    known = {stream.name for stream in verdict.before.streams}
    if all(set(old) == {name} & known for name, old in found.items()) and not renamed:
        return
    carry_positions(new / "checkpoint", found, renamed)
    places = new_places(state.spool, found, renamed)
    if any(names != [place] for place, names in places.items()):
        carry_spool(state.spool, new / "spool", places)
        carry_paths(new / "checkpoint", state.spool, places)


def _wanted(
    spark: SparkSession,
    held: Mapping[Variable, Content],
    sources: Mapping[int, int | None],
    fed: Seed | None,
    bootstrapped: Collection[int],
) -> dict[Variable, Content]:
    """What the new state must hold: what goes on what it held, what was made anew what came of that; others nothing."""
    made = {} if fed is None else contents(spark, fed.checkpoint, fed.version - 1)
    wanted = {variable: content for variable, content in made.items() if variable.operator in bootstrapped}
    for number, origin in sources.items():
        if origin is not None:
            here = {variable: content for variable, content in held.items() if variable.operator == origin}
            wanted |= {replace(variable, operator=number): content for variable, content in here.items()}
    return wanted


def _verified(
    spark: SparkSession,
    state: StateDir,
    checkpoint: Path,
    batch: int,
    wanted: Mapping[Variable, Content],
    seed: Seed,
) -> dict[str, int]:
    """Raises unless the state holds what it must; the rows of what does not begin empty."""
    rows: dict[str, int] = {}
    for variable, content in (contents(spark, checkpoint, batch) if seed.steps else {}).items():
        expected, step = wanted.get(variable, Content(0, 0)), seed.steps[variable.operator]
        if content != expected:
            raise _failed(state.path, f"'{variable.name}' of '{step}' holds {content} instead of {expected}")
        if variable in wanted:
            rows[step] = rows.get(step, 0) + content.rows
    return rows


def known_as(state: StateDir, verdict: Verdict) -> dict[str, str]:
    """Renamed sinks, with the names by which what they have stored knows them."""
    before = state.identity.version
    known = {} if before is None else dict(before.sinks)
    old = verdict.plan.kept
    document = verdict.now.document["spec"]["sinks"]
    named = {name: known.get(old[name], old[name]) for name in document if name in old}
    return {name: first for name, first in named.items() if name != first}


def _failed(state: Path, reason: str) -> PenstockError:
    return PenstockError.of("UPGRADE_FAILED", path=state, reason=reason)
