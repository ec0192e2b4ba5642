"""Who processes of pipelines run as: another user where that works, and a reason where it does not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.control.launch import user as module
from penstock.control.launch.user import SystemUser, choose_user, user_named, what_is_missing
from penstock.errors import PenstockError

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may switch to another user")


def test_nobody_else_is_chosen_if_the_configuration_says_so(tmp_path: Path) -> None:
    assert choose_user("none", tmp_path, []) == (None, [])


def test_only_root_may_switch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert choose_user(None, tmp_path, []) == (None, [])
    with pytest.raises(PenstockError) as raised:
        choose_user("nobody", tmp_path, [])
    assert raised.value.code == "RUN_AS_IMPOSSIBLE"


@as_root
@pytest.mark.parametrize("name", ["no-such-user-here", "root"])
def test_a_user_that_cannot_be_switched_to_is_refused_by_name_and_a_warning_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with pytest.raises(PenstockError) as raised:
        choose_user(name, tmp_path, [])
    assert raised.value.code == "RUN_AS_IMPOSSIBLE"
    monkeypatch.setattr(module, "PREFERRED", (name,))
    user, warnings = choose_user(None, tmp_path, [])
    assert user is None
    assert len(warnings) == 1
    assert name in warnings[0]


@as_root
def test_each_thing_that_is_missing_is_named_with_what_to_do(tmp_path: Path) -> None:
    user = user_named("nobody")
    assert user is not None
    data, outside = tmp_path / "data", tmp_path / "outside"
    (data / "files").mkdir(parents=True)
    (data / "files" / "rows.csv").touch()
    (data / "pipelines" / "p" / "state").mkdir(parents=True)
    outside.mkdir()
    found = "\n".join(what_is_missing(user, data, [data / "files", outside]))
    assert f"chown -R nobody: {data}/files" in found
    assert f"{outside} is closed" in found or "is closed to it, and pipelines may use it" in found
    assert "the state of 1 pipelines belongs to another user" in found
    # The temporary folders of a test are closed to others.
    assert "chmod o+x" in found


@as_root
def test_what_the_server_lets_a_user_read_others_do_not(tmp_path: Path) -> None:
    user = SystemUser("somebody", 54321, 54321)
    data = tmp_path / "data"
    file = data / "pipelines" / "p" / "versions" / "1.yaml"
    file.parent.mkdir(parents=True)
    file.touch(0o644)
    user.let_reach(file, data)
    user.let_read(file)
    modes = [path.stat().st_mode & 0o777 for path in (data, data / "pipelines", file.parent)]
    assert modes == [0o710] * 3
    assert file.stat().st_mode & 0o777 == 0o640
    assert {path.stat().st_gid for path in (data, file)} == {54321}
    assert tmp_path.stat().st_gid != 54321
    link = data / "link"
    link.symlink_to(file)
    user.own(link)
    assert (file.stat().st_uid, link.lstat().st_uid) == (0, 54321)
