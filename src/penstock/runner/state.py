"""Shows the state of a pipeline, whether it runs or not, or of a savepoint. Nothing is changed, and no run waits."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.engine.inspection.copies import Copy, copy_of_savepoint, copy_of_state
from penstock.engine.inspection.reading import Progress, count_of, quiet, rows_of, schema_of
from penstock.engine.inspection.writing import limited
from penstock.engine.savepoints.shelf import is_remote
from penstock.engine.session import Session, SessionOptions
from penstock.engine.spark_errors import runtime_problem
from penstock.engine.statedir import read_identity
from penstock.errors import PenstockError
from penstock.frontends.load import load
from penstock.reports.savepoints import MANIFEST
from penstock.runner.distant import at_hand
from penstock.runner.loop import RunOptions, state_path

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_SUFFIXES = (".yaml", ".yml", ".sql", ".py")
_FOLDER = ".penstock"


@dataclass(frozen=True)
class Target:
    """What is looked at: a state folder, or a savepoint."""

    folder: Path
    savepoint: str | None = None
    """The savepoint, by its name, folder or address; `folder` is then where names are looked for."""

    @contextmanager
    def copied(self, step: str | None) -> Iterator[Copy]:
        """Its state, or that of a step, to be read in peace."""
        if self.savepoint is None:
            with copy_of_state(self.folder, step) as copy:
                yield copy
            return
        with at_hand(self.savepoint, self.folder) as folder, copy_of_savepoint(folder, step) as copy:
            yield copy


@dataclass(frozen=True)
class StepState:
    """What a step keeps."""

    step: str
    rows: int
    bytes: int
    kind: str
    """What keeps it: a kernel of Penstock's, or an operator of Spark's."""


@dataclass(frozen=True)
class Overview:
    """What a pipeline keeps after a batch."""

    pipeline: str
    batch: int
    watermark_ms: int
    partitions: int
    steps: tuple[StepState, ...]


@dataclass(frozen=True)
class Shown:
    """Rows of a step's state, as they are read; use them while it is open."""

    batch: int
    watermark_ms: int
    schema: pa.Schema
    tables: Iterator[pa.Table]


def has_run_here(name: str) -> bool:
    """Whether there is state of a pipeline of this name in this folder."""
    return (Path.cwd() / _FOLDER / name).is_dir()


def target_of(
    word: str, state_dir: Path | None = None, savepoint: str | None = None, here: Path | None = None
) -> Target:
    """What a word means: a pipeline file, a state folder, a savepoint's folder, or the name of a pipeline run here."""
    path = Path(word)
    if is_remote(word) or (path / MANIFEST).is_file():
        return Target(Path.cwd(), word if is_remote(word) else str(path.resolve()))
    if path.suffix.lower() in _SUFFIXES:
        state = state_path(load(path), RunOptions(state_dir=state_dir))
    elif path.is_dir() and read_identity(path.resolve()) is not None:
        state = path.resolve()
    else:
        state = state_dir.resolve() if state_dir is not None else (here or Path.cwd()) / _FOLDER / word
        if not state.is_dir():
            advice = "Name a pipeline file, its state folder, a savepoint, or a pipeline that has run in this folder."
            raise PenstockError.of("STATE_NOT_FOUND", word=word, path=state, advice=advice)
    return Target(state, savepoint)


def overview(target: Target, progress: Progress = quiet, spark: SparkSession | None = None) -> Overview:
    """All steps that keep state, with what they keep."""
    with target.copied(None) as copy, _session(spark) as session, _in_words(target):
        found = []
        for number, (step, held) in enumerate(copy.steps.items()):
            progress(number, len(copy.steps))
            described = copy.version.kernels.get(step) if copy.version is not None else None
            kind = held.kind if described is None else str(described["kernel"])
            found.append(StepState(step, count_of(session, copy, step), held.bytes, kind))
        progress(len(found), len(found))
        return Overview(copy.pipeline, copy.batch, copy.watermark_ms, copy.partitions, tuple(found))


@contextmanager
def shown(
    target: Target,
    step: str,
    key: Sequence[str] | None = None,
    limit: int | None = None,
    progress: Progress = quiet,
    spark: SparkSession | None = None,
) -> Iterator[Shown]:
    """What a step keeps, or what it keeps of a key."""
    with target.copied(step) as copy, _session(spark) as session, _in_words(target):
        tables = rows_of(session, copy, step, key, progress)
        yield Shown(copy.batch, copy.watermark_ms, schema_of(session, copy, step), limited(tables, limit))


@contextmanager
def _session(given: SparkSession | None) -> Iterator[SparkSession]:
    """A session that only reads: whatever the pipeline itself needs, looking at its state needs none of it."""
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="penstock-state-") as folder:
        session = Session(SessionOptions(log=Path(folder) / "spark.log", quick=True))
        try:
            yield session.spark
        finally:
            session.stop()


@contextmanager
def _in_words(target: Target) -> Iterator[None]:
    """What Spark says of files that it cannot read, in Penstock's words."""
    try:
        yield
    except (PenstockError, OSError, KeyboardInterrupt):
        raise
    except Exception as error:
        if type(error).__module__.startswith(("pyspark", "py4j")):
            problem = runtime_problem(error, batch=0, log=target.folder, checkpoint=target.folder)
            reason = problem.params.get("reason", problem.message)
            raise PenstockError.of("STATE_UNREADABLE", path=target.folder, reason=reason) from error
        raise
