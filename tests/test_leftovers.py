"""A run of the tests that leaves a process behind fails and says which."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.control.supervisor.world import World
from tests.leftovers import left_behind

from penstock.testing.processes import at_work_below, end_below

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.mark.parametrize("by", ["folder", "argument"])
def test_a_process_is_found_by_where_it_works_and_by_what_it_was_told(tmp_path: Path, by: str) -> None:
    told = [*SLEEP, str(tmp_path / "run")] if by == "argument" else SLEEP
    child = subprocess.Popen(told, cwd="/" if by == "argument" else tmp_path, env={}, start_new_session=True)
    try:
        assert [process.pid for process in left_behind(tmp_path, 0)] == [child.pid]
        assert at_work_below(tmp_path / "other") == []
    finally:
        end_below(tmp_path)
    child.wait(10)
    assert left_behind(tmp_path, 0) == []


def test_a_run_that_was_started_in_the_last_tick_ends_with_its_world(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.store.want("demo")
    world.tick()
    (run,) = world.store.runs("demo")
    assert run.pid is None, "the store does not know it yet"
    assert len(at_work_below(tmp_path)) >= 1
    world.end()
    assert at_work_below(tmp_path) == []


@pytest.mark.parametrize("workers", [(), ("-n", "1")])
def test_a_run_of_the_tests_that_leaves_one_fails(tmp_path: Path, workers: tuple[str, ...]) -> None:
    start = f"subprocess.Popen({SLEEP!r}, cwd=tmp_path, start_new_session=True)"
    (tmp_path / "test_one.py").write_text(f"import subprocess\ndef test_it(tmp_path):\n    {start}\n")
    (tmp_path / "conftest.py").write_text("import tests.leftovers\ntests.leftovers._PATIENCE = 0\n")
    base = tmp_path / "base"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.leftovers", "-c", "/dev/null", f"--rootdir={tmp_path}",
         f"--basetemp={base}", *workers, str(tmp_path / "test_one.py")],
        cwd=Path(__file__).parents[1], capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 1
    assert "left behind by the tests: process" in done.stdout
    assert at_work_below(base) == []
