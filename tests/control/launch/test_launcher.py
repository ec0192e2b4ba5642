"""A process as it is started for a pipeline: what it can open, see and signal, and what it cannot."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.control.launch import landlock
from penstock.control.launch.access import NOTHING, ProcessAccess, without
from penstock.control.launch.launcher import Launcher
from penstock.control.launch.limits import EXAMINATION, ProcessLimits

kernel_keeps_lists = pytest.mark.skipif(landlock.version() < landlock.LEAST, reason="this kernel has no Landlock")


def answer(launcher: Launcher, access: ProcessAccess, folder: Path, code: str, own: tuple[Path, ...] = ()) -> Any:
    """What a process prints as JSON that runs this code."""
    home, scratch = folder / "home", folder / "scratch"
    for place in (home, scratch):
        place.mkdir(parents=True, exist_ok=True)
    process = launcher.start(
        (sys.executable, "-c", f"import json, os\n{code}\nprint(json.dumps(found))"),
        access, folder=scratch, home=home, scratch=scratch, own=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    printed, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors.decode()
    return json.loads(printed)


TRY = """
def tried(act, *arguments):
    try:
        act(*arguments)
    except OSError as error:
        return type(error).__name__
    return "done"
def read(path):
    with open(path, "rb") as file:
        file.read(1)
def write(path):
    with open(path, "ab") as file:
        file.write(b"x")
"""


@kernel_keeps_lists
def test_it_opens_what_it_may_use_and_nothing_else(tmp_path: Path) -> None:
    for name in ("given", "read_only", "other", "server"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("content")
    (tmp_path / "given" / "link").symlink_to(tmp_path / "other" / "file")
    access = ProcessAccess(read=(tmp_path / "read_only",), write=(tmp_path / "given",))
    code = f"""{TRY}
at = {str(tmp_path)!r}
found = {{
    "read given": tried(read, f"{{at}}/given/file"),
    "write given": tried(write, f"{{at}}/given/file"),
    "make given": tried(write, f"{{at}}/given/new"),
    "read_only": tried(read, f"{{at}}/read_only/file"),
    "write read_only": tried(write, f"{{at}}/read_only/file"),
    "make read_only": tried(write, f"{{at}}/read_only/new"),
    "other": tried(read, f"{{at}}/other/file"),
    "write other": tried(write, f"{{at}}/other/file"),
    "list other": tried(os.listdir, f"{{at}}/other"),
    "through a link": tried(read, f"{{at}}/given/link"),
    "hard link": tried(os.link, f"{{at}}/other/file", f"{{at}}/given/hard"),
    "move out": tried(os.rename, f"{{at}}/given/file", f"{{at}}/other/taken"),
    "move in": tried(os.rename, f"{{at}}/other/file", f"{{at}}/given/taken"),
    "truncate": tried(os.truncate, f"{{at}}/other/file", 0),
    "remove": tried(os.unlink, f"{{at}}/other/file"),
    "shadow": tried(read, "/etc/shadow"),
    "root": tried(os.listdir, "/root"),
    "tmp": tried(os.listdir, "/tmp"),
    "device": tried(os.mknod, f"{{at}}/given/memory", 0o020600, os.makedev(1, 1)),
}}"""
    found = answer(Launcher(), access, tmp_path / "own", code)
    allowed = {name for name, outcome in found.items() if outcome == "done"}
    assert allowed == {"read given", "write given", "make given", "read_only"}
    assert (tmp_path / "other" / "file").read_text() == "content"


@kernel_keeps_lists
def test_it_cannot_look_into_the_server_nor_into_a_process_beside_it_nor_signal_them(tmp_path: Path) -> None:
    launcher, place = Launcher(), tmp_path / "beside"
    place.mkdir()
    beside = launcher.start(
        (sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(60)"),
        NOTHING, folder=place, home=place, scratch=place, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert beside.stdout is not None
    try:
        assert beside.stdout.readline() == b"ready\n"
        code = f"""{TRY}
found = {{f"{{name}} {{pid}}": tried(read, f"/proc/{{pid}}/{{name}}")
         for pid in {[os.getpid(), beside.pid]} for name in ("environ", "mem", "maps", "cwd/x", "root/etc/passwd")}}
found |= {{f"kill {{pid}}": tried(os.kill, pid, 15) for pid in {[os.getpid(), beside.pid]}}}
found["own"] = tried(read, "/proc/self/environ")"""
        found = answer(launcher, NOTHING, tmp_path / "own", code)
        assert beside.poll() is None
    finally:
        beside.kill()
        beside.wait()
        beside.stdout.close()
    assert found.pop("own") == "done"
    if landlock.version() < 6:
        found = {name: outcome for name, outcome in found.items() if not name.startswith("kill")}
    assert set(found.values()) == {"PermissionError"}, found


@kernel_keeps_lists
def test_what_is_the_servers_is_closed_even_in_a_folder_that_is_open(tmp_path: Path) -> None:
    data = tmp_path / "all" / "data"
    data.mkdir(parents=True)
    (data / "admin.token").write_text("token")
    (tmp_path / "all" / "rows").mkdir()
    (tmp_path / "all" / "rows" / "file").write_text("x")
    (tmp_path / "all" / "link").symlink_to(data)
    code = f"""{TRY}
at = {str(tmp_path / "all")!r}
found = [tried(read, f"{{at}}/{{name}}") for name in ("rows/file", "data/admin.token", "link/admin.token")]"""
    found = answer(Launcher(private=(data,)), ProcessAccess(write=(tmp_path / "all",)), tmp_path / "own", code)
    assert found == ["done", "PermissionError", "PermissionError"]


def test_folders_that_hold_something_private_are_replaced_by_what_lies_beside_it(tmp_path: Path) -> None:
    for name in ("a/b/private", "a/b/open", "a/c", "d"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "a" / "c" / "link").symlink_to(tmp_path / "a" / "b" / "private")
    (tmp_path / "a" / "direct").symlink_to(tmp_path / "a" / "b" / "private")
    found = without([tmp_path / "a", tmp_path / "d"], [tmp_path / "a" / "b" / "private"])
    assert found == sorted(str(tmp_path / name) for name in ("a/b/open", "a/c", "d"))
    # What lies in a private folder is given by name alone.
    assert without([tmp_path / "a" / "b"], [tmp_path / "a"]) == [str(tmp_path / "a" / "b")]


def test_home_and_temporary_files_are_its_own_and_nobody_else_reads_what_it_writes(tmp_path: Path) -> None:
    code = """
import tempfile
open("made", "w").close()
found = [os.environ["HOME"], tempfile.gettempdir(), os.getcwd(), os.stat("made").st_mode & 0o777]"""
    found = answer(Launcher(), NOTHING, tmp_path, code)
    assert found == [str(tmp_path / "home"), str(tmp_path / "scratch"), str(tmp_path / "scratch"), 0o600]


def test_limits_hold_and_no_memory_is_left_on_the_disk(tmp_path: Path) -> None:
    code = """
import resource
names = ("CORE", "FSIZE", "CPU", "AS", "NOFILE")
found = {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}")) for name in names}"""
    found = answer(Launcher(), ProcessAccess(limits=EXAMINATION), tmp_path, code)
    assert found["CORE"] == [0, 0]
    assert found["FSIZE"] == [EXAMINATION.file_bytes] * 2
    assert found["CPU"] == [EXAMINATION.cpu_seconds] * 2
    assert found["AS"] == [EXAMINATION.memory_bytes] * 2
    assert found["NOFILE"] == list(resource.getrlimit(resource.RLIMIT_NOFILE))
    few = answer(Launcher(), ProcessAccess(limits=ProcessLimits(open_files=100)), tmp_path, code)
    assert few["NOFILE"] == [100, 100]


@pytest.mark.skipif(os.geteuid() != 0, reason="only an administrator has anything to give up")
def test_an_administrator_keeps_nothing_but_files(tmp_path: Path) -> None:
    code = "found = [line.split()[1] for line in open('/proc/self/status') if line.startswith(('CapEff', 'CapBnd'))]"
    assert {int(mask, 16) & ~0b10 for mask in answer(Launcher(), NOTHING, tmp_path, code)} == {0}


@kernel_keeps_lists
def test_a_process_that_cannot_be_confined_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {"limits": {"core": 0}, "files": {"read": None, "write": [], "devices": []}}
    monkeypatch.setattr(Launcher, "rules", lambda *_: wrong)
    process = Launcher().start(
        (sys.executable, "-c", "open('ran', 'w')"), NOTHING, folder=tmp_path, home=tmp_path, scratch=tmp_path
    )
    assert process.wait(60) != 0
    assert not (tmp_path / "ran").exists()


def test_a_program_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Launcher().start(("/no/such/program",), NOTHING, folder=tmp_path, home=tmp_path, scratch=tmp_path)


@kernel_keeps_lists
def test_limiting_a_process_takes_less_than_fifty_milliseconds(tmp_path: Path) -> None:
    launcher = Launcher()
    bare_environment = launcher.environment((), tmp_path, tmp_path, {})

    def bare() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "this"], stdout=subprocess.DEVNULL, cwd=tmp_path, env=bare_environment
        )

    def limited() -> subprocess.Popen[bytes]:
        return launcher.start(
            (sys.executable, "-m", "this"), NOTHING, folder=tmp_path, home=tmp_path, scratch=tmp_path
        )  # fmt: skip

    def seconds(start: Callable[[], subprocess.Popen[bytes]]) -> float:
        # Of the processor, as other tests run beside this one.
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert start().wait(60) == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(seconds(limited) for _ in range(5)) - min(seconds(bare) for _ in range(5)) < 0.05
