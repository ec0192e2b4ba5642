"""The process in which pipelines are tried out: kept, replaced, and never left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock.control.asking import NoAnswer
from penstock.control.bench import Bench
from penstock.control.launch.access import ProcessAccess

ECHO = "tests.control.echo_bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    made = Bench(patience=20, module=ECHO)
    yield made
    made.close()


def asked(bench: Bench, verb: str = "echo", *, alone: bool = False, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = bench.ask({"verb": verb}, ProcessAccess(**more), alone=alone)["answer"]
    return found


def secrets_of(answer: dict[str, Any]) -> dict[str, str]:
    """Beside what Penstock itself passes."""
    return {name: value for name, value in answer["environment"].items() if name != "PENSTOCK_JARS"}


def test_one_process_answers_all_and_is_replaced_when_it_has_ended(bench: Bench) -> None:
    first = asked(bench)
    assert asked(bench)["pid"] == first["pid"]
    with pytest.raises(NoAnswer, match="ended"):
        asked(bench, "die")
    assert asked(bench)["pid"] != first["pid"]


def test_secrets_are_for_one_question_in_a_process_of_its_own(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_PASSWORD", "s3cret")
    monkeypatch.setenv("BENCH_OTHER", "hidden")
    monkeypatch.setenv("PENSTOCK_TOKEN", "hidden")
    kept = asked(bench)
    alone = asked(bench, alone=True, secrets=frozenset({"BENCH_PASSWORD"}))
    assert (secrets_of(kept), secrets_of(alone)) == ({}, {"BENCH_PASSWORD": "s3cret"})
    assert alone["pid"] != kept["pid"]
    assert not psutil.pid_exists(alone["pid"])
    assert asked(bench)["pid"] == kept["pid"]


def test_a_kept_process_serves_only_those_who_may_use_the_same_files(bench: Bench, tmp_path: Path) -> None:
    one, other = (tmp_path / "one",), (tmp_path / "other",)
    first = asked(bench, read=one)["pid"]
    assert asked(bench, read=one)["pid"] == first
    second = asked(bench, read=other)["pid"]
    assert second != first
    assert not psutil.pid_exists(first)
    assert asked(bench, read=one)["pid"] not in (first, second)


def test_what_takes_too_long_is_ended(bench: Bench) -> None:
    bench._patience = 0.5
    pid = asked(bench)["pid"]
    with pytest.raises(NoAnswer, match="too long"):
        asked(bench, "sleep")
    assert not psutil.pid_exists(pid)


def test_nobody_waits_behind_a_crowd(bench: Bench) -> None:
    bench._patience = 2
    refused: list[NoAnswer] = []
    began = threading.Barrier(6)

    def ask() -> None:
        began.wait()
        try:
            asked(bench, "sleep")
        except NoAnswer as error:
            refused.append(error)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(str(error)[:6] for error in refused) == ["it tak"] * 3 + ["others"] * 3


def test_a_process_that_nobody_asks_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    bench = Bench(patience=20, idle=0.2, module=ECHO)
    pid = asked(bench)["pid"]
    deadline = time.monotonic() + 20
    while psutil.pid_exists(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not psutil.pid_exists(pid)
    assert asked(bench)["pid"] != pid
    bench.close()
