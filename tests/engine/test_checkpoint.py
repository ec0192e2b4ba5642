"""A damaged checkpoint is refused before Spark sees it, and the file at fault is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.engine.checkpoint import last_committed, last_number, source_log, verify
from penstock.errors import PenstockError

OFFSETS = 'v2\n{"batchWatermarkMs":0,"conf":{}}\nviews:{"logOffset":0}\nclicks:-'
COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Batches 0 to 3 planned, 0 to 2 committed."""
    for folder, content, count in (("offsets", OFFSETS, 4), ("commits", COMMIT, 3)):
        (tmp_path / folder).mkdir()
        for number in range(count):
            (tmp_path / folder / str(number)).write_text(content)
            (tmp_path / folder / f".{number}.crc").write_bytes(b"crc")
    return tmp_path


def refused(checkpoint: Path) -> tuple[str, str, str]:
    with pytest.raises(PenstockError) as raised:
        verify(checkpoint)
    params = raised.value.problems[0].params
    return raised.value.code, str(Path(params["path"]).relative_to(checkpoint)), str(params["reason"])


def test_a_sound_checkpoint_passes(checkpoint: Path) -> None:
    verify(checkpoint)
    assert (last_number(checkpoint / "offsets"), last_committed(checkpoint)) == (3, 2)


def test_an_empty_folder_is_sound_and_has_no_batch(tmp_path: Path) -> None:
    verify(tmp_path / "nothing")
    assert last_committed(tmp_path / "nothing") == -1


def test_a_checkpoint_whose_old_entries_were_purged_is_sound(checkpoint: Path) -> None:
    for name in ("offsets/0", "offsets/1", "commits/0"):
        (checkpoint / name).unlink()
    verify(checkpoint)
    assert last_committed(checkpoint) == 2


@pytest.mark.parametrize("name", ["offsets/3", "offsets/2", "commits/2", "commits/1"])
@pytest.mark.parametrize("content", ["", "v1\n", 'v1\n{"next', "{}\n{}"])
def test_a_file_that_is_empty_or_cut_short_is_named(checkpoint: Path, name: str, content: str) -> None:
    (checkpoint / name).write_text(content)
    assert refused(checkpoint) == ("STATE_UNREADABLE", name, "it is cut short")


@pytest.mark.parametrize(
    "content", ['v2\n{"batchWatermarkMs":0}', 'v2\n{"batchWatermarkMs":0}\nviews:{"logO', "v2\n{}\nviews:"]
)
def test_offsets_without_the_position_of_a_source_are_cut_short(checkpoint: Path, content: str) -> None:
    (checkpoint / "offsets/3").write_text(content)
    assert refused(checkpoint) == ("STATE_UNREADABLE", "offsets/3", "it is cut short")


def test_a_file_of_other_bytes_is_named(checkpoint: Path) -> None:
    (checkpoint / "offsets/3").write_bytes(b"\xff\xfe\x00")
    assert refused(checkpoint)[:2] == ("STATE_UNREADABLE", "offsets/3")


@pytest.mark.parametrize("lost", ["offsets/2", "commits/2"])
def test_a_file_missing_before_the_newest_is_named(checkpoint: Path, lost: str) -> None:
    (checkpoint / lost).unlink()
    code, name, reason = refused(checkpoint)
    assert (code, name) == ("STATE_UNREADABLE", lost)
    assert reason.startswith("it is missing")


def test_lost_offsets_of_committed_batches_are_named(checkpoint: Path) -> None:
    for number in range(4):
        (checkpoint / "offsets" / str(number)).unlink()
    assert refused(checkpoint)[:2] == ("STATE_UNREADABLE", "offsets/2")


def test_lost_commits_are_named(checkpoint: Path) -> None:
    for number in range(3):
        (checkpoint / "commits" / str(number)).unlink()
    assert refused(checkpoint)[:2] == ("STATE_UNREADABLE", "commits/2")


def test_a_batch_that_was_planned_but_not_committed_is_no_damage(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text(OFFSETS)
    verify(tmp_path)
    assert last_committed(tmp_path) == -1


def test_the_log_of_a_source_is_found_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "sources" / "views").mkdir(parents=True)
    assert source_log(tmp_path, "views") == tmp_path / "sources" / "views"
    assert source_log(tmp_path, "clicks") is None
