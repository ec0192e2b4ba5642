"""Real kills, at every crash point and at random moments: afterwards nothing is lost and nothing is there twice."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.faults.herd import Herd
from tests.faults.outside import Objects, Outside, Table, Topic
from tests.faults.victim import DELTA_SINKS, FILES, ROLLED_SINKS, ROUTED_SINKS, ROW_SINKS, WINDOW_SINKS, Victim

from penstock.components.shared.crashpoints import POINTS
from penstock.engine.dead import SINK as DEAD
from penstock.testing.processes import LIGHT, Process, descendants, is_running, kill, until

pytestmark = pytest.mark.spark

SINKS = ("sink.before_write", "sink.in_transaction", "sink.after_commit")
SEVERAL = ("row_files", "row_table", *DELTA_SINKS, "window_files", "window_latest", *ROUTED_SINKS)
JVM_SECONDS = 5.0


def kill_at(victim: Victim, places: Iterable[str]) -> None:
    for place in places:
        point, batch, *sink = place.split("@")
        victim.crashes.kill_at(point, int(batch), *sink)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("sink", "places"),
    [
        # Of these batches 2 and 7 have dead letters, which one sink alone sets aside after its own rows.
        ("row_files", ["sink.compacting@2", "sink.after_commit@4", "sink.compacted@5", "batch.after_ledger@7"]),
        ("window_table", ["sink.in_transaction@4", "sink.after_commit@5", "batch.after_sinks@7"]),
    ],
)
def test_a_sink_alone_loses_and_doubles_nothing(tmp_path: Path, sink: str, places: list[str]) -> None:
    victim = Victim(tmp_path / "victim", (sink,))

    kill_at(victim, places)
    victim.finish()
    victim.crashes.survived()


@pytest.fixture
def servers(request: pytest.FixtureRequest) -> tuple[Outside, ...]:
    """A sink on each kind of server."""
    found: list[Outside] = [Topic(request.getfixturevalue("kafka"), request.getfixturevalue("kafka_topic"))]
    for kind, server in (("postgres", "postgres"), ("mysql", "mariadb")):
        found.append(Table(kind, request.getfixturevalue(server), request.getfixturevalue(f"{server}_database")))
    found.append(Objects(request.getfixturevalue("s3"), request.getfixturevalue("s3_bucket")))
    return tuple(found)


class Flock:
    """Each sink in a pipeline of its own, and a pair of which one has the batch and the other does not."""

    def __init__(self, folder: Path, servers: tuple[Outside, ...]) -> None:
        sinks = {"files": ("row_files",), "table": ("row_table",), "delta": ("row_delta",), "routed": ROUTED_SINKS}
        victims = {name: Victim(folder / name, found, files=6) for name, found in sinks.items()}
        victims |= {item.kind: Victim(folder / item.kind, (), files=6, outside=(item,)) for item in servers}
        self.first = {name: victim.all_sinks[0] for name, victim in victims.items()}
        self.herd = Herd(folder, **victims)

    def kill_at(self, point: str, batch: int) -> None:
        places = dict.fromkeys(self.first, f"{point}@{batch}")
        if point in SINKS:
            places = {name: f"{place}@{self.first[name]}" for name, place in places.items()}
        self.herd.kill_at(**places)

    def kill_at_points_of_their_own(self) -> None:
        """In batch 2, which has dead letters, and these have a sink of their own."""
        self.herd.kill_at(
            files="sink.compacting@2@row_files", s3="sink.compacting@2@s3",
            postgres="sink.staged@2@postgres", mysql="sink.staged@2@mysql",
            table=f"sink.in_transaction@2@{DEAD}",
        )  # fmt: skip


@pytest.mark.timeout(1200)
def test_every_sink_loses_and_doubles_nothing_when_killed(tmp_path: Path, servers: tuple[Outside, ...]) -> None:
    """Every sink in its transaction and after it, and when Spark alone has not committed the batch."""
    flock = Flock(tmp_path, servers)
    flock.kill_at("sink.in_transaction", batch=1)
    flock.kill_at("sink.after_commit", batch=1)
    flock.kill_at_points_of_their_own()
    flock.kill_at("batch.after_ledger", batch=3)
    flock.herd.finish()


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_every_sink_loses_and_doubles_nothing_when_killed_at_each_point(
    tmp_path: Path, servers: tuple[Outside, ...]
) -> None:
    flock = Flock(tmp_path, servers)
    flock.kill_at("batch.start", batch=0)
    flock.kill_at("sink.before_write", batch=0)
    flock.kill_at("sink.in_transaction", batch=1)
    flock.kill_at("sink.after_commit", batch=1)
    flock.kill_at_points_of_their_own()
    flock.kill_at("batch.after_sinks", batch=3)
    flock.herd.kill_at(files="sink.compacted@5@row_files", s3="sink.compacted@5@s3")
    flock.kill_at("batch.after_ledger", batch=5)
    flock.herd.finish()


@pytest.mark.timeout(900)
def test_kills_from_outside_lose_and_double_nothing(tmp_path: Path) -> None:
    """At the moments that Spark itself passes, once with the JVM alone, and at a random one."""
    victim = Victim(tmp_path / "victim", ("window_files", "window_latest"))
    crashes = victim.crashes

    crashes.kill_after_offsets()
    crashes.kill_during_upload()
    crashes.kill_after_commit(target="jvm")
    text = crashes.log.read_text("utf-8")
    assert "error[JVM_DIED] " in text
    assert str(victim.state / "logs" / "spark.log") in text
    assert "Traceback" not in text
    crashes.kill_often(seed=1, times=1)
    crashes.kill_at("sink.after_commit", crashes.committed + 1, "window_files")
    victim.finish()
    crashes.survived()


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "places",
    [
        ["history.read@0"],
        pytest.param(["history.copied@0", "sink.after_commit@1@row_files", "history.read@0"], marks=pytest.mark.long),
    ],
    ids=["once", "often"],
)
def test_history_and_dead_letters_that_are_fed_back_survive_kills(tmp_path: Path, places: list[str]) -> None:
    victim = Victim(tmp_path / "victim", ("row_files", "row_table"), history=4, ruled=True)
    crashes = victim.crashes

    kill_at(victim, places)
    victim.finish()

    fed_back = victim.mend()
    assert fed_back == len(victim.against_the_rule)
    crashes.kill_at("sink.after_commit", crashes.committed + 1, "row_files")
    victim.finish()
    crashes.survived()


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("batch", [0, 3, FILES - 1])
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("sink", [*ROW_SINKS, *DELTA_SINKS, *WINDOW_SINKS, *ROLLED_SINKS])
def test_each_sink_alone_survives_each_point(tmp_path: Path, sink: str, point: str, batch: int) -> None:
    victim = Victim(tmp_path / "victim", (sink,))

    victim.crashes.kill_at(point, batch)
    victim.finish()
    victim.crashes.survived()


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(100, 120))
def test_ten_random_kills_of_all_sinks_lose_and_double_nothing(
    tmp_path: Path, servers: tuple[Outside, ...], seed: int
) -> None:
    """Two hundred kills for every sink in all: ten for each seed, of a pipeline that has all of them.

    Most of them keep no state, so that batches are short and more of the kills come while a sink is at work.
    """
    sinks = (*ROW_SINKS, *DELTA_SINKS) if seed % 5 else SEVERAL
    victim = Victim(tmp_path / "victim", sinks, files=30, outside=servers)

    assert victim.crashes.kill_often(seed, times=10) == 10
    victim.finish()
    victim.crashes.survived()


HOLDING_STEP = """\
import os, pathlib, time

folder = pathlib.Path({folder!r})
if not (folder / "child").exists():
    child = os.fork()
    if child == 0:
        time.sleep(600)
        os._exit(0)
    (folder / "child").write_text(str(child))

def hold(batches):
    for batch in batches:
        (folder / "working").touch()
        time.sleep(600)
        yield batch
"""
HOLDING_PIPELINE = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {name: holding}
spec:
  sources:
    views: {files: {path: ./in}, format: {json: {schema: {id: bigint}}}}
  steps:
    held: {from: views, python: {function: "holding:hold", over: arrow, schema: {id: bigint}}}
  sinks:
    store: {from: held, files: {path: ./out}}
"""


def test_the_jvm_and_its_workers_die_with_python_although_another_process_holds_their_pipes(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text('{"id": 1}\n', "utf-8")
    (tmp_path / "holding.py").write_text(HOLDING_STEP.format(folder=str(tmp_path)), "utf-8")
    pipeline = tmp_path / "p.yaml"
    pipeline.write_text(HOLDING_PIPELINE, "utf-8")
    with Process(["run", pipeline, "--once", *LIGHT], tmp_path / "run.log") as process:
        process.wait_until((tmp_path / "working").exists, "the worker's first row")
        holder = int((tmp_path / "child").read_text("utf-8"))
        try:
            jvm = process.jvm()
            below = descendants(jvm)
            assert is_running(holder)
            assert below, "no Python worker below the JVM"
            process.signal(signal.SIGKILL)
            process.wait()
            until(lambda: not is_running(jvm), "the JVM's end", JVM_SECONDS)
            until(lambda: not any(is_running(pid) for pid in below), "the workers' end", JVM_SECONDS)
            assert is_running(holder)
        finally:
            kill(holder)
