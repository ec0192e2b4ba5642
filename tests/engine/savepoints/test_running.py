"""A savepoint of a pipeline at work: what goes on from it gives what one run without it would have given."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.engine.running import course, json_lines, table
from tests.engine.savepoints.taking import put_back, run_through
from tests.faults.victim import Victim, contents

from penstock.engine.ledger import Ledger
from penstock.engine.savepoints.places import read_savepoint
from penstock.engine.savepoints.take import Moment, Wish
from penstock.engine.savepoints.verify import verify
from penstock.errors import PenstockError
from penstock.frontends.load import load
from penstock.graph.build import build
from penstock.runner.savepoints import create
from penstock.testing import shared_session

if TYPE_CHECKING:
    from tests.conftest import Project

pytestmark = pytest.mark.spark

STATEFUL = ("row_files", "window_files", "window_latest", "row_delta")


def other(victim: Victim) -> Path:
    """The same pipeline by another name, with the same input and other sinks."""
    text = victim.pipeline.read_text("utf-8").replace("name: victim", "name: other").replace("./out/", "./other/")
    path = victim.folder / "other.yaml"
    path.write_text(text, "utf-8")
    return path


def test_a_pipeline_goes_back_and_on_to_the_same_end(tmp_path: Path) -> None:
    """Stateless rows, windows and a table that is replaced by key, with dead letters, and all state moved elsewhere."""
    victim = Victim(tmp_path / "victim", STATEFUL, files=7)
    taken = run_through(victim.pipeline, victim.state, at=3, wish=Wish(to=tmp_path / "away" / "middle"))
    assert taken is not None
    victim.check_complete()
    saved = read_savepoint(taken.folder)
    assert verify(taken.folder, saved) == []
    assert 3 <= saved.batch < 6
    assert saved.totals.rows_in == {"events": 40 * (saved.batch + 1)}
    assert [operator.step for operator in saved.operators] == ["per_minute"]
    assert saved.state_bytes > 0
    elsewhere = b"".join(
        (taken.folder / file.path).read_bytes() for file in saved.files if "/sources/" not in file.path
    )
    assert str(victim.state).encode() not in elsewhere

    # The state is lost; the sinks are further on than the savepoint.
    shutil.rmtree(victim.state)
    put_back(victim.pipeline, victim.state, taken.folder)
    run_through(victim.pipeline, victim.state)

    victim.check_complete()


def test_a_pipeline_goes_back_in_place_and_can_do_so_again(tmp_path: Path) -> None:
    victim = Victim(tmp_path / "victim", STATEFUL, files=6)
    taken = run_through(victim.pipeline, victim.state, at=2)
    assert taken is not None
    before = contents(taken.folder)

    for _ in range(2):
        put_back(victim.pipeline, victim.state, taken.folder)
        assert Ledger(victim.state / "ledger.db").totals().batch == taken.savepoint.batch
        run_through(victim.pipeline, victim.state)
        victim.check_complete()

    assert contents(taken.folder) == before


def test_two_pipelines_go_on_from_one_savepoint_side_by_side(tmp_path: Path) -> None:
    victim = Victim(tmp_path / "victim", ("row_table", "rolled_table"), files=6)
    held = tmp_path / "held.db"

    def copy_output(moment: Moment) -> None:
        shutil.copy2(victim.folder / "out" / "out.db", held)

    taken = run_through(victim.pipeline, victim.state, at=2, meanwhile=copy_output)
    assert taken is not None
    victim.check_complete()
    fork, state = other(victim), victim.folder / ".penstock" / "other"
    (victim.folder / "other").mkdir()
    put_back(fork, state, taken.folder, fork=True)

    run_through(fork, state)

    mine = victim.folder / "other" / "out.db"
    rolled = [row for file in (held, mine) for row in table(file, "SELECT id, seen, spent FROM rolled_table")]
    assert sorted(rolled) == victim.rolled
    ids = [id for file in (held, mine) for (id,) in table(file, "SELECT id FROM row_table")]
    assert sorted(ids) == sorted(victim.good)
    victim.check_complete()
    lineages = [json.loads((place / "pipeline.json").read_text("utf-8"))["lineage"] for place in (victim.state, state)]
    assert len(set(lineages)) == 2


JOINED = """
    state: {partitions: 2}
    sources:
      ads:
        files: {path: ./ads, maxFilesPerBatch: 1}
        format: {json: {schema: {ad: bigint, shown: timestamp}}}
        eventTime: {column: shown, maxDelay: 1 minute}
      clicks:
        files: {path: ./clicks, maxFilesPerBatch: 1}
        format: {json: {schema: {clicked_ad: bigint, at: timestamp}}}
        eventTime: {column: at, maxDelay: 1 minute}
    steps:
      both: {from: ads, join: {with: clicks, on: {ad: clicked_ad}, how: inner, within: [0 seconds, 5 minutes]}}
    sinks:
      store: {from: both, sqlite: {path: ./out.db, table: pairs, batchColumn: batch}}
"""


def minute(number: float) -> str:
    return f"2024-01-01T{int(number) // 60:02d}:{int(number) % 60:02d}:{int(number % 1 * 60):02d}Z"


@pytest.mark.parametrize("seed", [1])
def test_a_join_goes_back_and_on_to_the_same_pairs(project: Project, seed: int) -> None:
    chance = random.Random(seed)
    shown = {ad: ad / 4 for ad in range(120)}
    clicked = [(ad, shown[ad] + chance.choice([0.5, 3, 4.9, 7])) for ad in shown if chance.random() < 0.7]
    cuts = sorted(chance.sample(range(1, 30), 5))
    for number, (low, high) in enumerate(zip([0, *cuts], [*cuts, 99], strict=True)):
        ads = [{"ad": ad, "shown": minute(time)} for ad, time in shown.items() if low <= time < high]
        clicks = [{"clicked_ad": ad, "at": minute(time)} for ad, time in clicked if low <= time < high]
        project.put(f"ads/{number}.json", json_lines(ads))
        project.put(f"clicks/{number}.json", json_lines(clicks))
    pipeline, state = project.write(JOINED), project.folder / "state"
    wanted = sorted(ad for ad, time in clicked if time - shown[ad] <= 5)

    def pairs() -> list[Any]:
        return [ad for (ad,) in table(project.folder / "out.db", "SELECT ad FROM pairs ORDER BY ad")]

    taken = run_through(pipeline, state, at=chance.randint(1, 3))
    assert taken is not None
    assert pairs() == wanted
    put_back(pipeline, state, taken.folder)
    run_through(pipeline, state)

    assert pairs() == wanted


MADE_UP = """
    state: {partitions: 2}
    sources:
      views:
        generator: {dataset: page_views, rows: 4000, rate: 10, seed: 3, keys: 20, maxRowsPerBatch: 700}
        eventTime: {column: ts, maxDelay: 5 seconds}
    steps:
      recent: {from: views, rolling: {by: [user], over: 2 minutes, values: {seen: count(*)}}}
    sinks:
      store: {from: recent, sqlite: {path: ./%s.db, table: views, batchColumn: batch}}
"""


@pytest.mark.long
def test_rows_that_are_made_up_are_the_same_after_going_back(project: Project) -> None:
    def rows(name: str) -> list[Any]:
        return table(project.folder / f"{name}.db", "SELECT id, user, seen FROM views ORDER BY id")

    run_through(project.write(MADE_UP % "whole", "whole.yaml"), project.folder / "whole")
    pipeline, state = project.write(MADE_UP % "cut"), project.folder / "cut"

    taken = run_through(pipeline, state, at=2)
    assert taken is not None
    assert rows("cut") == rows("whole")
    put_back(pipeline, state, taken.folder)
    run_through(pipeline, state)

    assert rows("cut") == rows("whole")
    assert len(rows("whole")) > 3000


def test_a_pipeline_that_ended_well_is_saved_as_it_is(tmp_path: Path) -> None:
    victim = Victim(tmp_path / "victim", ("window_table",), files=3)
    course(build(load(victim.pipeline)), victim.state)

    first, folder = create(load(victim.pipeline), victim.state, Wish("first"), spark=shared_session())
    _, again = create(load(victim.pipeline), victim.state, Wish("second"), spark=shared_session())

    # A batch without rows follows the last file: the watermark has moved, and windows are closed.
    last = Ledger(victim.state / "ledger.db").entries()[-1].batch
    assert (first.batch, [sink.name for sink in first.sinks]) == (last, ["window_table"])
    assert last >= 2
    assert [operator.step for operator in first.operators] == ["per_minute"]
    state = [file.path for file in first.files if file.path.endswith(".changelog")]
    assert state
    assert all((folder / path).samefile(again / path) for path in state)
    assert contents(victim.state / "checkpoint").keys() >= {path.removeprefix("checkpoint/") for path in state}


def test_of_a_pipeline_that_has_done_nothing_there_is_nothing_to_save(tmp_path: Path) -> None:
    victim = Victim(tmp_path / "victim", ("row_files",), files=0)
    run_through(victim.pipeline, victim.state)

    with pytest.raises(PenstockError) as raised:
        create(load(victim.pipeline), victim.state, Wish(), spark=shared_session())
    assert raised.value.code == "SAVEPOINT_NOTHING"
