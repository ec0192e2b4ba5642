"""Sums of floating-point numbers without rounding, so that they depend neither on order nor on what was added between.

A number is cut into digits of 32 bits on one fixed grid: digit i counts multiples of 2^(32·i). Digits are added as
integers, which is exact, so totals may be subtracted again, and a huge value leaves no trace where it is not. Only the
result is rounded, once, to the nearest float.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Digits = dict[int, Ints]
"""For each number its digits, by their place on the grid. Digits of sums may be negative and longer than 32 bits."""

BITS = 32
_MASK = (1 << BITS) - 1


def digits_of(values: Floats) -> Digits:
    """The digits of finite numbers."""
    bits = values.view(np.int64)
    exponent = (bits >> 52) & 0x7FF
    mantissa = (bits & ((1 << 52) - 1)) | ((exponent > 0).astype(np.int64) << 52)
    shift = np.maximum(exponent, 1) - 1075
    place, shift = shift >> 5, shift & 31
    low = (mantissa & _MASK) << shift
    middle = (low >> BITS) + ((mantissa >> BITS) << shift)
    negative = bits < 0
    parts = [np.where(negative, -part, part) for part in (low & _MASK, middle & _MASK, middle >> BITS)]
    digits: Digits = {}
    zero = mantissa == 0
    for here in np.unique(place[~zero]).tolist():
        chosen = place == here
        everywhere = bool(chosen.all())
        for index, part in enumerate(parts):
            _add(digits, here + index, part if everywhere else np.where(chosen, part, 0))
    return digits


def squares_of(values: Floats) -> tuple[Digits, NDArray[np.bool_]]:
    """The digits of the squares of finite numbers, and which squares are too big; those have the digits of zero."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        square = values * values
        too_big = ~np.isfinite(square)
        square[too_big] = 0.0
        # What rounding took away, by Veltkamp's and Dekker's products of halves.
        spread = np.where(too_big, 0.0, values) * 134217729.0
        high = spread - (spread - values)
        low = values - high
        missing = np.where(too_big, 0.0, ((high * high - square) + 2.0 * high * low) + low * low)
    digits = digits_of(square)
    for place, part in digits_of(missing).items():
        _add(digits, place, part)
    return digits, too_big


def rounded(digits: Digits, count: int) -> Floats:
    """The floats nearest to the numbers, `count` many."""
    if not digits:
        return np.zeros(count)
    lowest, table, negative = _magnitude(digits)
    # The highest digit that is not zero, and the two below; of the others only whether there is something.
    table = np.concatenate([np.zeros((2, count), np.int64), table])
    filled = table != 0
    top = len(table) - 1 - np.argmax(filled[::-1], axis=0)
    top = np.maximum(top, 2)
    number = np.arange(count)
    first, second, third = (table[top - back, number].astype(np.uint64) for back in range(3))
    rest = np.concatenate([np.zeros((1, count), np.int64), np.cumsum(filled, axis=0)])[top - 2, number] > 0
    width = np.frexp(first.astype(np.float64))[1]
    length = width.astype(np.uint64)
    below = third & ((np.uint64(1) << length) - np.uint64(1))
    leading = (((first << np.uint64(BITS)) | second) << (np.uint64(BITS) - length)) | (third >> length)
    leading |= ((below != 0) | rest).astype(np.uint64)
    with np.errstate(over="ignore"):
        result: Floats = np.ldexp(leading.astype(np.float64), BITS * (lowest + top - 4) + width)
    return np.where(negative, -result, result)


def squared_deviations(count: Ints, total: Digits, squares: Digits) -> Floats:
    """`count` · Σx² − (Σx)², rounded only once; `count` times the sum of squared distances from the mean."""
    size = len(count)
    result: Digits = {}
    if squares:
        lowest, table = normal(squares)
        for place, part in enumerate(table):
            _add_product(result, lowest + place, part, count, 1)
    if total:
        lowest, table, _ = _magnitude(total)
        for place, one in enumerate(table):
            for other in range(place + 1):
                times = -1 if other == place else -2
                _add_product(result, 2 * lowest + place + other, one, table[other], times)
    return rounded(result, size)


def below(digits: Digits, limit: int) -> NDArray[np.bool_]:
    """Which whole numbers are less than `limit` without their sign."""
    lowest, table, _ = _magnitude(digits)
    rest = {lowest + line: part - ((limit >> (BITS * (lowest + line))) & _MASK) for line, part in enumerate(table)}
    negative: NDArray[np.bool_] = normal(rest)[1][-1] < 0
    return negative


def _add_product(digits: Digits, place: int, one: Ints, other: Ints, times: int) -> None:
    """Adds the product of two columns of numbers below 2^32, several times."""
    if one.any() and other.any():
        product = one.astype(np.uint64) * other.astype(np.uint64)
        _add(digits, place, (product & np.uint64(_MASK)).astype(np.int64) * times)
        _add(digits, place + 1, (product >> np.uint64(BITS)).astype(np.int64) * times)


def normal(digits: Digits) -> tuple[int, NDArray[np.int64]]:
    """The lowest place, and from there one line per place with digits in [0, 2^32); the last has the sign, −1 or 0."""
    lowest, highest = min(digits), max(digits)
    count = len(next(iter(digits.values())))
    table = np.zeros((highest - lowest + 3, count), np.int64)
    carry = np.zeros(count, np.int64)
    for line, place in enumerate(range(lowest, highest + 3)):
        if place in digits:
            carry = carry + digits[place]
        if place == highest + 2:
            table[line] = carry
        else:
            table[line] = carry & _MASK
            carry = carry >> BITS
    return lowest, table


def _magnitude(digits: Digits) -> tuple[int, NDArray[np.int64], NDArray[np.bool_]]:
    """The digits of the numbers without sign, as from `normal`, and which are negative."""
    lowest, table = normal(digits)
    negative = table[-1] < 0
    if negative.any():
        lowest, table = normal({place: np.where(negative, -part, part) for place, part in digits.items()})
    return lowest, table, negative


def _add(digits: Digits, place: int, part: Ints) -> None:
    digits[place] = digits[place] + part if place in digits else part
