"""What is seen of a state folder, also before it is there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock.doctor.state_folder import is_temporary, look_at


def test_a_folder_that_is_not_there_yet_has_the_room_of_the_one_above(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free

    found = look_at(tmp_path / "state" / "clicks")

    assert found.path == str(tmp_path / "state" / "clicks")
    assert found.free == pytest.approx(free, rel=0.2)


def test_a_relative_path_starts_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert look_at(Path("state")).path == str(tmp_path / "state")


@pytest.mark.parametrize(
    ("path", "temporary"),
    [
        ("/tmp", True),
        ("/tmp/a", True),
        ("file:///var/tmp/a", True),
        ("/run/penstock", True),
        ("/temporary", False),
        ("./tmp/a", False),
        ("s3a://tmp/a", False),
        ("/srv/data", False),
    ],
)
def test_temporary_folders_are_known_by_their_path(path: str, temporary: bool) -> None:
    assert is_temporary(path) is temporary
