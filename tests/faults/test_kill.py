"""Real kills, at every crash point and at random moments: afterwards nothing is lost and nothing is there twice."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.faults.outside import Objects, Outside, Table, Topic
from tests.faults.victim import DELTA_SINKS, FILES, ROLLED_SINKS, ROUTED_SINKS, ROW_SINKS, WINDOW_SINKS, Victim

from penstock.components.shared.crashpoints import POINTS
from penstock.testing.processes import LIGHT, Process, descendants, is_running, kill, until

pytestmark = pytest.mark.spark

SEVERAL = ("row_files", "row_table", *DELTA_SINKS, "window_files", "window_latest", *ROUTED_SINKS)
JVM_SECONDS = 5.0


def kill_at(victim: Victim, places: Iterable[str]) -> None:
    for place in places:
        point, batch, *sink = place.split("@")
        victim.crashes.kill_at(point, int(batch), *sink)


def finish_twice(victim: Victim) -> None:
    """To its end, and once more with the last batch given again."""
    victim.finish()
    last = victim.crashes.forget_commit().batch
    victim.finish()
    assert victim.crashes.committed == last
    victim.crashes.survived()


@pytest.mark.timeout(900)
def test_several_sinks_lose_and_double_nothing_when_killed_at_each_point_in_turn(tmp_path: Path) -> None:
    victim = Victim(tmp_path / "victim", SEVERAL)
    places = [
        "batch.start@0", "sink.in_transaction@1@row_files", "sink.after_commit@2@row_files",
        "sink.in_transaction@3@row_table", "sink.after_commit@4@window_latest",
        "sink.in_transaction@5@row_delta", "sink.after_commit@5@latest_delta",
        # One output of a route has the batch, the other does not.
        "sink.after_commit@5@routed_first",
        # Batch 7 has dead letters, so the transaction it dies in is theirs.
        "sink.in_transaction@7", "batch.after_ledger@8",
    ]  # fmt: skip

    kill_at(victim, places)
    finish_twice(victim)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("sink", "places"),
    [
        # Of these batches 2 and 7 have dead letters, which one sink alone sets aside after its own rows.
        ("row_files", ["sink.compacting@2", "sink.after_commit@4", "sink.compacted@5", "batch.after_ledger@7"]),
        pytest.param(
            "window_table",
            ["sink.in_transaction@4", "sink.after_commit@5", "batch.after_sinks@7"],
            marks=pytest.mark.long,
        ),
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


@pytest.mark.timeout(900)
def test_sinks_on_servers_survive_each_point_in_turn(tmp_path: Path, servers: tuple[Outside, ...]) -> None:
    victim = Victim(tmp_path / "victim", (), outside=servers)
    places = [
        "sink.in_transaction@1@kafka", "sink.after_commit@1@kafka",
        "sink.staged@2@postgres", "sink.in_transaction@3@postgres", "sink.after_commit@3@postgres",
        "sink.staged@4@mysql", "sink.in_transaction@4@mysql", "sink.after_commit@5@mysql",
        "sink.in_transaction@5@s3", "sink.compacting@5@s3", "sink.after_commit@6@s3", "batch.after_ledger@7",
        "sink.compacted@8@s3",
    ]  # fmt: skip

    kill_at(victim, places)
    finish_twice(victim)


@pytest.mark.timeout(900)
def test_kills_from_outside_lose_and_double_nothing(tmp_path: Path) -> None:
    """At the moments that Spark itself passes, once with the JVM alone, and at a random one."""
    victim = Victim(tmp_path / "victim", ("row_files", *ROLLED_SINKS))
    crashes = victim.crashes

    crashes.kill_after_offsets()
    crashes.kill_during_upload()
    crashes.kill_after_commit(target="jvm")
    text = crashes.log.read_text("utf-8")
    assert "error[JVM_DIED] " in text
    assert str(victim.state / "logs" / "spark.log") in text
    assert "Traceback" not in text
    crashes.kill_often(seed=1, times=1)
    victim.finish()
    crashes.survived()


@pytest.mark.timeout(900)
def test_history_and_dead_letters_that_are_fed_back_survive_kills(tmp_path: Path) -> None:
    victim = Victim(tmp_path / "victim", ("row_files", "row_table"), history=4, ruled=True)
    crashes = victim.crashes

    kill_at(victim, ["history.copied@0", "sink.after_commit@1@row_files", "history.read@0"])
    crashes.kill_at("sink.in_transaction", crashes.committed + 2, "row_table")
    victim.finish()

    fed_back = victim.mend()
    assert fed_back == len(victim.against_the_rule)
    next_batch = crashes.committed + 1
    crashes.kill_at("sink.after_commit", next_batch, "row_files")
    crashes.kill_at("batch.after_ledger", next_batch)
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

    Every second one keeps no state, so that its batches are short and the kills hit other moments.
    """
    victim = Victim(tmp_path / "victim", SEVERAL if seed % 2 else ROW_SINKS, files=30, outside=servers)

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
