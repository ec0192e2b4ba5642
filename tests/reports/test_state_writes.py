"""How many bytes of state a batch has written, as seen in a checkpoint."""

from __future__ import annotations

from pathlib import Path

from penstock.reports.state_folder import StateWrites


def write(checkpoint: Path, name: str, size: int) -> None:
    file = checkpoint / "state" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"x" * size)


def test_the_changes_of_all_partitions_and_stores_are_added_up(tmp_path: Path) -> None:
    for name, size in (
        ("0/0/8.changelog", 10), ("0/1/8.changelog", 20), ("0/1/7.changelog", 500), ("0/0/8.zip", 9000),
        ("0/0/SSTs/a.sst", 70), ("1/0/left-keyToNumValues/8.changelog", 3), ("1/0/right-keyToNumValues/8.changelog", 4),
        ("0/_metadata/metadata", 5),
    ):  # fmt: skip
        write(tmp_path, name, size)

    # The batch 7 makes the version 8 of the state.
    assert StateWrites(tmp_path).of(7) == 37


def test_a_batch_without_state_has_written_none(tmp_path: Path) -> None:
    assert StateWrites(tmp_path).of(0) is None
    write(tmp_path, "0/0/1.changelog", 10)
    assert StateWrites(tmp_path).of(5) is None


def test_stores_that_come_later_are_found(tmp_path: Path) -> None:
    writes = StateWrites(tmp_path)

    assert writes.of(0) is None
    write(tmp_path, "0/0/2.changelog", 10)
    assert writes.of(1) == 10
