"""What a power failure leaves of Spark's newest notes is made again; other damage is not touched."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.engine.checkpoint import last_committed, last_number, verify
from penstock.engine.on_disk import Begun, CheckpointOnDisk, mend_checkpoint, read_begun
from penstock.errors import PenstockError

METADATA = '{"batchWatermarkMs":%d,"batchTimestampMs":1,"conf":{}}'


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Batches 0 to 2 are committed and batch 3 is planned; a file source has noted an entry for each."""
    for number in range(4):
        note(tmp_path, f"offsets/{number}", f'v1\n{METADATA % (number * 1000)}\nrows:{{"logOffset":{number}}}')
        note(tmp_path, f"sources/rows/{number}", f'v1\n{{"path":"{number}.json"}}')
    for number in range(3):
        note(tmp_path, f"commits/{number}", f'v1\n{{"nextBatchWatermarkMs":{(number + 1) * 1000}}}')
    begun(tmp_path, 2)
    return tmp_path


def note(state: Path, name: str, text: str) -> None:
    file = state / "checkpoint" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    sums = struct.pack(">4siI", b"crc\0", 512, zlib.crc32(text.encode()))
    file.with_name(f".{file.name}.crc").write_bytes(sums)


def begun(state: Path, batch: int, *, ended: bool = False) -> None:
    (state / "begun").write_text(Begun(batch, ended).to_text())


def empty(file: Path) -> None:
    file.write_bytes(b"")


def zeros(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-4])


def gone(file: Path) -> None:
    file.unlink()


def mended_and_verified(state: Path) -> None:
    mend_checkpoint(state)
    verify(state / "checkpoint")


DAMAGES = [empty, zeros, cut, gone]
Damage = Callable[[Path], None]


def test_what_is_whole_is_left_alone(state: Path) -> None:
    assert mend_checkpoint(state) == []
    assert (last_number(state / "checkpoint" / "offsets"), last_committed(state / "checkpoint")) == (3, 2)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_lost_commit_is_written_again_from_the_plan_after_it(state: Path, damage: Damage) -> None:
    commit = state / "checkpoint" / "commits" / "2"
    before = commit.read_text()
    damage(commit)
    assert mend_checkpoint(state) == ["the commit of batch 2 was written again: it was not on the disk"]
    assert commit.read_text() == before
    assert not commit.with_name(".2.crc").exists()
    verify(state / "checkpoint")


@pytest.mark.parametrize("damage", [empty, zeros, cut])
def test_without_a_plan_after_it_the_batch_comes_again(state: Path, damage: Damage) -> None:
    (state / "checkpoint" / "offsets" / "3").unlink()
    (state / "checkpoint" / "sources" / "rows" / "3").unlink()
    damage(state / "checkpoint" / "commits" / "2")
    assert mend_checkpoint(state) == ["batch 2 comes again: its commit was not on the disk"]
    assert (last_number(state / "checkpoint" / "offsets"), last_committed(state / "checkpoint")) == (2, 1)
    verify(state / "checkpoint")


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["offsets/3", "sources/rows/3"])
def test_a_plan_that_no_sink_has_seen_is_dropped_if_it_is_not_whole(state: Path, name: str, damage: Damage) -> None:
    damage(state / "checkpoint" / name)
    if (name, damage) == ("offsets/3", gone):
        # The note of the source is whole, and Spark takes it into the next plan.
        assert mend_checkpoint(state) == []
    else:
        assert mend_checkpoint(state) == ["batch 3 is planned again: its plan was not on the disk"]
        assert not (state / "checkpoint" / "sources" / "rows" / "3").exists()
    assert (last_number(state / "checkpoint" / "offsets"), last_committed(state / "checkpoint")) == (2, 2)
    verify(state / "checkpoint")


def test_a_checksum_that_is_lost_in_part_does_not_keep_a_whole_file_from_being_read(state: Path) -> None:
    checkpoint = state / "checkpoint"
    checksums = [
        checkpoint / "offsets" / ".3.crc",
        checkpoint / "commits" / ".2.crc",
        checkpoint / "sources/rows/.3.crc",
    ]
    for file in checksums:
        empty(file)
    right = checkpoint / "offsets" / ".2.crc"
    assert mend_checkpoint(state) == []
    assert [file.exists() for file in (*checksums, right)] == [False, False, False, True]


def test_a_checksum_without_its_file_is_removed(state: Path) -> None:
    gone(state / "checkpoint" / "offsets" / "3")
    gone(state / "checkpoint" / "commits" / "2")
    mended_and_verified(state)
    assert sorted(file.name for file in (state / "checkpoint").rglob(".[23].crc")) == [".2.crc", ".2.crc", ".3.crc"]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    ("name", "batch", "ended"), [("offsets/2", 2, False), ("offsets/3", 3, False), ("commits/2", 2, True)]
)
def test_damage_that_is_no_trace_of_a_power_failure_stays_an_error(
    state: Path, name: str, batch: int, ended: bool, damage: Damage
) -> None:
    begun(state, batch, ended=ended)
    damage(state / "checkpoint" / name)
    with pytest.raises(PenstockError) as refused:
        mended_and_verified(state)
    assert refused.value.code == "STATE_UNREADABLE"


def test_a_state_of_an_earlier_version_is_not_repaired(state: Path) -> None:
    (state / "begun").unlink()
    empty(state / "checkpoint" / "commits" / "2")
    assert mend_checkpoint(state) == []
    with pytest.raises(PenstockError, match="cut short"):
        verify(state / "checkpoint")


def test_where_it_stands_is_noted_with_each_batch(state: Path) -> None:
    (state / "begun").unlink()
    disk = CheckpointOnDisk(state)
    disk.open()
    # Nobody knows whether a sink has seen the plan that is there.
    assert read_begun(state) == Begun(3)
    disk.begin(3)
    disk.end()
    assert read_begun(state) == Begun(3)
    note(state, "commits/3", f"v1\n{json.dumps({'nextBatchWatermarkMs': 4000})}")
    disk.close(2)
    assert read_begun(state) == Begun(3)
    disk.close(3)
    assert read_begun(state) == Begun(3, ended=True)
