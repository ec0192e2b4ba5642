"""What is noted of a cut-over, and how a batch is planned that reads what the pipeline has read; without Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.engine.savepoints.made import write

from penstock.components.shared.sql_poll_spool import FOLLOWED, Spool
from penstock.engine.cutover import note
from penstock.engine.cutover.following import bring, plan, planned, stands_at
from penstock.engine.cutover.note import FOLDER, Cutover, Places
from penstock.engine.cutover.taking import renumber
from penstock.errors import PenstockError

CUTOVER = Cutover("p", "/p/new.yaml", "f", "b", "s", "2024-01-01", query_id="q")


def log(watermark: int, clock: int, partitions: int, **positions: str) -> str:
    settings = {"batchWatermarkMs": watermark, "batchTimestampMs": clock, "conf": {"partitions": partitions}}
    lines = [f"{name}:{position}" for name, position in positions.items()]
    return "\n".join(["v2", json.dumps(settings, separators=(",", ":")), *lines])


def test_a_batch_is_planned_with_the_pipelines_positions_and_watermark_and_its_own_settings() -> None:
    before, theirs = log(10, 11, 3, shown="1"), log(20, 21, 2, views="5", views_TICKS="6", gone="7")
    origins, renamed = {"shown": {"views"}, "begun": set[str]()}, {"shown": "views"}
    found = planned(before, theirs, origins, renamed)
    assert found == log(20, 21, 3, shown="5", shown_TICKS="6")
    assert stands_at(found, theirs, origins, renamed)
    assert not stands_at(found, log(20, 21, 2, views="4", views_TICKS="6"), origins, renamed)
    assert not stands_at(found, log(19, 21, 2, views="5", views_TICKS="6"), origins, renamed)


def test_what_sources_have_noted_is_brought_along_and_names_the_new_place(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "old" / "cutover" / "new"
    write(new / "checkpoint" / "offsets" / "3", log(1, 2, 3, events="0", ticked="0"))
    write(new / "checkpoint" / "sources" / "events" / "0", "of before")
    write(new / "spool" / "own", "of before")
    write(old / "checkpoint" / "sources" / "events" / "0", 'v1\n{"path":"file:///elsewhere/a.json"}')
    write(old / "checkpoint" / "sources" / "events" / "1", f'v1\n{{"path":"file://{old}/spool/fed/b.json"}}')
    write(old / "spool" / "fed" / "b.json", "row")
    origins = {"events": {"events"}}
    bring(old, new, origins, {})
    assert not (new / "spool" / "own").exists()
    assert (new / "spool" / "fed" / "b.json").samefile(old / "spool" / "fed" / "b.json")
    assert "elsewhere/a.json" in (new / "checkpoint" / "sources" / "events" / "0").read_text("utf-8")
    assert f"file://{new}/spool/fed/b.json" in (new / "checkpoint" / "sources" / "events" / "1").read_text("utf-8")
    assert f"file://{old}/spool/fed/b.json" in (old / "checkpoint" / "sources" / "events" / "1").read_text("utf-8")
    plan(new, 4, log(8, 9, 2, events="1"), origins, {})
    assert (new / "checkpoint" / "offsets" / "4").read_text("utf-8") == log(8, 9, 3, events="1")


def test_a_cut_over_is_noted_and_gone_at_once(tmp_path: Path) -> None:
    assert note.find(tmp_path) is None
    note.write(tmp_path, CUTOVER)
    write(Places(tmp_path).new / "checkpoint" / "metadata", "{}")
    assert note.find(tmp_path) == CUTOVER
    note.remove(tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "note.json").write_text("{", "utf-8")
    with pytest.raises(PenstockError) as raised:
        note.find(tmp_path)
    assert raised.value.code == "STATE_UNREADABLE"


@pytest.mark.parametrize(("query", "over"), [("q", True), ("other", False), (None, False)])
def test_what_is_left_is_swept_once_the_new_version_is_in_place(tmp_path: Path, query: str | None, over: bool) -> None:
    note.write(tmp_path, CUTOVER)
    write(tmp_path / ".cutover.gone" / "rest", "")
    note.sweep(tmp_path, query)
    assert (note.find(tmp_path) is None) == over
    assert not (tmp_path / ".cutover.gone").exists()


def test_one_that_is_being_prepared_is_never_over(tmp_path: Path) -> None:
    note.write(tmp_path, replace(CUTOVER, query_id=None))
    note.sweep(tmp_path, None)
    assert note.find(tmp_path) is not None


def test_a_line_that_was_cut_short_was_not_followed(tmp_path: Path) -> None:
    assert note.followed(tmp_path) == {}
    note.write(tmp_path, CUTOVER)
    note.note_followed(tmp_path, 3, 5)
    note.note_followed(tmp_path, 4, 9)
    # A batch that died before it was planned is planned again, perhaps for more.
    note.note_followed(tmp_path, 4, 11)
    with (tmp_path / FOLDER / "followed").open("a") as file:
        file.write("5 1")
    assert note.followed(tmp_path) == {3: 5, 4: 11}


def test_state_that_was_stored_as_a_whole_can_be_that_of_another_version(tmp_path: Path) -> None:
    for place in ("0/0", "0/1/left"):
        for name in ("4.zip", "SSTs/a.sst"):
            write(tmp_path / place / name, name)
    renumber(tmp_path, 4, 4)
    renumber(tmp_path, 4, 9)
    found = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file())
    assert found == ["0/0/9.zip", "0/0/SSTs/a.sst", "0/1/left/9.zip", "0/1/left/SSTs/a.sst"]
    write(tmp_path / "0" / "0" / "10.changelog", "changes")
    with pytest.raises(PenstockError) as raised:
        renumber(tmp_path, 9, 3)
    assert raised.value.code == "CUTOVER_FAILED"


def test_plans_of_a_polled_table_stay_while_another_version_follows(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool" / "sql_poll" / "orders")
    for number in (1, 2):
        write(spool.folder / f"{number:012d}-x.json", "{}")
    (tmp_path / FOLLOWED).mkdir()
    assert FOLLOWED == FOLDER
    spool.forget(2)
    assert len(list(spool.folder.iterdir())) == 2
    (tmp_path / FOLLOWED).rmdir()
    spool.forget(2)
    assert [file.name for file in spool.folder.iterdir()] == ["000000000002-x.json"]
