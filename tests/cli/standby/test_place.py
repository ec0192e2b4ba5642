"""Who may use a standby process: nobody who differs from it in anything that counts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.cli.standby.place import private_folder, socket_path


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    # Paths of sockets are short.
    monkeypatch.setattr("penstock.cli.standby.place._LONGEST", 1000)
    return tmp_path


def path(**variables: str) -> Path:
    found = socket_path({"HOME": "/home/ann", **variables})
    assert found is not None
    return found


def test_commands_of_one_user_in_one_folder_find_the_same_process(runtime: Path) -> None:
    assert path() == path()
    assert path().parent == runtime / "penstock" / "standby"


def test_a_command_with_another_variable_finds_none(runtime: Path) -> None:
    assert path() != path(DATABASE_PASSWORD="x")
    assert path(DATABASE_PASSWORD="x") != path(DATABASE_PASSWORD="y")


def test_the_size_of_the_terminal_makes_no_difference(runtime: Path) -> None:
    assert path() == path(COLUMNS="80", TERM="xterm", SHLVL="3")


def test_a_command_in_another_folder_finds_none(runtime: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = path()
    monkeypatch.chdir(tmp_path)
    assert path() != before


def test_a_command_with_another_umask_finds_none(runtime: Path) -> None:
    before, umask = path(), os.umask(0o027)
    try:
        assert path() != before
        assert os.umask(0o027) == 0o027, "looking does not change it"
    finally:
        os.umask(umask)


def test_other_code_finds_none(runtime: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code = tmp_path / "penstock" / "cli" / "standby" / "place.py"
    code.parent.mkdir(parents=True)
    code.write_text("# one state of the code\n", "utf-8")
    monkeypatch.setattr("penstock.cli.standby.place.__file__", str(code))
    before = path()
    code.write_text("# another state of the code\n", "utf-8")
    assert path() != before


def test_the_name_tells_nothing_of_the_variables(runtime: Path) -> None:
    assert "hunter2" not in str(path(DATABASE_PASSWORD="hunter2"))


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_folder_that_others_may_enter_is_not_used(runtime: Path, mode: int) -> None:
    folder = runtime / "penstock" / "standby"
    folder.mkdir(parents=True)
    folder.chmod(mode)
    assert private_folder() is None
    assert socket_path({}) is None


def test_a_link_is_not_followed(runtime: Path) -> None:
    elsewhere = runtime / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (runtime / "penstock").mkdir()
    (runtime / "penstock" / "standby").symlink_to(elsewhere)
    assert private_folder() is None


def test_a_path_that_is_too_long_for_a_socket_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / ("x" * 100)))
    assert socket_path({}) is None
