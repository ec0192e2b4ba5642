"""CPU, memory and starts of a process tree, counted of real processes that fork, burn CPU, end and leave orphans."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from benchmarks.floor import launcher
from benchmarks.floor.measurement import observe
from benchmarks.floor.program_starts import ProgramStarts
from benchmarks.usage import cpu_seconds, machine_cpu_seconds, proportional_memory, tree, usage

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

PROGRAM = """
import json, mmap, os, signal, subprocess, sys, time

def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

def child(work):
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    return pid

def orphan(seconds):
    # Its parent ends at once; the pipe is closed when it has ended itself.
    reading, writing = os.pipe()
    def leave():
        child(lambda: burn(seconds))
    os.waitpid(child(leave), 0)
    os.close(writing)
    os.read(reading, 1)
    os.close(reading)

def waiting_child(memory):
    reading, writing = os.pipe()
    def hold():
        sum(memory[at] for at in range(0, len(memory), 4096))
        os.write(writing, b"x")
        signal.pause()
    pid = child(hold)
    os.read(reading, 1)
    return pid

memory = mmap.mmap(-1, 64_000_000)
held = []
for line in sys.stdin:
    order = json.loads(line)
    if "burn" in order:
        burn(order["burn"])
    if "ended" in order:
        os.waitpid(child(lambda: burn(order["ended"])), 0)
    if "orphan" in order:
        orphan(order["orphan"])
    if "share" in order:
        memory[:] = b"x" * len(memory)
        held += [waiting_child(memory) for _ in range(order["share"])]
    for _ in range(order.get("programs", 0)):
        subprocess.run(["true"], check=True)
    print(json.dumps({"pid": os.getpid(), "held": held}), flush=True)
"""


class Below:
    """The program above, below a launcher: it does what it is told, one line at a time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process, self.pid = process, process.pid

    def do(self, **order: float) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@contextmanager
def below_launcher(*command: str, seconds: int = 60) -> Iterator[Below]:
    process = subprocess.Popen(
        [sys.executable, "-I", launcher.__file__, str(seconds), *command],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        try:
            yield Below(process)
        finally:
            process.terminate()


@pytest.fixture
def program() -> Iterator[Below]:
    with below_launcher(sys.executable, "-c", PROGRAM) as found:
        found.do()
        yield found


def test_cpu_of_running_ended_and_orphaned_processes_is_counted(program: Below) -> None:
    before = cpu_seconds(program.pid)

    program.do(burn=0.3)
    own = cpu_seconds(program.pid) - before
    program.do(ended=0.3)
    with_ended = cpu_seconds(program.pid) - before
    program.do(orphan=0.3)
    with_orphan = cpu_seconds(program.pid) - before

    assert own == pytest.approx(0.3, abs=0.1)
    assert with_ended == pytest.approx(0.6, abs=0.15)
    assert with_orphan == pytest.approx(0.9, abs=0.2)


def test_cpu_never_goes_back_while_children_come_and_go(program: Below) -> None:
    readings = []
    for _ in range(20):
        program.do(programs=1, ended=0.02)
        readings.append(cpu_seconds(program.pid))

    assert readings == sorted(readings)
    assert readings[-1] - readings[0] >= 19 * 0.02 * 0.8


def test_cpu_of_the_machine_holds_that_of_a_tree(program: Below) -> None:
    machine = machine_cpu_seconds()

    program.do(burn=0.3)

    assert machine_cpu_seconds() - machine >= 0.25


def test_memory_that_processes_share_counts_once(program: Below) -> None:
    before = proportional_memory(tree(program.pid))

    held = program.do(share=3)["held"]
    shared = proportional_memory(tree(program.pid)) - before

    assert set(held) <= set(tree(program.pid))
    assert len(tree(program.pid)) == 5
    assert 64e6 * 0.9 < shared < 64e6 * 1.5
    assert usage(program.pid).memory_bytes > 4 * 64e6


def test_processes_that_have_ended_take_no_memory() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()

    assert proportional_memory([ended.pid]) == 0


def test_programs_and_processes_of_the_tree_are_counted_and_no_others(program: Below) -> None:
    with ProgramStarts(program.pid) as starts:
        if starts.starts is None:
            pytest.skip("the kernel reports starts of programs to root only")
        program.do(programs=5)
        subprocess.run(["true"], check=True)
        program.do(ended=0, share=1)

    assert starts.starts.programs == 5
    assert starts.starts.processes == 7
    assert starts.starts.threads == 0
    assert starts.forks == 7
    assert not starts.lost


def test_forks_of_the_machine_are_counted_where_the_kernel_tells_no_more(
    program: Below, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise PermissionError

    monkeypatch.setattr("benchmarks.floor.program_starts._connect", refuse)
    with ProgramStarts(program.pid) as starts:
        program.do(programs=3)
        forks = starts.forks

    assert starts.starts is None
    assert forks >= 3


def test_an_interval_holds_what_the_tree_used_in_it(program: Below) -> None:
    program.do(burn=0.5, share=2)

    interval = observe(program.pid, 0.5)

    assert interval.seconds >= 0.5
    assert interval.cpu_seconds < 0.1
    assert interval.others_cpu_seconds >= 0
    # The launcher does not count itself.
    assert interval.processes == (3,)
    assert interval.memory_bytes[0] > 64e6
    assert interval.programs in (0, None)


def test_the_launcher_ends_with_the_code_of_its_command() -> None:
    with below_launcher(sys.executable, "-c", "raise SystemExit(7)") as found:
        assert found.process.wait(30) == 7


def test_what_a_command_leaves_behind_ends_with_the_launcher() -> None:
    leaving = "import subprocess; print(subprocess.Popen(['sleep', '60']).pid, flush=True)"
    with below_launcher(sys.executable, "-c", leaving) as found:
        assert found.process.stdout is not None
        left = int(found.process.stdout.readline())
        assert found.process.wait(30) == 0

    assert not Path(f"/proc/{left}").exists()


def test_the_launcher_asks_its_command_to_stop() -> None:
    patient = (
        "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(3));print(1, flush=True); signal.pause()"
    )
    with below_launcher(sys.executable, "-c", patient) as found:
        assert found.process.stdout is not None
        found.process.stdout.readline()
        found.process.terminate()
        assert found.process.wait(30) == 3


def test_the_launcher_kills_what_takes_too_long() -> None:
    began = time.monotonic()
    with below_launcher("sleep", "60", seconds=1) as found:
        assert found.process.wait(30) == 128 + signal.SIGKILL

    assert time.monotonic() - began < 30


def test_a_command_ends_with_whoever_started_its_launcher() -> None:
    starting = (
        "import subprocess, sys; process = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, text=True);"
        "print(process.pid, process.stdout.readline(), flush=True)"
    )
    sleeping = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    done = subprocess.run(
        [sys.executable, "-c", starting, sys.executable, "-I", launcher.__file__, "50", sys.executable, "-c", sleeping],
        capture_output=True, text=True, timeout=30, check=True,
    )  # fmt: skip

    for pid in map(int, done.stdout.split()):
        deadline = time.monotonic() + 20
        while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
            os.sched_yield()
        assert not Path(f"/proc/{pid}").exists()
