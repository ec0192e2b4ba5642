"""Aggregates as people write them: `count(*)`, `sum(price * quantity)`, `percentile(ms, 0.95) filter (where ok)`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.components.shared.spark_sql import expression
from penstock.errors import PenstockError, Problem, did_you_mean
from penstock.spec.fields import Config

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from penstock.kernels.aggregate import Aggregate

FUNCTIONS: dict[str, str] = {
    "count": "rows, or values that are not null",
    "sum": "sum",
    "avg": "mean",
    "min": "least value",
    "max": "greatest value",
    "stddev": "standard deviation of a sample",
    "first": "value of the earliest row",
    "last": "value of the latest row",
    "count_distinct": "different values, exactly",
    "approx_count_distinct": "different values, within about two percent",
    "percentile": "value below which a fraction lies: `percentile(ms, 0.95)`",
    "top_k": "most frequent values with their counts: `top_k(article, 3)`",
    "collect": "all values as a list, in order of time",
}
_CALL = re.compile(r"\s*([A-Za-z_]\w*)\s*\(")
_FILTER = re.compile(r"\s*filter\s*\(\s*where\s+(\S.*)\)", re.IGNORECASE | re.DOTALL)
_OPTIONS = {"percentile": ("a fraction between 0 and 1", 0.0, 1.0), "top_k": ("how many, from 1 to 1000", 1.0, 1000.0)}


@dataclass(frozen=True)
class Written:
    """One aggregate, taken apart: `argument` is a SQL expression, None for all rows."""

    name: str
    function: str
    argument: str | None
    option: float | None = None
    condition: str | None = None


COLUMN = "_value_"
"""How names of columns begin that are computed for aggregates."""
_PARTS = {"avg": {"sum", "count"}, "sum": {"sum", "count"}, "percentile": {"values"}, "top_k": {"values"}}
"""What aggregates keep of rows, where several keep the same."""


def kept_parts(values: Mapping[str, str]) -> dict[str, frozenset[tuple[str, str | None, str | None]]]:
    """What each value keeps of rows: parts of aggregates, of what, and on which condition."""
    written = {name: parse(name, text) for name, text in values.items()}
    return {
        name: frozenset((part, item.argument, item.condition) for part in _PARTS.get(item.function, {item.function}))
        for name, item in written.items()
    }


def begun_anew(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """The values that need something which was not kept of rows before."""
    known = {part for parts in kept_parts(before).values() for part in parts}
    return [name for name, parts in kept_parts(after).items() if not parts <= known]


def same_but(before: Config, after: Config, *names: str) -> bool:
    """Whether only these fields differ."""
    return all(getattr(before, name) == getattr(after, name) for name in type(after).model_fields if name not in names)


def parse(name: str, text: str, allowed: Mapping[str, str] | tuple[str, ...] = tuple(FUNCTIONS)) -> Written:
    """Takes one aggregate apart; raises AGGREGATE_INVALID with what is wrong."""
    call = _CALL.match(text)
    if call is None:
        raise _invalid(name, text, "it is not a function of something", "Write it like `sum(price)` or `count(*)`.")
    function, end = call[1].lower(), _closing(text, call.end() - 1)
    if end is None:
        raise _invalid(name, text, "a bracket is not closed", "")
    inside = text[call.end() : end].strip()
    condition = _FILTER.fullmatch(text[end + 1 :].strip()) if text[end + 1 :].strip() else None
    if text[end + 1 :].strip() and condition is None:
        advice = "Only a filter may follow: `count(*) filter (where status = 500)`."
        raise _invalid(name, text, f"'{text[end + 1 :].strip()}' is not understood", advice)
    distinct = re.match(r"distinct\s+(.*)", inside, re.IGNORECASE | re.DOTALL)
    if function == "count" and distinct is not None:
        function, inside = "count_distinct", distinct[1]
    if function not in allowed:
        raise _invalid(name, text, f"there is no aggregate '{function}' here", did_you_mean(function, allowed))
    return _with_arguments(name, text, function, inside, condition[1].strip() if condition else None)


def _with_arguments(name: str, text: str, function: str, inside: str, condition: str | None) -> Written:
    arguments = list(_split(inside))
    if arguments == ["*"]:
        if function != "count":
            raise _invalid(name, text, f"{function} needs a column", f"Write `{function}(column)`.")
        return Written(name, function, None, None, condition)
    if function in _OPTIONS:
        wanted, least, most = _OPTIONS[function]
        if len(arguments) != 2 or not _is_number(arguments[1]) or not least <= float(arguments[1]) <= most:
            raise _invalid(name, text, f"{function} takes a column and {wanted}", "")
        return Written(name, function, arguments[0], float(arguments[1]), condition)
    if len(arguments) != 1 or not arguments[0]:
        raise _invalid(name, text, f"{function} takes one column or expression", "")
    return Written(name, function, arguments[0], None, condition)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _closing(text: str, start: int) -> int | None:
    """Where the bracket that opens at `start` is closed; brackets inside quotes do not count."""
    depth, quote = 0, ""
    for index in range(start, len(text)):
        char = text[index]
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"`":
            quote = char
        elif char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
            if depth == 0:
                return index
    return None


def _split(inside: str) -> Iterator[str]:
    """Arguments at the top level."""
    depth, quote, start = 0, "", 0
    for index, char in enumerate(inside):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"`":
            quote = char
        elif char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
        elif char == "," and depth == 0:
            yield inside[start:index].strip()
            start = index + 1
    yield inside[start:].strip()


def _invalid(name: str, text: str, reason: str, advice: str) -> PenstockError:
    at = ("values", name)
    return PenstockError.of("AGGREGATE_INVALID", at=at, name=name, text=text, reason=reason, advice=advice)


def check_values(values: Mapping[str, str], allowed: tuple[str, ...]) -> Iterator[Problem]:
    """What is wrong with aggregates as written, before any column is known."""
    for name, text in values.items():
        try:
            parse(name, text, allowed)
        except PenstockError as error:
            yield from error.problems


def argument_columns(
    rows: DataFrame, node: str, written: list[Written], *, present: bool = False
) -> tuple[dict[str, Column], tuple[Aggregate, ...]]:
    """The columns a kernel needs for aggregates, equal ones once, and the aggregates over them.

    If all columns of the rows are `present` for the kernel anyway, those are not needed again.
    """
    from pyspark.sql import functions as F

    from penstock.kernels.aggregate import Aggregate

    columns: dict[str, Column] = {}
    names: dict[tuple[str | None, str | None], str] = {}
    aggregates = []
    for item in written:
        if item.argument is None and item.condition is None:
            aggregates.append(Aggregate(item.name, item.function))
            continue
        source = (item.argument, item.condition)
        if present and item.condition is None and item.argument in rows.columns:
            names[source] = str(item.argument)
        if source not in names:
            names[source] = _column_name(*source)
            value = F.lit(1) if item.argument is None else expression(item.argument)
            column = value if item.condition is None else F.when(expression(item.condition), value)
            _refuse_aggregates(rows, node, item, column)
            columns[names[source]] = column.alias(names[source])
        aggregates.append(Aggregate(item.name, item.function, names[source], item.option))
    return columns, tuple(aggregates)


def _column_name(argument: str | None, condition: str | None) -> str:
    """The same for the same values, whichever other aggregates there are: state is kept under it."""
    digest = hashlib.sha256(f"{argument}\0{condition}".encode()).hexdigest()
    return f"{COLUMN}{digest[:10]}"


def argument_labels(written: list[Written]) -> dict[str, str | None]:
    """What columns that are computed for aggregates are called by people: as they are written."""
    found: dict[str, str | None] = {}
    for item in written:
        text = "*" if item.argument is None else item.argument
        name = _column_name(item.argument, item.condition)
        for form in ("{}", "{} is there"):
            whole = text if item.condition is None else f"{text} where {item.condition}"
            found[form.format(name)] = form.format(whole)
    return found


def _refuse_aggregates(rows: DataFrame, node: str, item: Written, column: Column) -> None:
    """Raises if an argument is itself an aggregate or a window function; Spark would change the number of rows."""
    from pyspark.errors import AnalysisException

    try:
        plan = rows.select(column.alias("_value"))._jdf.queryExecution().analyzed()
    except AnalysisException as error:
        raise PenstockError.of(
            "AGGREGATE_UNRESOLVED",
            at=("values", item.name),
            node=node,
            name=item.name,
            reason=_told(error, rows),
            columns=", ".join(rows.columns),
        ) from None
    if plan.nodeName() != "Project":
        raise _invalid(item.name, item.argument or "*", "its argument is itself an aggregate", "Use another step.")


def _told(error: Exception, rows: DataFrame) -> str:
    condition = getattr(error, "getCondition", lambda: "")() or ""
    parameters: dict[str, str] = getattr(error, "getMessageParameters", dict)() or {}
    if condition.startswith("UNRESOLVED_COLUMN"):
        name = str(parameters.get("objectName", "")).strip("`")
        return f"there is no column '{name}'. {did_you_mean(name, rows.columns)}"
    return str(error).splitlines()[0]
