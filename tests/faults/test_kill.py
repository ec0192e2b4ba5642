"""Real kills, at every crash point and at random moments: afterwards nothing is lost and nothing is there twice."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest
from tests.faults.outside import Objects, Outside, Table, Topic
from tests.faults.processes import LIGHT, Process, descendants, is_running, kill, until
from tests.faults.victim import FILES, ROLLED_SINKS, ROW_SINKS, WINDOW_SINKS, Victim

from penstock.components.shared.crashpoints import POINTS

pytestmark = pytest.mark.spark

SEVERAL = (*ROW_SINKS, *WINDOW_SINKS, *ROLLED_SINKS)
JVM_SECONDS = 5.0


def crash(victim: Victim, place: str) -> None:
    code, text = victim.run(crash_at=place)
    assert code == -signal.SIGKILL, f"{place}: ended with {code}\n{text}"
    victim.check_nothing_twice()


def finish(victim: Victim) -> None:
    code, text = victim.run()
    assert code == 0, text
    victim.check_complete()


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("sinks", "crashes"),
    [
        # Batch 7 has dead letters, so the transaction it dies in is theirs.
        pytest.param(
            SEVERAL,
            [*(f"{point}@{batch}" for batch, point in enumerate(POINTS, 1)), "sink.in_transaction@7"],
            id="several sinks",
        ),
        # Before this point several sinks and one go the same way. Of these batches 2, 4 and 7 have dead letters.
        pytest.param(
            ("row_files",),
            [
                "sink.compacting@2", "sink.in_transaction@3", "sink.after_commit@4", "sink.compacted@5",
                "batch.after_ledger@7",
            ],
            id="rows to files",
        ),
        pytest.param(
            ("window_table",), [f"{point}@{batch}" for batch, point in zip((1, 2, 4, 7, 8), POINTS[1:], strict=True)],
            id="windows to a table",
        ),
    ],
)  # fmt: skip
def test_nothing_is_lost_or_doubled_when_killed_at_each_point_in_turn(
    tmp_path: Path, sinks: tuple[str, ...], crashes: list[str]
) -> None:
    victim = Victim(tmp_path / "victim", sinks)

    for place in crashes:
        crash(victim, place)
    finish(victim)

    last = victim.forget_last_commit()
    finish(victim)
    assert victim.numbers("commits")[-1] == last


@pytest.fixture
def outside(request: pytest.FixtureRequest) -> Outside:
    """The sink on a server that a test names."""
    if request.param == "s3":
        return Objects(request.getfixturevalue("s3"), request.getfixturevalue("s3_bucket"))
    if request.param == "kafka":
        return Topic(request.getfixturevalue("kafka"), request.getfixturevalue("kafka_topic"))
    server = {"postgres": "postgres", "mysql": "mariadb"}[request.param]
    return Table(request.param, request.getfixturevalue(server), request.getfixturevalue(f"{server}_database"))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("outside", ["postgres", "mysql", "kafka", "s3"], indirect=True)
def test_a_sink_on_a_server_survives_each_point_in_turn(tmp_path: Path, outside: Outside) -> None:
    victim = Victim(tmp_path / "victim", (), outside=outside)

    for place in outside.crashes:
        crash(victim, place)
    finish(victim)

    victim.forget_last_commit()
    finish(victim)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("batch", [0, 3, FILES - 1])
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("sink", SEVERAL)
def test_each_sink_alone_survives_each_point(tmp_path: Path, sink: str, point: str, batch: int) -> None:
    victim = Victim(tmp_path / "victim", (sink,))

    crash(victim, f"{point}@{batch}")
    finish(victim)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("batch", [2, 5, 8])
@pytest.mark.parametrize("point", ["sink.before_write", "sink.in_transaction", "sink.compacting", "sink.compacted"])
@pytest.mark.parametrize("outside", ["s3"], indirect=True)
def test_files_in_an_object_store_survive_each_point(tmp_path: Path, outside: Outside, point: str, batch: int) -> None:
    victim = Victim(tmp_path / "victim", ("row_files",), outside=outside)

    crash(victim, f"{point}@{batch}")
    finish(victim)

    victim.forget_last_commit()
    finish(victim)


def kill_between_commits(process: Process, victim: Victim, chance: random.Random) -> None:
    done = len(victim.numbers("commits"))
    process.wait_until(lambda: len(victim.numbers("commits")) > done, "the next commit")
    jvm = process.jvm()
    time.sleep(chance.uniform(0, 1.5))  # the moment is what the seed chooses
    process.signal(signal.SIGKILL)
    process.wait()
    until(lambda: not is_running(jvm), "the JVM's end", JVM_SECONDS)


def killed_at_random(folder: Path, seed: int, kills: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    victim = Victim(folder / "victim", SEVERAL, files=20)
    for _ in range(kills):
        with victim.start() as process:
            kill_between_commits(process, victim, chance)
        victim.check_nothing_twice()
    finish(victim)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_kill_while_tasks_run_loses_and_doubles_nothing(tmp_path: Path, seed: int) -> None:
    killed_at_random(tmp_path, seed, kills=2)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(100, 130))
def test_many_kills_while_tasks_run_lose_and_double_nothing(tmp_path: Path, seed: int) -> None:
    killed_at_random(tmp_path, seed, kills=4)


@pytest.mark.timeout(600)
def test_a_run_ends_with_its_jvm_and_goes_on_from_there(tmp_path: Path) -> None:
    victim = Victim(tmp_path / "victim", ("row_files", "row_table"))
    with victim.start() as process:
        process.wait_until(lambda: victim.numbers("commits"), "the first commit")
        kill(process.jvm())
        assert process.wait(30) == 1
    assert "error[JVM_DIED] " in process.text
    assert str(victim.state / "logs" / "spark.log") in process.text
    assert "Traceback" not in process.text
    victim.check_nothing_twice()

    finish(victim)


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
