"""Weighted least squares with a standard error for each coefficient, for a handful of terms.

Columns are scaled before they are made orthogonal: a batch has one fixed cost and millions of rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_SINGULAR = 1e-8
"""A column of which so little is left after the others were taken out of it says nothing of its own."""


@dataclass(frozen=True)
class Solution:
    coefficients: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]
    """Of the coefficients, for errors of variance 1 at weight 1."""
    residual_sum: float
    """Sum of the weighted squares that are left."""


def least_squares(
    rows: Sequence[Sequence[float]], values: Sequence[float], weights: Sequence[float]
) -> Solution | None:
    """The coefficients with the smallest weighted sum of squares; None if the columns depend on one another."""
    count = len(rows[0])
    if len(rows) < count:
        return None
    roots = [math.sqrt(weight) for weight in weights]
    columns = [[row[place] * root for row, root in zip(rows, roots, strict=True)] for place in range(count)]
    scales = [math.sqrt(sum(value * value for value in column)) for column in columns]
    if any(scale == 0 for scale in scales):
        return None
    columns = [[value / scale for value in column] for column, scale in zip(columns, scales, strict=True)]
    left = [value * root for value, root in zip(values, roots, strict=True)]
    upper = [[0.0] * count for _ in range(count)]
    projected = [0.0] * count
    for place in range(count):
        column = columns[place]
        length = math.sqrt(_dot(column, column))
        if length < _SINGULAR:
            return None
        upper[place][place] = length
        column[:] = [value / length for value in column]
        for later in range(place + 1, count):
            upper[place][later] = share = _dot(column, columns[later])
            _subtract(columns[later], column, share)
        projected[place] = share = _dot(column, left)
        _subtract(left, column, share)
    inverse = _inverse(upper)
    found = [_dot(inverse[place], projected) / scales[place] for place in range(count)]
    covariance = tuple(
        tuple(_dot(inverse[one], inverse[other]) / (scales[one] * scales[other]) for other in range(count))
        for one in range(count)
    )
    return Solution(tuple(found), covariance, _dot(left, left))


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return math.fsum(first * second for first, second in zip(one, other, strict=True))


def _subtract(column: list[float], direction: Sequence[float], share: float) -> None:
    column[:] = [value - share * part for value, part in zip(column, direction, strict=True)]


def _inverse(upper: Sequence[Sequence[float]]) -> list[list[float]]:
    """Of a triangular matrix, by going backwards through its rows."""
    count = len(upper)
    inverse = [[0.0] * count for _ in range(count)]
    for column in range(count):
        inverse[column][column] = 1 / upper[column][column]
        for row in range(column - 1, -1, -1):
            rest = sum(upper[row][inner] * inverse[inner][column] for inner in range(row + 1, column + 1))
            inverse[row][column] = -rest / upper[row][row]
    return inverse
