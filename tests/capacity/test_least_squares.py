"""Weighted least squares, compared with numpy's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.capacity.least_squares import least_squares


@settings(max_examples=100)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(8, 60))
def test_coefficients_and_covariance_are_those_of_numpy(seed: int, terms: int, count: int) -> None:
    random = np.random.default_rng(seed)
    rows = random.uniform(0.1, 1.0, (count, terms)) * 10.0 ** random.integers(0, 7, terms)
    values = random.uniform(0.1, 5.0, count)
    weights = random.uniform(0.1, 3.0, count)

    found = least_squares(rows.tolist(), values.tolist(), weights.tolist())

    roots = np.sqrt(weights)
    scales = np.linalg.norm(rows * roots[:, None], axis=0)
    scaled = rows * roots[:, None] / scales
    expected, *_ = np.linalg.lstsq(scaled, values * roots, rcond=None)
    covariance = np.linalg.inv(scaled.T @ scaled) / np.outer(scales, scales)
    assert found is not None
    assert np.array(found.coefficients) * scales == pytest.approx(expected, rel=1e-6, abs=1e-9)
    relative = np.array(found.covariance) * np.outer(scales, scales)
    assert relative == pytest.approx(covariance * np.outer(scales, scales), rel=1e-6, abs=1e-9)
    assert found.residual_sum == pytest.approx(float(np.sum((values * roots - scaled @ expected) ** 2)), abs=1e-9)


def test_columns_that_depend_on_one_another_have_no_solution() -> None:
    rows = [[1.0, float(n), 2.0 * n + 3] for n in range(10)]

    assert least_squares(rows, [1.0] * 10, [1.0] * 10) is None


def test_fewer_rows_than_terms_have_no_solution() -> None:
    assert least_squares([[1.0, 2.0]], [1.0], [1.0]) is None


def test_a_column_of_zeros_has_no_solution() -> None:
    assert least_squares([[1.0, 0.0]] * 5, [1.0] * 5, [1.0] * 5) is None
