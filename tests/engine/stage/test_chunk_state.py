"""State in chunk files: the same rows wherever kernels run and however runs end; savepoints, changes and refusals."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.engine.evolution.story import CLICKS, JOIN, LATEST, NATIVE, ROLLING, VIEWS, WINDOW, Story
from tests.engine.running import course
from tests.faults.victim import WINDOW_SINKS, Victim

from penstock.components.shared.crashpoints import STATE_POINTS
from penstock.engine.analyse import plan_text
from penstock.engine.ledger import Ledger
from penstock.engine.savepoints.take import Wish
from penstock.engine.savepoints.verify import verify
from penstock.engine.stage import stage
from penstock.engine.stage.choose import analyse_declared
from penstock.engine.stage.stage import KernelStage
from penstock.engine.state.chunk_store import in_chunks
from penstock.errors import PenstockError
from penstock.frontends.load import load
from penstock.graph.build import build
from penstock.graph.explain import as_text
from penstock.reports.state_folder import state_partitions
from penstock.runner.cutover import start as start_cutover
from penstock.runner.going_back import go_back_to
from penstock.runner.ledger import read_ledger
from penstock.runner.rescale import rescale
from penstock.runner.savepoints import create
from penstock.runner.state import Target, overview, shown
from penstock.runner.upgrade import upgrade
from penstock.testing import shared_session

if TYPE_CHECKING:
    from tests.conftest import Project

pytestmark = pytest.mark.spark

STEPS = {"per_minute": WINDOW, "recent": ROLLING, "newest": LATEST, "clicked": JOIN}
CHUNKS = "state: {store: chunks}"


class Places:
    """Batches are worked on by the driver and by tasks in turn."""

    def __init__(self) -> None:
        self.asked = 0

    def turn(self, *_: object) -> bool:
        self.asked += 1
        return self.asked % 2 == 0


@pytest.fixture
def story(project: Project) -> Story:
    story = Story(project)
    story.more(3)
    return story


def test_eight_windows_read_their_source_once_in_one_pass(story: Story, tmp_path: Path) -> None:
    steps = {f"w{number}": WINDOW for number in range(8)}
    plans = {}
    for store in ("chunks", "spark"):
        pipeline = story.write(steps, sinks={name: name for name in steps}, extra=f"state: {{store: {store}}}")
        graph = build(load(pipeline))
        analysed = analyse_declared(shared_session(), graph, tmp_path / store)
        analysed.raise_errors()
        plans[store] = plan_text(analysed)
        if store == "chunks":
            assert analysed.analysis.passes == {"views": tuple(steps)}
            assert f"═ one pass over its rows for: {', '.join(steps)}" in as_text(graph, analysed.analysis)
    assert plans["chunks"].count("StreamingRelation") == 1
    assert plans["spark"].count("StreamingRelation") == 8


def test_validate_says_what_does_not_go_with_chunk_files(story: Story, tmp_path: Path) -> None:
    graph = build(load(story.write({"per_user": NATIVE}, extra=CHUNKS)))
    found = analyse_declared(shared_session(), graph, tmp_path / "spool")
    assert [problem.code for problem in found.problems] == ["STATE_STORE_SPARK"]


@pytest.mark.timeout(300)
def test_batches_of_the_driver_and_of_tasks_follow_each_other(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    places = Places()
    monkeypatch.setattr(KernelStage, "_is_small", places.turn)
    pipeline = story.write(STEPS, (VIEWS, CLICKS), extra=CHUNKS)
    story.run(pipeline)
    story.more(2)
    story.end()
    story.run(pipeline)

    assert in_chunks(story.state / "checkpoint")
    assert places.asked >= 6
    story.check(*STEPS)
    assert read_ledger(load(pipeline), story.state).verdict == "sealed"


@pytest.mark.parametrize("most", [10, 30])
def test_a_batch_that_is_too_large_for_the_driver_goes_to_the_tasks_and_is_counted_once(
    story: Story, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Of 24 rows a batch, and one with a single row."""
    monkeypatch.setenv("PENSTOCK_KERNELS_ON", "driver")
    monkeypatch.setattr(stage, "FETCHED_ROWS", most)
    pipeline = story.write({"per_minute": WINDOW}, extra=CHUNKS)
    story.end()
    story.run(pipeline)
    story.check("per_minute")
    ledger = read_ledger(load(pipeline), story.state)
    assert ledger.verdict == "sealed"
    assert [sum(entry.rows_in.values()) for entry in Ledger(story.state / "ledger.db").entries()] == [24, 24, 24, 1]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("place", ["driver", "tasks"])
@pytest.mark.parametrize("point", ["batch.start", *STATE_POINTS, "sink.after_commit", "batch.after_ledger"])
def test_a_run_that_died_goes_on_as_if_it_had_not(
    story: Story, monkeypatch: pytest.MonkeyPatch, point: str, place: str
) -> None:
    monkeypatch.setenv("PENSTOCK_KERNELS_ON", place)
    pipeline = story.write({"per_minute": WINDOW, "recent": ROLLING, "clicked": JOIN}, (VIEWS, CLICKS), extra=CHUNKS)
    graph = build(load(pipeline))
    course(graph, story.state, die_at=point)
    story.more(1)
    course(graph, story.state, die_at=point)
    story.end()
    story.run(pipeline)
    story.check("per_minute", "recent", "clicked")


@pytest.mark.timeout(600)
def test_a_killed_process_loses_and_doubles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_STATE_STORE", "chunks")
    victim = Victim(tmp_path / "victim", (*WINDOW_SINKS, "rolled_table"), files=6)
    for point, batch in (("state.written", 1), ("state.indexed", 2), ("sink.after_commit", 3)):
        victim.crashes.kill_at(point, batch)
    victim.finish()
    assert in_chunks(victim.crashes.state / "checkpoint")
    victim.crashes.survived()


@pytest.mark.timeout(300)
def test_a_savepoint_is_gone_back_to(story: Story) -> None:
    pipeline = story.write(STEPS, (VIEWS, CLICKS), extra=CHUNKS)
    story.run(pipeline)
    saved, folder = create(load(pipeline), story.state, Wish("before"), spark=shared_session())
    assert {operator.step for operator in saved.operators} == set(STEPS)
    assert all(operator.bytes > 0 for operator in saved.operators)
    assert verify(folder, saved) == []
    story.more(1)
    story.run(pipeline)
    story.more(1)
    story.run(pipeline)
    go_back_to(load(pipeline), story.state, folder, lambda: nullcontext(shared_session()))
    story.end()
    story.run(pipeline)
    story.check(*STEPS)


@pytest.mark.timeout(300)
def test_state_is_rescaled_renamed_and_shown(story: Story) -> None:
    pipeline = story.write({"per_minute": WINDOW, "newest": LATEST}, extra=CHUNKS)
    story.run(pipeline)
    before = {step.step: step.rows for step in overview(Target(story.state), spark=shared_session()).steps}
    assert before["newest"] == len({row.user for row in story.views})
    assert rescale(load(pipeline), story.state, 5, spark=shared_session()).rescaled.after == 5
    assert state_partitions(story.state / "checkpoint") == 5
    story.more(1)
    story.run(pipeline, 5)

    renamed = story.write(
        {"by_minute": f"renamedFrom: per_minute, from: views, {WINDOW}", "newest": LATEST},
        sinks={"per_minute": "by_minute", "newest": "newest"},
        extra=CHUNKS,
    )
    done = upgrade(load(renamed), story.state, spark=shared_session())
    assert done.grafted is not None
    assert set(done.grafted.kept) == {"by_minute", "newest"}
    with shown(Target(story.state), "newest", ["a"], spark=shared_session()) as found:
        assert [row["user"] for table in found.tables for row in table.to_pylist()] == ["a"]
    story.end()
    story.run(renamed, 5)
    story.check("per_minute", "newest")


def test_a_pipeline_that_keeps_nothing_runs_again_whatever_its_store(story: Story) -> None:
    kept = {"newest": "all"}
    pipeline = story.write({"all": "filter: amount >= 0"}, sinks=kept, extra=CHUNKS)
    story.run(pipeline)
    story.more(1)
    story.run(pipeline)
    assert read_ledger(load(pipeline), story.state).verdict == "sealed"
    assert not in_chunks(story.state / "checkpoint")


def test_what_does_not_go_with_chunk_files_is_refused(story: Story, project: Project) -> None:
    native = story.write({"per_user": NATIVE}, extra=CHUNKS)
    with pytest.raises(PenstockError) as refused:
        story.run(native)
    assert [problem.code for problem in refused.value.problems] == ["STATE_STORE_SPARK"]
    place = refused.value.problems[0].location
    assert place is not None
    assert "per_user" in native.read_text("utf-8").splitlines()[place.line - 1]

    pipeline = story.write({"per_minute": WINDOW}, extra=CHUNKS)
    story.run(pipeline)
    other = story.write({"per_minute": WINDOW}, extra="state: {store: spark}")
    with pytest.raises(PenstockError, match="STATE_STORE_FIXED"):
        story.run(other)
    pipeline = story.write({"per_minute": WINDOW}, extra=CHUNKS)
    with pytest.raises(PenstockError, match="STATE_STORE_UNSUPPORTED"):
        upgrade(load(pipeline), story.state, bootstrap=["per_minute"], spark=shared_session())
    with pytest.raises(PenstockError, match="STATE_STORE_UNSUPPORTED"):
        start_cutover(load(pipeline), story.state, load(pipeline), spark=shared_session())
