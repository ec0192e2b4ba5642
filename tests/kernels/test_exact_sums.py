"""Sums of floats are those of the numbers themselves, rounded once."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.exact_sums import Digits, below, digits_of, rounded, squared_deviations, squares_of

FLOATS = st.lists(
    st.one_of(
        st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300),
        st.sampled_from([0.1, 0.2, -0.1, 1e18, 1e-3, -0.0, 5e-324, 1.0, 1.0 + 2**-52, 2.0**-53]),
    ),
    min_size=1,
    max_size=8,
)
MODERATE = st.lists(
    st.one_of(st.floats(-1e100, 1e100).filter(lambda x: x == 0 or abs(x) > 1e-100), st.sampled_from([0.1, 0.3, 1e18])),
    min_size=1,
    max_size=8,
)


def total(digits: Digits) -> Digits:
    return {place: part.sum(keepdims=True) for place, part in digits.items()}


@given(FLOATS)
@settings(max_examples=500, deadline=None)
def test_sums_are_rounded_once(values: list[float]) -> None:
    digits = digits_of(np.array(values))
    assert rounded(digits, len(values)).tolist() == values
    assert rounded(total(digits), 1).tolist() == [math.fsum(values)]


@given(MODERATE)
@settings(max_examples=500, deadline=None)
def test_squared_deviations_are_rounded_once(values: list[float]) -> None:
    array = np.array(values)
    squares, too_big = squares_of(array)
    assert not too_big.any()
    found = squared_deviations(np.array([len(values)]), total(digits_of(array)), total(squares))
    exact = [Fraction(value) for value in values]
    assert found.tolist() == [float(len(exact) * sum(x * x for x in exact) - sum(exact) ** 2)]


def test_halves_are_rounded_to_even_and_a_trace_below_decides() -> None:
    half = 2.0**-53
    assert math.fsum([1.0, half]) == 1.0
    assert rounded(total(digits_of(np.array([1.0, half]))), 1)[0] == 1.0
    assert rounded(total(digits_of(np.array([1.0, half, 5e-324]))), 1)[0] == 1.0 + 2 * half


def test_squares_may_be_too_big() -> None:
    squares, too_big = squares_of(np.array([1e200, 3.0, -1e154]))
    assert too_big.tolist() == [True, False, False]
    assert rounded(squares, 3).tolist() == [0.0, 9.0, 1e308]


def test_the_size_of_whole_numbers_is_compared_exactly() -> None:
    values = [10**38 - 1, 10**38, -(10**38), 1 - 10**38, 0]
    digits = {
        place: np.array([(abs(value) >> (32 * place) & 0xFFFFFFFF) * (-1 if value < 0 else 1) for value in values])
        for place in range(5)
    }
    assert below(digits, 10**38).tolist() == [True, False, False, True, True]


def test_nothing_adds_up_to_zero() -> None:
    assert rounded({}, 2).tolist() == [0.0, 0.0]
    assert rounded(digits_of(np.zeros(2)), 2).tolist() == [0.0, 0.0]
    assert squared_deviations(np.array([3]), {}, {}).tolist() == [0.0]
