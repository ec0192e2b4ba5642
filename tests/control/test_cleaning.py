"""Folders of deleted pipelines are removed as if the pipelines had meant harm."""

from __future__ import annotations

import datetime as dt
import os
import shutil
from pathlib import Path

import pytest

from penstock.control.cleaning import remove_some
from penstock.control.files import DataFolder

NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "deleted" / "a-x"
    (made / "state" / "dead").mkdir(parents=True)
    for number in range(20):
        (made / "state" / "dead" / f"{number}.json").write_text("x" * 5000)
    return made


def test_a_folder_is_removed_a_few_files_at_a_time(folder: Path) -> None:
    first = remove_some(folder, 5)
    assert (first.files, first.whole) == (5, False)
    assert len(list((folder / "state" / "dead").iterdir())) == 15
    last = remove_some(folder, 1000)
    assert last.whole
    assert (first.bytes + last.bytes) >= 20 * 5000
    assert not folder.exists()


def test_links_are_removed_and_not_followed(folder: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("keep me")
    for place in (folder, folder / "state"):
        (place / "to-folder").symlink_to(precious, target_is_directory=True)
        (place / "to-file").symlink_to(precious / "file")
        (place / "up").symlink_to("../../..")
    os.link(precious / "file", folder / "hard")
    assert remove_some(folder).whole
    assert (precious / "file").read_text() == "keep me"


def test_a_folder_that_is_a_link_itself_is_left_alone(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("keep me")
    (tmp_path / "deleted").mkdir()
    (tmp_path / "deleted" / "a-20200101T000000000000").symlink_to(precious, target_is_directory=True)
    assert DataFolder(tmp_path).deleted_before(NOW) == []
    assert remove_some(tmp_path / "deleted" / "a-20200101T000000000000").files == 0
    assert (precious / "file").exists()


def test_a_folder_that_is_swapped_for_a_link_is_not_followed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("keep me")
    look = os.stat

    def swapped(path: str, **more: object) -> os.stat_result:
        found = look(path, **more)  # type: ignore[arg-type]
        if path == "state" and (folder / "state").is_dir():
            (folder / "state").rename(folder / "moved")
            (folder / "state").symlink_to(precious, target_is_directory=True)
        return found

    monkeypatch.setattr(os, "stat", swapped)
    remove_some(folder)
    monkeypatch.undo()
    assert (precious / "file").read_text() == "keep me"
    while not remove_some(folder).whole:
        assert folder.exists()


def test_deep_and_closed_folders_go_too(folder: Path) -> None:
    here = os.open(folder, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d" * 200, dir_fd=here)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    (folder / "state").chmod(0)
    steps = 0
    while not remove_some(folder).whole:
        steps += 1
        assert steps < 20
    assert not folder.exists()


def test_only_what_was_put_aside_before_a_time_is_found(tmp_path: Path) -> None:
    data = DataFolder(tmp_path)
    for days, name in ((9, "old-one"), (1, "new"), (8, "old")):
        data.pipeline(name).mkdir(parents=True)
        data.put_aside(name, NOW - dt.timedelta(days=days))
    for other in ("notes", "a-b", "-20200101T000000000000", "Bad-20200101T000000000000"):
        (tmp_path / "deleted" / other).mkdir()
    (tmp_path / "deleted" / "file-20200101T000000000000").write_text("")
    found = data.deleted_before(NOW - dt.timedelta(days=7))
    assert [path.name.rpartition("-")[0] for path in found] == ["old-one", "old"]
    assert DataFolder(tmp_path / "none").deleted_before(NOW) == []


def test_this_python_can_remove_trees_without_following_links() -> None:
    assert shutil.rmtree.avoids_symlink_attacks, "folders of runs are removed with it"
