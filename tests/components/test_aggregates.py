"""Aggregates as people write them."""

from __future__ import annotations

import pytest

from penstock.components.shared.aggregates import FUNCTIONS, Written, check_values, parse
from penstock.errors import PenstockError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("count(*)", Written("x", "count", None)),
        ("COUNT( * )", Written("x", "count", None)),
        ("count(user)", Written("x", "count", "user")),
        ("count(distinct user)", Written("x", "count_distinct", "user")),
        ("sum(price * quantity)", Written("x", "sum", "price * quantity")),
        ("max(greatest(a, b))", Written("x", "max", "greatest(a, b)")),
        ("sum(if(kind = ')', 1, 0))", Written("x", "sum", "if(kind = ')', 1, 0)")),
        ("min(`odd ) name`)", Written("x", "min", "`odd ) name`")),
        ("percentile(ms, 0.95)", Written("x", "percentile", "ms", 0.95)),
        ("top_k(article, 3)", Written("x", "top_k", "article", 3.0)),
        ("count(*) filter (where status >= 500)", Written("x", "count", None, None, "status >= 500")),
        ("avg(ms) FILTER (WHERE ok AND (a OR b))", Written("x", "avg", "ms", None, "ok AND (a OR b)")),
    ],
)
def test_aggregates_are_taken_apart(text: str, expected: Written) -> None:
    assert parse("x", text) == expected


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("user", "not a function"),
        ("", "not a function"),
        ("sum(price", "not closed"),
        ("summ(price)", "no aggregate 'summ'"),
        ("sum(*)", "needs a column"),
        ("sum()", "takes one column"),
        ("sum(a, b)", "takes one column"),
        ("percentile(ms)", "a fraction between 0 and 1"),
        ("percentile(ms, 95)", "a fraction between 0 and 1"),
        ("top_k(article, 0)", "how many"),
        ("top_k(article, many)", "how many"),
        ("count(*) where x", "is not understood"),
        ("count(*) + 1", "is not understood"),
    ],
)
def test_what_is_wrong_is_said(text: str, part: str) -> None:
    with pytest.raises(PenstockError) as caught:
        parse("x", text)
    (problem,) = caught.value.problems
    assert problem.code == "AGGREGATE_INVALID"
    assert part in problem.message
    assert problem.at == ("values", "x")


def test_a_step_may_offer_fewer() -> None:
    problems = list(check_values({"a": "count(*)", "b": "top_k(x, 3)"}, ("count", "sum")))
    assert [problem.params["name"] for problem in problems] == ["b"]
    assert list(check_values({name: f"{name}(x)" for name in ("count", "sum", "collect")}, tuple(FUNCTIONS))) == []
