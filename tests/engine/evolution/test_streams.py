"""Positions of streams and what the spool holds, carried over to other names; without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.engine.savepoints.made import write

from penstock.engine.checkpoint_cut import divided, offsets_of, partitions_of
from penstock.engine.evolution.operators import begin, kind, move, set_partitions
from penstock.engine.evolution.spools import carry_paths, carry_spool, new_places
from penstock.engine.evolution.streams import carry_positions, positions
from penstock.errors import PenstockError

LOG = 'v2\n{"conf":{"spark.sql.shuffle.partitions":"4"}}\ns:{"logOffset":3}\ns_VIA_OUT_VIA_b:{"logOffset":3}\nt:-'


def test_new_streams_go_on_where_old_ones_were() -> None:
    found = positions(LOG, {"x": {"s"}, "x_VIA_OUT": {"s", "s_VIA_OUT_VIA_b"}, "new": set()}, {"x": "s"})
    assert found.splitlines()[2:] == ['x:{"logOffset":3}', 'x_VIA_OUT:{"logOffset":3}']
    assert found.splitlines()[:2] == LOG.splitlines()[:2]


def test_streams_that_were_read_to_different_positions_cannot_be_one() -> None:
    with pytest.raises(PenstockError) as raised:
        positions(LOG, {"s": {"s", "t"}}, {})
    assert raised.value.code == "UPGRADE_FAILED"


def test_what_is_read_beside_sources_and_steps_keeps_its_position_under_a_new_name() -> None:
    log = f"{LOG}\ns_TICKS:1\nstep_REPLAY:2\nother_AGAIN:3\nstep_two_REPLAY:4"
    found = positions(log, {"s": {"s"}}, {"steps": "step", "s": "s"})
    assert found.splitlines()[3:] == ["s_TICKS:1", "steps_REPLAY:2", "other_AGAIN:3", "step_two_REPLAY:4"]


def test_notes_of_sources_and_their_files_move_with_the_name(tmp_path: Path) -> None:
    checkpoint, spool = tmp_path / "checkpoint", tmp_path / "spool"
    write(spool / "views" / "0.json", "row")
    write(spool / "ticks" / "views" / "1.json", "tick")
    write(spool / "ticks" / "watermarks.json", "{}")
    write(spool / "sql_poll" / "views_VIA_OUT" / "2.json", "polled")
    write(checkpoint / "offsets" / "7", "v2\n{}\nviews:1\nviews_VIA_OUT:1\nviews_TICKS:5")
    noted = f'v1\n{{"path":"file://{spool}/views/0.json"}}'
    write(checkpoint / "sources" / "views" / "0", noted)
    write(checkpoint / "sources" / "views_TICKS" / "0", f'v1\n{{"path":"file://{spool}/ticks/views/1.json"}}')
    found, renamed = {"shown": {"views"}, "shown_VIA_OUT": {"views_VIA_OUT"}}, {"shown": "views"}

    carry_positions(checkpoint, found, renamed)
    places = new_places(spool, found, renamed)
    carry_spool(spool, tmp_path / "new", places)
    carry_paths(checkpoint, spool, places)

    assert offsets_of(checkpoint, 7) == {"shown": 1, "shown_VIA_OUT": 1, "shown_TICKS": 5}
    assert (checkpoint / "sources" / "shown" / "0").read_text("utf-8") == noted.replace("spool/views", "spool/shown")
    assert "ticks/shown/1.json" in (checkpoint / "sources" / "shown_TICKS" / "0").read_text("utf-8")
    files = sorted(path.relative_to(tmp_path / "new").as_posix() for path in (tmp_path / "new").rglob("*.json"))
    assert files == ["shown/0.json", "sql_poll/shown_VIA_OUT/2.json", "ticks/shown/1.json", "ticks/watermarks.json"]
    assert (spool / "views" / "0.json").read_text("utf-8") == "row"


def operator(folder: Path, number: int, batch: str = "v2/0") -> Path:
    place = folder / "state" / str(number)
    schema = f"file:{place}/_stateSchema/default/0_x"
    about = {
        "operatorInfo": {"operatorId": number, "operatorName": "transformWithState"},
        "stateStoreInfo": [{"storeName": "default", "numPartitions": 1, "stateSchemaFilePaths": [schema]}],
        "operatorPropertiesJson": "{}",
    }
    write(place / "_metadata" / batch, f"v2\n{json.dumps(about)}")
    write(place / "_stateSchema" / "default" / "0_x", "schema")
    return place


def told(place: Path, batch: str = "v2/0") -> tuple[int, str, int]:
    content = json.loads((place / "_metadata" / batch).read_text("utf-8").splitlines()[1])
    (store,) = content["stateStoreInfo"]
    return content["operatorInfo"]["operatorId"], store["stateSchemaFilePaths"][0], store["numPartitions"]


def test_state_gets_another_number_and_what_it_was_stays(tmp_path: Path) -> None:
    old = operator(tmp_path / "old", 3)
    write(old / "0" / "4.changelog", "changes")
    new = tmp_path / "new" / "state" / "1"
    move(old, new, old)
    assert told(new) == (1, f"file:{new}/_stateSchema/default/0_x", 1)
    assert told(old)[0] == 3
    assert (new / "0" / "4.changelog").samefile(old / "0" / "4.changelog")
    assert kind(new) == kind(old)


def test_empty_state_is_that_of_the_batch_that_is_next(tmp_path: Path) -> None:
    seed = operator(tmp_path / "seed", 0)
    operator(tmp_path / "seed", 0, "v2/1")
    for name in ("1.changelog", "1.zip", "2.zip", "SSTs/a.sst"):
        write(seed / "0" / name, name)
    new = tmp_path / "new" / "state" / "2"
    begin(seed, new, 41)
    set_partitions(new, 4)
    assert sorted(path.name for path in (new / "0").rglob("*") if path.is_file()) == ["41.zip", "a.sst"]
    assert (new / "0" / "41.zip").read_text("utf-8") == "2.zip"
    assert told(new) == (2, f"file:{new}/_stateSchema/default/0_x", 4)
    assert [path.name for path in (new / "_metadata" / "v2").iterdir()] == ["0"]


def test_a_log_says_into_how_many_partitions_state_is_divided(tmp_path: Path) -> None:
    write(tmp_path / "offsets" / "0", divided(LOG, 9))
    assert partitions_of(tmp_path, 0) == 9
    assert offsets_of(tmp_path, 0) == {"s": {"logOffset": 3}, "s_VIA_OUT_VIA_b": {"logOffset": 3}, "t": None}
