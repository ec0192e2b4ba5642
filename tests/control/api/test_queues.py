"""Kinds of requests have threads of their own, a queue that ends, and a share for each token."""

from __future__ import annotations

import threading
from collections.abc import Callable

import anyio
import pytest

from penstock.control.api.queues import Kind, RequestQueue, Size
from penstock.control.api.rates import RequestRates
from penstock.errors import PenstockError


class Blocked:
    """Work that ends when it is let go."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.begun: list[str] = []

    def by(self, token: str) -> Callable[[], str]:
        def work() -> str:
            self.begun.append(token)
            assert self.gate.wait(30)
            return token

        return work


async def refused(queue: RequestQueue, token: str) -> PenstockError:
    with pytest.raises(PenstockError) as caught:
        await queue.run(token, lambda: None)
    return caught.value


def test_another_token_is_served_while_one_has_taken_its_share() -> None:
    async def scenario() -> list[str]:
        queue, work, done = RequestQueue(Kind.STATE, Size(2, 1, 4, 2, 30, retry=7)), Blocked(), []

        async def ask(token: str, what: Callable[[], str]) -> None:
            done.append(await queue.run(token, what))

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(ask, "greedy", work.by("greedy"))
            while queue.waiting < 2 or len(work.begun) < 1:
                await anyio.sleep(0)
            too_many = await refused(queue, "greedy")
            assert (too_many.code, too_many.problems[0].params["seconds"]) == ("TOO_MANY_REQUESTS", 7)
            assert (queue.running, queue.waiting) == (1, 2)
            assert await queue.run("modest", lambda: "at once") == "at once"
            work.gate.set()
        assert (queue.running, queue.waiting) == (0, 0)
        return done

    assert anyio.run(scenario) == ["greedy"] * 3


def test_a_full_queue_refuses_at_once_and_a_turn_that_does_not_come_ends() -> None:
    async def scenario() -> None:
        queue, work = RequestQueue(Kind.STATE, Size(1, 1, 2, 1, 0.05, retry=3)), Blocked()
        codes: list[str] = []

        async def ask(token: str) -> None:
            try:
                await queue.run(token, work.by(token))
            except PenstockError as error:
                codes.append(error.code)

        async with anyio.create_task_group() as group:
            group.start_soon(ask, "a")
            while not work.begun:
                await anyio.sleep(0)
            group.start_soon(ask, "b")
            group.start_soon(ask, "c")
            while queue.waiting < 2:
                await anyio.sleep(0)
            full = await refused(queue, "d")
            assert (full.code, full.problems[0].params) == ("SERVER_BUSY", {"kind": "state", "seconds": 3})
            while len(codes) < 2:
                await anyio.sleep(0)
            work.gate.set()
        assert codes == ["SERVER_BUSY"] * 2
        assert (work.begun, queue.running, queue.waiting) == (["a"], 0, 0)

    anyio.run(scenario)


def test_work_that_fails_gives_its_thread_back() -> None:
    async def scenario() -> None:
        queue = RequestQueue(Kind.LOOK, Size(1, 1, 1, 1, 1))
        with pytest.raises(ZeroDivisionError):
            await queue.run("a", lambda: 1 // 0)
        assert await queue.run("a", lambda: 5) == 5

    anyio.run(scenario)


def test_a_caller_makes_so_many_requests_a_second_and_others_are_not_counted_with_it() -> None:
    time = 0.0
    rates = RequestRates(10, lambda: time)
    for _ in range(30):
        rates.take("a")
    with pytest.raises(PenstockError) as caught:
        rates.take("a")
    assert (caught.value.code, caught.value.problems[0].params["seconds"]) == ("TOO_MANY_REQUESTS", 1)
    rates.take("b")
    time = 0.5
    for _ in range(5):
        rates.take("a")
    with pytest.raises(PenstockError):
        rates.take("a")


def test_callers_without_end_take_bounded_memory() -> None:
    rates = RequestRates(10, lambda: 0.0)
    for number in range(20_000):
        rates.take(str(number))
    assert len(rates) == 10_000
