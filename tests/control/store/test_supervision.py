"""The store as the supervisor uses it."""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.control.store.databases import T0, create, draft

from penstock.control.files import DataFolder
from penstock.control.store import failover, history, pipelines, runs
from penstock.control.store.database import Store
from penstock.control.store.supervision import SupervisorStore
from penstock.control.supervisor import ports
from penstock.errors import PenstockError, Problem
from penstock.reports.values import BatchLine

RUN = ports.Run("r0123456789ab", "a", 1, 1, "local", T0)
HOUR = dt.timedelta(hours=1)


@pytest.fixture
def port(store: Store, tmp_path: Path) -> SupervisorStore:
    return SupervisorStore(store, DataFolder(tmp_path), "local")


def as_port(port: SupervisorStore) -> ports.Store:
    """Holds by its type alone that what the supervisor asks for is there."""
    return port


def test_what_is_wanted_comes_with_its_file(store: Store, port: SupervisorStore) -> None:
    with store.writing() as connection:
        create(connection, "a")
    (wanted,) = as_port(port).load(T0).pipelines
    assert (wanted.name, wanted.desired, wanted.generation, wanted.target) == ("a", "running", 1, "local")
    assert Path(wanted.file).read_text() == "one"
    with store.writing() as connection:
        pipelines.upgrade(connection, "a", draft("two"), revision=1, now=T0, by="ann", target="far")
    (wanted,) = port.load(T0).pipelines
    assert (Path(wanted.file).name, Path(wanted.file).read_text(), wanted.target) == ("2.yaml", "two", "far")


def test_saving_twice_does_no_harm(store: Store, port: SupervisorStore) -> None:
    line = BatchLine(4, T0, 120, rows_in={"views": 5}, rows_out={"out": 3}, dead={"views": 2}, watermark=2**41)
    changes = ports.Changes(
        runs={RUN.id: RUN},
        states={"a": ports.StateChange("RUNNING", "it advances", T0, 1, "local")},
        batches=[ports.BatchOf("a", RUN.id, line, checkpoint_bytes=4096)],
        failures=[ports.Failure("a", RUN.id, T0, Problem("JVM_DIED", {}).as_dict())],
        notices=[ports.Notice("local", "file", T0)],
        failovers=[ports.Failover("a", "local", "far", T0)],
    )
    with store.writing() as connection:
        create(connection, "a")
    port.save(changes)
    port.save(changes)
    snapshot = port.load(T0)
    assert snapshot.runs == (RUN,)
    assert snapshot.notices == (ports.Notice("local", "file", T0),)
    assert snapshot.failovers == (ports.Failover("a", "local", "far", T0),)
    assert snapshot.pipelines[0].state == "RUNNING"
    with store.reading() as connection:
        (kept,) = history.batches_of(connection, "a").items
        assert (kept.rows_in, kept.rows_out, kept.dead, kept.watermark) == (5, 3, 2, 2**41)
        assert kept.checkpoint_bytes == 4096
        assert kept.details == {"rows_in": {"views": 5}, "rows_out": {"out": 3}, "dead": {"views": 2}}
        assert len(history.exceptions_of(connection).items) == 1
        counted = pipelines.get(connection, "a")
        assert (counted.rows_in, counted.rows_out, counted.dead) == (5, 3, 2)


def test_later_news_of_a_run_replace_earlier_ones(store: Store, port: SupervisorStore) -> None:
    with store.writing() as connection:
        create(connection, "a")
    port.save(ports.Changes(runs={RUN.id: RUN}))
    started = replace(RUN, pid=4711, process_started="boot-99", epoch=3)
    ended = replace(started, ended_at=T0 + HOUR, outcome="failed", exit_code=1, reason="no disk", code="DISK_FULL")
    port.save(ports.Changes(runs={RUN.id: started}))
    assert port.load(T0 + 9 * HOUR).runs == (started,)
    port.save(ports.Changes(runs={RUN.id: ended}))
    newer = replace(RUN, id="r0123456789ac", started_at=T0 + 2 * HOUR)
    port.save(ports.Changes(runs={newer.id: newer}))
    assert port.load(T0 + HOUR).runs == (newer,)
    assert port.load(T0).runs == (ended, newer)


def test_moves_and_notices_come_to_their_end(store: Store, port: SupervisorStore) -> None:
    move = ports.Failover("a", "local", "far", T0)
    with store.writing() as connection:
        create(connection, "a")
    notice = ports.Notice("local", "hook", T0)
    port.save(ports.Changes(failovers=[move], notices=[notice]))
    over = replace(notice, withdrawn_at=T0 + HOUR)
    port.save(ports.Changes(failovers=[replace(move, caught_up_at=T0 + HOUR)], notices=[over]))
    assert port.load(T0).failovers == ()
    with store.writing() as connection:
        (kept,) = failover.listed_failovers(connection, pipeline="a").items
    assert kept.caught_up_at == T0 + HOUR
    assert port.load(T0).notices == ()


def test_news_of_a_pipeline_that_is_gone_are_left_out(store: Store, port: SupervisorStore) -> None:
    gone = replace(RUN, pipeline="gone")
    event = ports.Event(T0, "decision", "start", "gone", gone.id)
    changes = ports.Changes(
        runs={gone.id: gone},
        states={"gone": ports.StateChange("RUNNING", "", T0, 1, "local")},
        batches=[ports.BatchOf("gone", gone.id, BatchLine(1, T0, 1))],
        events=[event, replace(event, pipeline=None, run=None, text="of the server")],
        failures=[ports.Failure("gone", gone.id, T0, {})],
        failovers=[ports.Failover("gone", "local", "far", T0)],
    )
    port.save(changes)
    with store.reading() as connection:
        assert [kept.text for kept in history.listed_events(connection).items] == ["of the server"]
        assert runs.listed(connection).items == ()


def test_a_deleted_pipeline_goes_once_its_run_has_ended(store: Store, port: SupervisorStore) -> None:
    with store.writing() as connection:
        create(connection, "a")
    port.save(ports.Changes(runs={RUN.id: RUN}))
    with store.writing() as connection:
        pipelines.mark_for_deletion(connection, "a", revision=1, now=T0)
    assert port.load(T0).pipelines[0].desired == "stopped"
    port.save(ports.Changes(runs={RUN.id: replace(RUN, ended_at=T0, outcome="stopped")}))
    assert port.load(T0).pipelines == ()


def test_a_new_pipeline_of_an_old_name_starts_afresh(store: Store, port: SupervisorStore, tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    with store.writing() as connection:
        create(connection, "a")
    port.load(T0)
    folder.state("a").mkdir()
    (folder.state("a") / "kept").write_text("what it knew")
    with store.writing() as connection:
        pipelines.mark_for_deletion(connection, "a", revision=1, now=T0)
    port.load(T0)
    assert not folder.pipeline("a").exists()
    assert [path.read_text() for path in (tmp_path / "deleted").glob("a-*/state/kept")] == ["what it knew"]
    with store.writing() as connection:
        pipelines.create(connection, "a", draft("another text"), now=T0 + HOUR, by="ann")
    (wanted,) = port.load(T0).pipelines
    assert Path(wanted.file).read_text() == "another text"
    assert not folder.state("a").exists()


def test_a_damaged_version_file_is_mended(store: Store, port: SupervisorStore, tmp_path: Path) -> None:
    with store.writing() as connection:
        create(connection, "a")
    (wanted,) = port.load(T0).pipelines
    Path(wanted.file).write_text("something else")
    (again,) = SupervisorStore(store, DataFolder(tmp_path), "local").load(T0).pipelines
    assert Path(again.file).read_text() == "one"


def test_a_name_that_leaves_the_folder_is_no_name(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    for name in ("..", "../x", "a/b", "A", "", "a\x00", "%2e%2e"):
        with pytest.raises(PenstockError):
            folder.state(name)
    for run in ("..", "r", "r0123456789ab/..", "R0123456789AB"):
        with pytest.raises(PenstockError):
            folder.run("a", run)


def test_a_tick_over_two_hundred_pipelines_is_quick(store: Store, port: SupervisorStore) -> None:
    names = [f"p{number}" for number in range(200)]
    with store.writing() as connection:
        for name in names:
            create(connection, name)
    changes = ports.Changes(
        runs={
            f"r{number:012x}": replace(RUN, id=f"r{number:012x}", pipeline=name) for number, name in enumerate(names)
        },
        states={name: ports.StateChange("RUNNING", "it advances", T0, 1, "local") for name in names},
        batches=[ports.BatchOf(name, f"r{number:012x}", BatchLine(1, T0, 5)) for number, name in enumerate(names)],
        events=[ports.Event(T0, "decision", "nothing", name) for name in names],
    )
    port.load(T0)
    begun = time.process_time()
    port.save(changes)
    assert len(port.load(T0).runs) == 200
    assert time.process_time() - begun < 1
