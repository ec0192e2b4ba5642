"""Codes that log in once."""

from __future__ import annotations

import pytest

from penstock.control.auth.links import LASTS_SECONDS, LoginLinks, is_loopback


def code(path: str) -> str:
    return path.removeprefix("/login#code=")


def test_a_code_gives_its_token_once() -> None:
    links = LoginLinks()
    first, second = code(links.make("a")), code(links.make("b"))
    assert (links.take(second), links.take(first)) == ("b", "a")
    assert links.take(first) is None


def test_a_code_ends_after_ten_minutes() -> None:
    time = 0.0
    links = LoginLinks(clock=lambda: time)
    young, old = code(links.make("a")), code(links.make("a"))
    time = LASTS_SECONDS - 0.1
    assert links.take(young) == "a"
    time = LASTS_SECONDS
    assert links.take(old) is None


def test_memory_is_bounded_and_the_newest_codes_work() -> None:
    links = LoginLinks()
    codes = [code(links.make(str(number))) for number in range(101)]
    assert links.take(codes[0]) is None
    assert links.take(codes[1]) == "1"
    assert links.take(codes[100]) == "100"


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:10.0.0.1", False),
        ("10.0.0.1", False),
        ("0.0.0.0", False),
        ("localhost.example.org", False),
        ("unknown", False),
    ],
)
def test_loopback_is_told_by_address_and_not_by_name(address: str, expected: bool) -> None:
    assert is_loopback(address) is expected
