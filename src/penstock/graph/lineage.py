"""From which input columns each column of a step is computed, read from its SQL.

Only where values come from counts: a column that merely filters, joins or groups rows is not named. What cannot be
told, such as the columns a Python function makes, is left out rather than guessed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import Scope, build_scope

from penstock.components.steps.dedupe import Dedupe
from penstock.components.steps.filter import Filter
from penstock.components.steps.select import Select
from penstock.components.steps.sql import Sql
from penstock.components.steps.union import Union
from penstock.graph.nodes import Graph, Node
from penstock.spec.schema import quote

Columns = Mapping[str, str]
StepLineage = dict[str, tuple[str, ...]]
_Output = tuple[str, frozenset[str] | None]
"""Name and inputs of one output column; None where the inputs cannot be told."""
_TIME_WINDOWS = ("window", "session_window")
"""Functions that, when grouped by, give a column of their own name."""
_TABLE_STATEMENT = re.compile(r"^\s*TABLE\s", re.IGNORECASE)


def lineage(graph: Graph, columns: Mapping[str, Columns]) -> dict[str, StepLineage]:
    """For each step its output columns with the `input.column`s they come from, of its direct inputs, sorted."""
    found = {}
    for node in graph.of_kind("step"):
        inputs = {name: columns[name] for name in node.inputs if name in columns}
        traced = _step(node, inputs, columns.get(node.name)) if len(inputs) == len(node.inputs) else {}
        if traced is not None:
            found[node.name] = traced
    return found


def origins(lineage: Mapping[str, Mapping[str, tuple[str, ...]]], node: str, column: str) -> tuple[str, ...]:
    """The `source.column`s a column comes from, sorted; where the trail is lost, the column at which it is lost."""
    ends: set[str] = set()
    seen: set[str] = set()
    waiting = [f"{node}.{column}"]
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        name, _, part = current.partition(".")
        before = lineage.get(name, {}).get(part)
        if before is None:
            ends.add(current)
        else:
            waiting.extend(before)
    return tuple(sorted(ends))


def _step(node: Node, inputs: Mapping[str, Columns], columns: Columns | None) -> StepLineage | None:
    """None for components whose columns cannot be told from their configuration."""
    component = node.component
    if isinstance(component, Filter | Dedupe | Union):
        return _same_names(inputs, columns)
    if isinstance(component, Select):
        return _query(_as_query(component, node.inputs[0]), inputs, columns)
    if isinstance(component, Sql):
        return _query(component.query, inputs, columns)
    return None


def _same_names(inputs: Mapping[str, Columns], columns: Columns | None) -> StepLineage:
    of_inputs = [(table, name) for table, known in inputs.items() for name in known]
    names = list(columns) if columns is not None else list(dict.fromkeys(name for _, name in of_inputs))
    return {
        name: tuple(sorted(f"{table}.{own}" for table, own in of_inputs if own.lower() == name.lower()))
        for name in names
    }


def _as_query(component: Select, table: str) -> str:
    if isinstance(component.columns, dict):
        items = [f"({text}) AS {quote(name)}" for name, text in component.columns.items()]
    else:
        items = [quote(name) for name in component.columns]
    return f"SELECT {', '.join(items)} FROM {quote(table)}"


def _query(text: str, inputs: Mapping[str, Columns], columns: Columns | None) -> StepLineage:
    """Empty for a query that cannot be read: Spark knows more SQL than the parser used here."""
    try:
        with _without_warnings():
            outputs = _Trace(inputs).outputs(_scope(text, inputs))
    except (SqlglotError, LookupError, ValueError, AttributeError, TypeError, RecursionError):
        return {}
    return {name: tuple(sorted(found)) for name, found in _named(outputs, columns) if found is not None}


def _named(outputs: Sequence[_Output], columns: Columns | None) -> Iterator[_Output]:
    """Outputs under the names Spark gives them: by name, or by position where Spark makes up names of its own."""
    if columns is None:
        yield from outputs
        return
    by_name = {name.lower(): found for name, found in outputs}
    if len(columns) == len(outputs) and by_name.keys() != {name.lower() for name in columns}:
        yield from zip(columns, (found for _, found in outputs), strict=True)
    else:
        yield from ((name, by_name.get(name.lower())) for name in columns)


def _scope(text: str, inputs: Mapping[str, Columns]) -> Scope:
    """The query with every `*` written out and every column under its table."""
    dialect = Dialect.get_or_raise("spark")
    text = _TABLE_STATEMENT.sub("SELECT * FROM ", text)
    (parsed,) = dialect.parser().parse(_with_window_functions(dialect.tokenize(text)), text)
    if not isinstance(parsed, exp.Query):
        raise ValueError("not a query")
    schema: dict[str, object] = {
        table: {name: _type(kind) for name, kind in columns.items()} for table, columns in inputs.items()
    }
    qualified = qualify(
        parsed, schema=schema, dialect="spark", validate_qualify_columns=False, quote_identifiers=False
    )  # fmt: skip
    scope = build_scope(qualified)
    if scope is None:
        raise ValueError("not a query")
    return scope


def _with_window_functions(tokens: list[Token]) -> list[Token]:
    """Tokens in which `window` is a plain name unless it starts a clause `WINDOW name AS (...)`.

    The parser takes the word for the start of that clause wherever it follows `GROUP BY`.
    """
    for index, token in enumerate(tokens):
        if token.token_type == TokenType.WINDOW:
            following = [item.text.upper() for item in tokens[index + 2 : index + 4]]
            if following != ["AS", "("]:
                token.token_type = TokenType.VAR
    return tokens


def _type(kind: str) -> exp.DataType:
    try:
        return exp.DataType.build(kind, dialect="spark")
    except SqlglotError:
        return exp.DataType.build("string", dialect="spark")


class _Unclear(Exception):
    """Where a column comes from cannot be told."""


class _Trace:
    """Follows columns through the scopes of one query to the inputs."""

    def __init__(self, inputs: Mapping[str, Columns]) -> None:
        self.inputs = {
            table.lower(): {name.lower(): f"{table}.{name}" for name in columns} for table, columns in inputs.items()
        }
        self.traced: dict[int, list[_Output]] = {}

    def outputs(self, scope: Scope) -> list[_Output]:
        if id(scope) not in self.traced:
            self.traced[id(scope)] = self._outputs(scope)
        return self.traced[id(scope)]

    def _outputs(self, scope: Scope) -> list[_Output]:
        expression = scope.expression
        if isinstance(expression, exp.SetOperation):
            return self._set_operation(scope)
        if isinstance(expression, exp.Values):
            return [(name, frozenset()) for name in expression.alias_column_names]
        if not isinstance(expression, exp.Select):
            raise ValueError(f"no outputs in {type(expression).__name__}")
        found: list[_Output] = []
        for item in expression.selects:
            names = [str(name) for name in item.aliases] if isinstance(item, exp.Aliases) else [item.alias_or_name]
            sources = self._told(scope, item)
            found.extend((name, sources) for name in names)
        return found

    def _set_operation(self, scope: Scope) -> list[_Output]:
        left, right = (self.outputs(side) for side in scope.set_operation_scopes)
        if isinstance(scope.expression, exp.Except):
            return left
        return [
            (name, None if mine is None or theirs is None else mine | theirs)
            for (name, mine), (_, theirs) in zip(left, right, strict=True)
        ]

    def _told(self, scope: Scope, expression: exp.Expr) -> frozenset[str] | None:
        try:
            return self._expression(scope, expression)
        except _Unclear:
            return None

    def _expression(self, scope: Scope, expression: exp.Expr) -> frozenset[str]:
        found: frozenset[str] = frozenset()
        for part in expression.walk(prune=lambda item: isinstance(item, exp.Query | exp.Column)):
            if isinstance(part, exp.Column):
                found |= self._column(scope, part)
            elif isinstance(part, exp.Query):
                found |= self._subquery(scope, part)
            elif isinstance(part, exp.Star) and not isinstance(part.parent, exp.Count):
                raise _Unclear
        return found

    def _subquery(self, scope: Scope, query: exp.Query) -> frozenset[str]:
        inner = next((item for item in scope.subquery_scopes if item.expression is query.unnest()), None)
        if inner is None:
            raise _Unclear
        return frozenset().union(*(self._clear(found) for _, found in self.outputs(inner)))

    def _column(self, scope: Scope, column: exp.Column) -> frozenset[str]:
        source = scope.sources.get(column.table) if column.table else None
        if isinstance(source, Scope):
            return self._of_scope(scope, source, column.name)
        if isinstance(source, exp.Table):
            known = self.inputs.get(source.name.lower(), {}) if isinstance(source.this, exp.Identifier) else {}
            if column.name.lower() not in known:
                raise _Unclear
            return frozenset({known[column.name.lower()]})
        return self._time_window(scope, (column.table or column.name).lower())

    def _of_scope(self, scope: Scope, source: Scope, name: str) -> frozenset[str]:
        if isinstance(source.expression, exp.Lateral):
            if isinstance(source.expression.this, exp.Query):
                raise _Unclear
            return self._expression(scope, source.expression.this)
        for output, found in self.outputs(source):
            if output.lower() == name.lower():
                return self._clear(found)
        raise _Unclear

    def _time_window(self, scope: Scope, name: str) -> frozenset[str]:
        """`window` and `window.start` come from what `GROUP BY window(...)` is given."""
        group = scope.expression.args.get("group")
        if name not in _TIME_WINDOWS or group is None:
            raise _Unclear
        calls = [call for call in group.find_all(exp.Func) if _function(call) == name]
        if not calls:
            raise _Unclear
        return frozenset().union(*(self._expression(scope, call) for call in calls))

    @staticmethod
    def _clear(found: frozenset[str] | None) -> frozenset[str]:
        if found is None:
            raise _Unclear
        return found


def _function(call: exp.Func) -> str:
    return (call.name if isinstance(call, exp.Anonymous) else call.sql_name()).lower()


@contextmanager
def _without_warnings() -> Iterator[None]:
    """The parser logs what it does not know; here that is no one's concern."""
    logger = logging.getLogger("sqlglot")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
