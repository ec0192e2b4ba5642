from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spec.units import Duration, Size


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("10 seconds", 10_000), ("1 second", 1000), ("5 minutes", 300_000), ("7 days", 604_800_000),
        ("1h 30m", 5_400_000), ("1.001 s", 1001),
        ("1.5 s", 1500), ("250ms", 250), ("2 Weeks", 1_209_600_000), ("0 seconds", 0), (" 1d ", 86_400_000),
    ],
)  # fmt: skip
def test_durations_are_written_as_people_do(text: str, millis: int) -> None:
    assert Duration.parse(text) == Duration(millis)


@pytest.mark.parametrize(
    "text", ["", "10", "ten seconds", "-1 second", "1 fortnight", "0.1 ms", "5 s x", 5, None, True]
)
def test_other_texts_are_no_durations(text: object) -> None:
    with pytest.raises(ValueError):
        Duration.parse(text)


@given(st.integers(min_value=0, max_value=10**15))
def test_a_duration_reads_back_as_it_was(millis: int) -> None:
    assert Duration.parse(str(Duration(millis))) == Duration(millis)


@pytest.mark.parametrize(
    ("text", "count"),
    [("64MB", 64_000_000), ("1 GiB", 2**30), ("1.5 kb", 1500), ("12", 12), (7, 7), ("0 B", 0), ("2 TiB", 2**41)],
)
def test_sizes_are_written_as_people_do(text: object, count: int) -> None:
    assert Size.parse(text) == Size(count)


@pytest.mark.parametrize("text", ["", "MB", "-1 MB", "1 XB", -1, True, None, 1.5, "0.5 B"])
def test_other_texts_are_no_sizes(text: object) -> None:
    with pytest.raises(ValueError):
        Size.parse(text)


@given(st.integers(min_value=0, max_value=2**63))
def test_a_size_reads_back_as_it_was(count: int) -> None:
    assert Size.parse(str(Size(count))) == Size(count)


@given(st.integers(min_value=0, max_value=10**9), st.sampled_from(["ms", "seconds", "min", "h", "days"]))
def test_a_duration_does_not_depend_on_the_spaces_in_it(count: int, unit: str) -> None:
    assert Duration.parse(f"{count}{unit}") == Duration.parse(f"  {count}  {unit} ")
