"""Runs a pipeline on the engine itself, with its own sources and sinks, until what is there has been read."""

from __future__ import annotations

import datetime as dt
import json
import sqlite3
import threading
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from penstock.components.shared import crashpoints
from penstock.engine.analyse import analyse
from penstock.engine.ledger import BatchEntry
from penstock.engine.progress import BatchReport, Status
from penstock.engine.query import RunningPipeline
from penstock.engine.statedir import StateDir
from penstock.errors import PenstockError, Problem
from penstock.graph.nodes import Graph
from penstock.runner.course import Course
from penstock.testing import shared_session

Row = dict[str, Any]


class Died(Exception):
    """Raised at a crash point in place of the end of the process."""


@dataclass(frozen=True)
class Outcome:
    """What a run has left."""

    ledger: list[BatchEntry]
    reports: list[BatchReport]
    lineage: str
    epoch: int
    state: Path


def run(graph: Graph, state_dir: Path, *, die_at: str | None = None) -> Outcome:
    """Runs until all that is there is processed, or until it dies at `point@batch`."""
    spark = shared_session()
    with StateDir(state_dir, graph.file.pipeline.name) as state:
        analysed = analyse(spark, graph, state.spool)
        analysed.raise_errors()
        running = RunningPipeline(spark, graph, analysed, state)
        crashpoints.install(_dying(die_at) if die_at else None)
        try:
            running.start(once=True)
            running.wait(120)
        except PenstockError:
            if not isinstance(running.handler.failure, Died):
                raise
        finally:
            crashpoints.install(None)
            running.stop()
            running.close()
        identity = state.identity
        return Outcome(running.ledger.entries(), running.new_reports(), identity.lineage, identity.epoch, state_dir)


def course(graph: Graph, state_dir: Path, *, die_at: str | None = None) -> list[Status]:
    """Takes its whole course, history first, until all is processed or it dies at a point; what it reported."""
    seen: list[Status] = []
    died: list[str] = []

    def hook(point: str, batch: int) -> None:
        if point == die_at:
            died.append(point)
            raise Died(point)

    with StateDir(state_dir, graph.file.pipeline.name) as state:
        status = Status(graph.file.pipeline.name, "starting", dt.datetime.now(dt.UTC))
        crashpoints.install(hook)
        try:
            way = Course(shared_session(), graph, state, seen.append, status, threading.Event(), state.logs / "log")
            seen.append(way.through(once=True))
        except (Died, PenstockError):
            if not died:
                raise
        finally:
            crashpoints.install(None)
    assert bool(died) == (die_at is not None)
    return seen


def _dying(at: str) -> crashpoints.Hook:
    def hook(point: str, batch: int) -> None:
        if f"{point}@{batch}" == at:
            raise Died(at)

    return hook


def problems(spark: SparkSession, graph: Graph, spool: Path) -> tuple[Problem, ...]:
    """What the analyser finds wrong, without anything being run."""
    return analyse(spark, graph, spool).problems


def at(problem: Problem) -> tuple[str, int, int]:
    """Code, line and column of a problem."""
    assert problem.location is not None
    return problem.code, problem.location.line, problem.location.column


def json_lines(rows: Iterable[Mapping[str, Any]]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def table(file: Path, query: str) -> list[tuple[Any, ...]]:
    """What a query over a SQLite file gives."""
    with closing(sqlite3.connect(file)) as db:
        return db.execute(query).fetchall()
