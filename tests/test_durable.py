"""Files that outlast a power failure: what is synced, and in which order."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from penstock.durable import (
    NewFiles,
    create_durably,
    make_folders,
    rename_durably,
    sync_files,
    sync_folder,
    sync_tree,
    write_durably,
)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that are synced, in order, as their names are at that moment."""
    paths: list[str] = []
    real = os.fsync

    def noted(file: int) -> None:
        paths.append(os.readlink(f"/proc/self/fd/{file}"))
        real(file)

    monkeypatch.setattr(os, "fsync", noted)
    return paths


def test_a_file_is_synced_before_it_gets_its_name_and_its_folder_after(tmp_path: Path, synced: list[str]) -> None:
    write_durably(tmp_path / "note", "one")
    hidden, folder = synced
    assert hidden.startswith(f"{tmp_path}/.note.")
    assert (folder, (tmp_path / "note").read_text()) == (str(tmp_path), "one")
    write_durably(tmp_path / "note", b"two")
    assert [item.name for item in tmp_path.iterdir()] == ["note"]
    assert (tmp_path / "note").read_bytes() == b"two"


def test_a_file_is_created_once(tmp_path: Path, synced: list[str]) -> None:
    assert create_durably(tmp_path / "note", "one")
    assert synced[-1] == str(tmp_path)
    assert not create_durably(tmp_path / "note", "two")
    assert {item.name: item.read_text() for item in tmp_path.iterdir()} == {"note": "one"}


def test_a_write_that_fails_leaves_the_old_content_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_durably(tmp_path / "note", "one")

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_durably(tmp_path / "note", "two")
    assert {item.name: item.read_text() for item in tmp_path.iterdir()} == {"note": "one"}


def test_new_folders_are_synced_from_above(tmp_path: Path, synced: list[str]) -> None:
    make_folders(tmp_path / "a" / "b" / "c")
    assert synced == [str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")]
    synced.clear()
    make_folders(tmp_path / "a" / "b" / "c")
    assert synced == []


def test_files_are_synced_before_the_folders_that_lead_to_them(tmp_path: Path, synced: list[str]) -> None:
    files = [tmp_path / "a" / "x" / "1", tmp_path / "a" / "x" / "2", tmp_path / "b" / "3"]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    sync_files(files, tmp_path)
    folders = {str(tmp_path / name) for name in ("a", "a/x", "b")} | {str(tmp_path)}
    assert {*synced[:3]} == {str(file) for file in files}
    assert sorted(synced[3:]) == sorted(folders)


def test_a_move_between_folders_is_synced_where_it_came_to_first(tmp_path: Path, synced: list[str]) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    (tmp_path / "old" / "x").write_text("x")
    rename_durably(tmp_path / "old" / "x", tmp_path / "new" / "x")
    assert synced == [str(tmp_path / "new"), str(tmp_path / "old")]


def test_only_what_is_new_is_synced_again(tmp_path: Path, synced: list[str]) -> None:
    (tmp_path / "state" / "0").mkdir(parents=True)
    (tmp_path / "1").write_text("x")
    (tmp_path / "state" / "0" / "2").write_text("x")
    (tmp_path / ".3.tmp").write_text("being written")
    watched = NewFiles(tmp_path)
    watched.sync(without=("state",))
    assert {*synced} == {str(tmp_path / "1"), str(tmp_path)}
    synced.clear()
    watched.sync()
    assert synced[0] == str(tmp_path / "state" / "0" / "2")
    assert {*synced[1:]} == {str(tmp_path / "state"), str(tmp_path / "state" / "0")}
    synced.clear()
    (tmp_path / ".3.tmp").rename(tmp_path / "3")
    watched.sync()
    assert synced == [str(tmp_path / "3"), str(tmp_path)]


def test_a_tree_is_synced_with_its_own_name(tmp_path: Path, synced: list[str]) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1").write_text("x")
    sync_tree(tmp_path / "a")
    sync_tree(tmp_path / "missing")
    assert synced == [str(tmp_path / "a" / "1"), str(tmp_path / "a"), str(tmp_path)]


def test_a_file_system_without_syncs_of_folders_will_do_but_a_disk_that_fails_will_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(number: int) -> None:
        def fail(file: int) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "fsync", fail)

    failing(errno.EINVAL)
    sync_folder(tmp_path)
    failing(errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        sync_folder(tmp_path)
