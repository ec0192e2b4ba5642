"""Rates, sizes and shares: what is read, what is refused, and that bits are not bytes."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.capacity.units import ByteSize, Count, DiskSpeed, NetworkSpeed, RowRate, Share
from penstock.spec.units import Parsed

UnitT = TypeVar("UnitT", bound=Parsed)


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("10 Gbit/s", 10**10),
        ("10Gbps", 10**10),
        ("10 Gb/s", 10**10),
        ("10GBit/s", 10**10),
        ("10 GbE", 10**10),
        ("2.5 Gbit/s", 2_500_000_000),
        ("100 Mbit per second", 10**8),
    ],
)
def test_a_networks_speed_is_in_bits(text: str, bits: int) -> None:
    assert NetworkSpeed.parse(text) == NetworkSpeed(bits)
    assert NetworkSpeed.parse(text).bytes == bits / 8


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("10 GB", "in bytes, and a network's speed is in bits: write '10 Gbit/s', or '80 Gbit/s' if bytes are meant"),
        ("10 GB/s", "write '10 Gbit/s', or '80 Gbit/s'"),
        ("100 MBps", "write '100 Mbit/s', or '800 Mbit/s'"),
        ("10 Gb", "an amount of bits, not a speed: write '10 Gbit/s'"),
        ("10", "not a network's speed"),
        ("-10 Gbit/s", "negative"),
        ("fast", "not a network's speed"),
        (10, "not a network's speed"),
    ],
)
def test_a_networks_speed_in_anything_else_is_refused_with_what_to_write(text: Any, said: str) -> None:
    with pytest.raises(ValueError) as caught:
        NetworkSpeed.parse(text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "size"),
    [("2 KB", 2000), ("40 bytes", 40), ("1 byte", 1), ("40B", 40), ("8 GiB", 8 * 1024**3), ("1.5 kB", 1500)],
)
def test_sizes_are_in_bytes(text: str, size: int) -> None:
    assert ByteSize.parse(text) == ByteSize(size)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2 Kb", "in bits, and a size is in bytes"),
        ("10 Gbit", "in bits, and a size is in bytes"),
        ("-2 KB", "is negative"),
        ("0.5 bytes", "not a whole number of bytes"),
        ("2", "not a size"),
        (40, "not a size"),
        ("many", "not a size"),
    ],
)
def test_sizes_in_bits_or_without_a_unit_are_refused(text: Any, said: str) -> None:
    with pytest.raises(ValueError) as caught:
        ByteSize.parse(text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("1,000,000/s", 1_000_000),
        ("1_000_000 / s", 1_000_000),
        ("1M per second", 1_000_000),
        ("600 thousand per minute", 10_000),
        ("600 thousand a minute", 10_000),
        ("86400/day", 1),
        ("3600 per hours", 1),
        ("10/min", Fraction(1, 6)),
    ],
)
def test_rates_name_their_time(text: str, rate: Fraction) -> None:
    assert RowRate.parse(text).per_second == rate


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (5, "write for example '5/s'"),
        ("5", "write for example '5/s'"),
        ("5/year", "in which time"),
        ("-5/s", "is negative"),
        ("x/s", "not a number of things"),
    ],
)
def test_rates_without_a_time_are_refused(text: Any, said: str) -> None:
    with pytest.raises(ValueError) as caught:
        RowRate.parse(text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "count"), [(500, 500), ("500 million", 5 * 10**8), ("500,000,000", 5 * 10**8), ("1.5M", 1_500_000)]
)
def test_counts(text: Any, count: int) -> None:
    assert Count.parse(text) == Count(count)


@pytest.mark.parametrize("wrong", [True, -1, "-1", 1.5, "0.3", "1.5", None, "9" * 200])
def test_counts_that_are_none_are_refused(wrong: Any) -> None:
    with pytest.raises(ValueError):
        Count.parse(wrong)


def test_shares() -> None:
    for text in ("25%", "25 %", 0.25, "0.25"):
        assert Share.parse(text) == Share(0.25)
    assert (Share.parse(1), Share.parse("0%"), Share.parse("100%")) == (Share(1.0), Share(0.0), Share(1.0))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("25", "'25' is not between 0% and 100%; write '25%' if that is meant"),
        (30, "write '30%' if that is meant"),
        ("120%", "'120%' is not between 0% and 100%"),
        (-0.1, "is negative"),
        (True, "not a share"),
        ("x", "not a share"),
    ],
)
def test_shares_that_are_none_are_refused(wrong: Any, said: str) -> None:
    with pytest.raises(ValueError) as caught:
        Share.parse(wrong)
    assert said in str(caught.value)


@given(st.integers(0, 10**18))
def test_sizes_and_counts_round_trip(value: int) -> None:
    for unit in (ByteSize(value), Count(value), DiskSpeed(value)):
        assert _again(unit) == unit


@given(st.integers(1, 10**15))
def test_network_speeds_round_trip(bits: int) -> None:
    assert _again(NetworkSpeed(bits)) == NetworkSpeed(bits)


@given(st.integers(0, 10**12), st.sampled_from([1, 60, 3600, 86_400]))
def test_rates_round_trip(rows: int, seconds: int) -> None:
    assert _again(RowRate(Fraction(rows, seconds))) == RowRate(Fraction(rows, seconds))


@given(st.integers(0, 10_000))
def test_shares_round_trip(parts: int) -> None:
    assert _again(Share(parts / 10_000)).value == pytest.approx(parts / 10_000)


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused_as_a_value(text: str) -> None:
    for unit in (ByteSize, Count, DiskSpeed, NetworkSpeed, RowRate, Share):
        try:
            unit.parse(text)
        except ValueError as error:
            assert str(error)  # noqa: PT017


def _again(unit: UnitT) -> UnitT:
    return type(unit).parse(str(unit))
