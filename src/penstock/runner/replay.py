"""Feeds rows that were late to their steps again, so that results which were given out without them are corrected."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.components.base import KernelStep, Sink, Step
from penstock.engine.again import again_folder, is_fed_back, kept_letters
from penstock.engine.checkpoint import watermark
from penstock.engine.replays import kept_files, kept_folder, newest_window, replay, replay_folder
from penstock.engine.statedir import in_use, read_identity, refuse_foreign
from penstock.errors import PenstockError, did_you_mean
from penstock.graph.build import build
from penstock.graph.nodes import Graph
from penstock.spec.location import PipelineFile
from penstock.spec.pipeline import Step as StepSpec


@dataclass(frozen=True)
class Replayed:
    """What was done, or would be, for one step."""

    step: str
    rows: int
    """Rows that are fed again."""
    too_old: int
    """Rows whose windows can no longer be corrected; they stay where late rows are kept."""


@dataclass(frozen=True)
class ReplayResult:
    steps: tuple[Replayed, ...]
    running: bool
    """Whether the pipeline is running now and takes the rows in at once; otherwise its next run does."""


def replay_late(file: PipelineFile, state: Path, wanted: str | None = None, *, dry_run: bool = False) -> ReplayResult:
    """Feeds all late rows that can still correct something to their steps again, each once."""
    graph = build(file)
    refuse_foreign(state, file.pipeline.name)
    if read_identity(state) is None:
        raise PenstockError.of("STATE_MISSING", path=state, name=file.pipeline.name)
    names = _steps(graph, wanted)
    for name in names:
        _refuse_lasting(graph, name)
    now = watermark(state / "checkpoint")
    found = tuple(_replay_step(graph, name, state / "spool", now, dry_run=dry_run) for name in names)
    return ReplayResult(found, in_use(state))


def replay_dead(file: PipelineFile, state: Path, wanted: str | None = None, *, dry_run: bool = False) -> ReplayResult:
    """Feeds dead letters to the sources, steps and sinks that set them aside, each once."""
    graph = build(file)
    refuse_foreign(state, file.pipeline.name)
    if read_identity(state) is None:
        raise PenstockError.of("STATE_MISSING", path=state, name=file.pipeline.name)
    if wanted is not None and wanted not in graph.nodes:
        raise PenstockError.of("REPLAY_IMPOSSIBLE", step=wanted, reason="there is no such source, step or sink",
                               advice=did_you_mean(wanted, graph.nodes))  # fmt: skip
    spool = state / "spool"
    names = [name for name in graph.nodes if name == wanted or wanted is None]
    at_once = in_use(state) and all(is_fed_back(spool, name) or not kept_letters(spool, name) for name in names)
    found = tuple(
        _replay_letters(spool, name, dry_run=dry_run) for name in names if name == wanted or kept_letters(spool, name)
    )
    return ReplayResult(found, at_once)


def _replay_letters(spool: Path, node: str, *, dry_run: bool) -> Replayed:
    from pyarrow import parquet

    rows = 0
    for file in kept_letters(spool, node):
        rows += parquet.read_metadata(file).num_rows
        if not dry_run:
            target = again_folder(spool, node)
            target.mkdir(parents=True, exist_ok=True)
            replay(file, target)
    return Replayed(node, rows, 0)


def _steps(graph: Graph, wanted: str | None) -> list[str]:
    """The steps whose late rows are kept and can be fed again; raises if there is none."""
    able = [node.name for node in graph.of_kind("step") if _able(graph, node.name)]
    if wanted is not None and wanted not in graph.nodes:
        raise PenstockError.of("REPLAY_IMPOSSIBLE", step=wanted, reason="there is no such step",
                               advice=did_you_mean(wanted, able))  # fmt: skip
    if wanted is not None and wanted not in able:
        raise PenstockError.of("REPLAY_IMPOSSIBLE", step=wanted, reason="its late rows are not kept for it",
                               advice="It takes a `window` of one size with `late: side`.")  # fmt: skip
    if not able:
        raise PenstockError.of("REPLAY_IMPOSSIBLE", step=graph.file.pipeline.name, reason="no step keeps late rows",
                               advice="It takes a `window` of one size with `late: side`.")  # fmt: skip
    return able if wanted is None else [wanted]


def _able(graph: Graph, name: str) -> bool:
    node = graph.nodes[name]
    assert isinstance(node.spec, StepSpec)
    policy = graph.file.pipeline.late_policy(node.spec)
    return policy.policy == "side" and isinstance(node.component, Step) and node.component.takes_replays


def _refuse_lasting(graph: Graph, name: str) -> None:
    """Raises if what follows the step cannot replace what it was given."""
    for node in graph.nodes.values():
        if name not in graph.ancestors(node.name):
            continue
        if isinstance(node.component, Sink) and not node.component.accepts_updates:
            reason = f"sink '{node.name}' only appends, so that corrected rows would stand beside the earlier ones"
            raise PenstockError.of("REPLAY_IMPOSSIBLE", step=name, reason=reason, advice="Give the sink a `key`.")
        if isinstance(node.component, KernelStep):
            reason = f"'{node.name}' has counted the earlier rows and cannot take them back"
            raise PenstockError.of("REPLAY_IMPOSSIBLE", step=name, reason=reason, advice="Run from history anew.")


def _replay_step(graph: Graph, name: str, spool: Path, watermark_ms: int, *, dry_run: bool) -> Replayed:
    from pyarrow import parquet

    spec = graph.nodes[name].spec
    assert isinstance(spec, StepSpec)
    oldest = watermark_ms - graph.file.pipeline.late_policy(spec).allowed.millis
    rows = too_old = 0
    for file in kept_files(kept_folder(spool, name)):
        count = parquet.read_metadata(file).num_rows
        if newest_window(file) <= oldest:
            too_old += count
            continue
        rows += count
        if not dry_run:
            replay(file, replay_folder(spool, name))
    return Replayed(name, rows, too_old)
