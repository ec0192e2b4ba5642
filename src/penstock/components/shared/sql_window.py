"""A windowed GROUP BY of a SQL query, taken apart for the window kernel. Knows SQL, and nothing of Spark.

The query comes out in two forms. *Restated*, it is the same query with every column under the name of its table, every
operation in brackets and names of its own for aliases; Spark is asked whether that means the same as what was written,
which proves that it was understood. *Taken apart*, it is what the kernel needs: a condition, keys and aggregates over
the input, and columns and a condition over the kernel's result. Whatever is not clearly understood is left to Spark.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel, SqlglotError

from penstock.components.shared.aggregates import Written

WINDOW = "_window"
"""The column of the kernel's result that stands for `window`: a struct of `start` and `end`."""
KEY, CALL = "_key_", "_call_"
"""How the columns of keys and of aggregates begin in the kernel's result."""
_ALIAS = "_column_"

_DIALECT = "spark"
_INPUT = "\0"
"""Stands in for the name of the table with columns of the input."""
_CLAUSES = {"expressions", "from", "from_", "where", "group", "having"}
_REFUSED: tuple[type[exp.Expr], ...] = (
    exp.Query,
    exp.Window,
    exp.Lambda,
    exp.Placeholder,
    exp.Parameter,
    exp.WithinGroup,
    exp.Tuple,
    exp.Rollup,
    exp.Cube,
    exp.GroupingSets,
)
_LEAVES: tuple[type[exp.Expr], ...] = (
    exp.Identifier,
    exp.Var,
    exp.DataType,
    exp.Literal,
    exp.Null,
    exp.Boolean,
    exp.Interval,
)
_CONSTANT = (exp.Literal, exp.Null, exp.Boolean)
_OPERATION = (exp.Binary, exp.Unary, exp.Between, exp.In)
_NO_OPERATION = (exp.Dot, exp.Paren, exp.PropertyEQ)
"""What counts as an operation for the parser, and needs no brackets."""
_FUNCTIONS = {
    "count": "count",
    "sum": "sum",
    "avg": "avg",
    "mean": "avg",
    "min": "min",
    "max": "max",
    "stddev": "stddev",
    "stddev_samp": "stddev",
    "std": "stddev",
    "approx_count_distinct": "approx_count_distinct",
    "percentile": "percentile",
}
"""Aggregates by the names that Spark has for them."""
_WITH_SYNTAX = ("CAST", "TRY_CAST", "EXTRACT", "TRIM")
_TIME_WINDOWS = ("window", "session_window", "window_time")
_NAMING = ("struct",)
"""Functions whose result is named after the columns they are given."""
_MICROS = {
    "microsecond": 1,
    "millisecond": 1000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_PART = re.compile(r"(\d+)(\.\d{1,6})?\s+(" + "|".join(_MICROS) + r")s?(?:\s+|$)", re.IGNORECASE)


@dataclass(frozen=True)
class Call:
    """One aggregate of the query."""

    written: Written
    native: str
    """The call itself, over the input: Spark knows the type of its result."""


@dataclass(frozen=True)
class WindowQuery:
    """A query that the window kernel can compute. Texts are SQL."""

    restated: str
    size: int
    """In microseconds."""
    slide: int | None
    where: str | None
    """Over the input, as are keys and aggregates."""
    keys: tuple[str, ...]
    calls: tuple[Call, ...]
    having: str | None
    """Over the result: keys under `KEY` and their number, aggregates under `CALL` and theirs, and `WINDOW`."""
    columns: tuple[str, ...]
    """The columns of the query, over the result; their names are Spark's affair."""
    words: tuple[str, ...]
    """What state is kept by, for people."""

    @property
    def event_time(self) -> tuple[int, int] | None:
        """Which column says when a row happened, and what must be added to it in microseconds."""
        for text, shift in ((f"`{WINDOW}`", 0), (f"`{WINDOW}`.`end`", -1)):
            if text in self.columns:
                return self.columns.index(text), shift
        return None


def understand(
    query: str, table: str, columns: Sequence[str], event_time: str, *, struct: bool = False
) -> WindowQuery | None:
    """Takes a query over one table apart; None if it is not one that the kernel computes.

    `struct` says that the event time is itself a window, which `window_time` makes a time.
    """
    if "window" not in query.lower():
        return None
    try:
        select = _parsed(query)
        return _Reading(select, _Names(select, table, columns), event_time, struct).query()
    except (_Refused, SqlglotError):
        return None


def micros(text: str) -> int | None:
    """The microseconds of a duration as Spark writes it: `1 hour 30 minutes`; None if it has no fixed length."""
    text = re.sub(r"^interval\s+", "", text.strip(), flags=re.IGNORECASE)
    position, total = 0, 0
    while position < len(text):
        part = _PART.match(text, position)
        if part is None or (part[2] and part[3].lower() != "second"):
            return None
        unit = _MICROS[part[3].lower()]
        total += int(part[1]) * unit + (int(part[2][1:].ljust(6, "0")) if part[2] else 0)
        position = part.end()
    return total or None


class _Refused(Exception):
    """The query is not one that the kernel computes, or not clearly one."""


# --- reading the text --------------------------------------------------------------------------------------


class _Parser(Spark.Parser):  # type: ignore[misc, valid-type]
    """Knows the syntax of Spark's SQL, and leaves functions as they are written."""

    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        name: parse for name, parse in Spark.Parser.FUNCTION_PARSERS.items() if name in _WITH_SYNTAX
    }


def _parsed(query: str) -> exp.Select:
    dialect = Spark()
    tokens = dialect.tokenize(query)
    if not tokens or tokens[0].token_type != TokenType.SELECT:
        raise _Refused
    parsed = _Parser(ErrorLevel.IMMEDIATE, dialect=dialect).parse(_with_window_functions(tokens), query)
    if len(parsed) != 1 or not isinstance(parsed[0], exp.Select):
        raise _Refused
    select = parsed[0]
    if any(value for name, value in select.args.items() if name not in _CLAUSES):
        raise _Refused
    for node in select.walk():
        wrong = isinstance(node, _REFUSED) and node is not select
        if wrong or (isinstance(node, exp.Star) and _function(node.parent) != "count"):
            raise _Refused
    return select


def _with_window_functions(tokens: list[Token]) -> list[Token]:
    """Tokens in which `window` is a plain name: the parser would take it for the start of a clause of that name."""
    for index, token in enumerate(tokens):
        if token.token_type == TokenType.WINDOW:
            if [item.text.upper() for item in tokens[index + 2 : index + 4]] == ["AS", "("]:
                raise _Refused
            token.token_type = TokenType.VAR
    return tokens


class _Names:
    """What names in the query stand for: columns of the input, or something that the query itself defines."""

    def __init__(self, select: exp.Select, table: str, columns: Sequence[str]) -> None:
        source = select.args.get("from_") or select.args.get("from")
        found = source.this if source is not None else None
        if not isinstance(found, exp.Table) or any(v for k, v in found.args.items() if k not in ("this", "alias")):
            raise _Refused
        alias = found.args.get("alias")
        if found.name.lower() != table.lower() or (alias is not None and alias.args.get("columns")):
            raise _Refused
        self.table = table
        self.columns = {name.lower(): name for name in columns}
        self.qualifier = (alias.name if alias is not None else table).lower()
        if len(self.columns) < len(columns) or not self.qualifier or not isinstance(found.this, exp.Identifier):
            raise _Refused

    def resolved(self, expression: exp.Expr, first: Container[str] = ()) -> exp.Expr:
        """The expression in one form: columns of the input marked, and every operation in brackets.

        Names in `first` stand for something else than columns, except in aggregates.
        """
        root = exp.Paren(this=expression.copy())
        for node in list(root.find_all(exp.Not)):
            # Spark reads `IS NOT NULL` as one operation.
            if isinstance(node.this, exp.Is) and isinstance(node.this.expression, exp.Null):
                test = node.this
                node.replace(exp.Is(this=test.this, expression=exp.Not(this=test.expression)))
        for node in list(root.this.find_all(exp.Paren)):
            node.replace(node.this)
        for call in root.find_all(exp.Anonymous):
            call.set("this", _function(call))
        for node in list(root.this.find_all(exp.Column)):
            node.replace(_free(node) if _first_name(node) in first and not _aggregated(node) else self._column(node))
        for node in list(root.this.find_all(*_OPERATION)):
            if _needs_brackets(node):
                bracket = exp.Paren()
                node.replace(bracket)
                bracket.set("this", node)
        found: exp.Expr = root.this
        return found.pop()

    def _column(self, column: exp.Column) -> exp.Expr:
        names = [part.name for part in column.parts]
        first = names[0].lower()
        if len(names) > 1 and first == self.qualifier:
            if first in self.columns or names[1].lower() not in self.columns:
                raise _Refused
            names = names[1:]
            first = names[0].lower()
        if first in self.columns:
            known = exp.Identifier(this=self.columns[first], quoted=True)
            return _with_fields(exp.Column(this=known, table=exp.Identifier(this=_INPUT, quoted=True)), names[1:])
        return _free(column)


def _free(column: exp.Column) -> exp.Expr:
    """A name that the query itself defines."""
    return _with_fields(_column(_first_name(column)), [part.name for part in column.parts[1:]])


def _first_name(column: exp.Column) -> str:
    return str(column.parts[0].name).lower()


def _aggregated(node: exp.Expr) -> bool:
    above = node.parent
    while above is not None:
        if isinstance(above, exp.Filter) or _call(above) is not None:
            return True
        above = above.parent
    return False


def _needs_brackets(node: exp.Expr) -> bool:
    parent = node.parent
    if isinstance(node, exp.Connector):
        # Spark builds the tree of a long chain itself.
        return not (parent is not None and type(parent) is type(node) and parent.this is node)
    if isinstance(node, _NO_OPERATION) or isinstance(parent, exp.Escape):
        return False
    return not (isinstance(node, exp.Not) and isinstance(parent, exp.Is))


def _with_fields(base: exp.Expr, names: Sequence[str]) -> exp.Expr:
    for name in names:
        base = exp.Dot(this=base, expression=exp.Identifier(this=name.lower(), quoted=True))
    return base


def _text(expression: exp.Expr, table: str | None = None, renamed: Mapping[str, str] | None = None) -> str:
    """An expression as SQL; columns of the input under the name of a table, or under their own alone."""
    written = expression.copy()
    for column in list(written.find_all(exp.Column)):
        if column.table == _INPUT:
            column.set("table", None if table is None else exp.Identifier(this=table, quoted=True))
        elif renamed is not None and column.name in renamed:
            column.set("this", exp.Identifier(this=renamed[column.name], quoted=True))
    return written.sql(
        _DIALECT, identify=True, comments=False, normalize_functions=False, unsupported_level=ErrorLevel.RAISE
    )


def _is_input(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column) and node.table == _INPUT


def _fields_of(node: exp.Expr) -> tuple[exp.Expr, list[str]]:
    """What stands before the first dot, and the names behind."""
    names: list[str] = []
    while isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        names.insert(0, node.expression.name)
        node = node.this
    return node, names


def _function(node: exp.Expr | None) -> str:
    return str(node.this).lower() if isinstance(node, exp.Anonymous) else ""


def _within(node: exp.Expr) -> exp.Expr:
    """Without brackets around the whole."""
    return node.this if isinstance(node, exp.Paren) else node


# --- taking apart ------------------------------------------------------------------------------------------


@dataclass
class _Reading:
    """One query, read clause by clause."""

    select: exp.Select
    names: _Names
    event_time: str
    struct: bool
    window: str = ""
    """The text of the one call of `window`."""
    keys: dict[str, str] = field(default_factory=dict)
    """Names of the keys by their texts."""
    calls: dict[str, Call] = field(default_factory=dict)
    """Aggregates by their texts."""
    aliases: _Aliases = field(init=False)

    def query(self) -> WindowQuery:
        items = [_Item(place, item, self.names) for place, item in enumerate(self.select.expressions)]
        self.aliases = _Aliases(items)
        grouped = list(self._grouped(items))
        size, slide = self._lengths(grouped)
        where, having = self._clause("where"), self._clause("having", self.aliases)
        if where is not None:
            self._refuse_defined(where)
        columns = tuple(_text(self._over_result(item.expression, item.place)) for item in items)
        condition = None if having is None else _text(self._over_result(having, None))
        return WindowQuery(
            self._restated(items, where, grouped, having),
            size,
            slide,
            None if where is None else _text(where),
            tuple(self.keys),
            tuple(self.calls.values()),
            condition,
            columns,
            (*(text.replace("`", "") for text in self.keys), "window"),
        )

    def _clause(self, name: str, first: Container[str] = ()) -> exp.Expr | None:
        clause = self.select.args.get(name)
        return None if clause is None else self.names.resolved(clause.this, first)

    def _restated(
        self, items: list[_Item], where: exp.Expr | None, grouped: list[exp.Expr], having: exp.Expr | None
    ) -> str:
        renamed = {item.alias: f"{_ALIAS}{item.place}" for item in items if item.alias}

        def text(expression: exp.Expr) -> str:
            return _text(expression, self.names.table, renamed)

        columns = [text(item.expression) + (f" AS `{renamed[item.alias]}`" if item.alias else "") for item in items]
        parts = [
            f"SELECT {', '.join(columns)} FROM `{self.names.table}`",
            "" if where is None else f" WHERE {text(where)}",
            f" GROUP BY {', '.join(text(expression) for expression in grouped)}",
            "" if having is None else f" HAVING {text(having)}",
        ]
        return "".join(parts)

    # --- what is grouped by ---

    def _grouped(self, items: list[_Item]) -> Iterator[exp.Expr]:
        """The grouping expressions, written out where the query refers to the select list."""
        group = self.select.args.get("group")
        if group is None or any(value for name, value in group.args.items() if name not in ("expressions", "all")):
            raise _Refused
        if group.args.get("all"):
            yield from (item.expression for item in items if not _has_aggregate(item.expression))
            return
        for expression in group.expressions:
            resolved = self.names.resolved(expression)
            if isinstance(resolved, exp.Literal) and not resolved.is_string:
                number = int(resolved.name) if resolved.name.isdigit() else 0
                if not 1 <= number <= len(items):
                    raise _Refused
                resolved = items[number - 1].expression
            elif isinstance(resolved, exp.Column) and not _is_input(resolved):
                resolved = self.aliases.defined(resolved.name)
            yield resolved

    def _lengths(self, grouped: list[exp.Expr]) -> tuple[int, int | None]:
        """Size and slide of the one window among the grouping expressions; notes the others as keys."""
        windows = {_text(item): item for item in grouped if _function(item) == "window"}
        if len(windows) != 1:
            raise _Refused
        ((self.window, call),) = windows.items()
        for item in grouped:
            text = _text(item)
            if text != self.window and text not in self.keys:
                if isinstance(_within(item), _CONSTANT):
                    raise _Refused
                self._refuse_defined(item)
                self.keys[text] = f"{KEY}{len(self.keys)}"
        return self._window_lengths(call.expressions)

    def _window_lengths(self, arguments: list[exp.Expr]) -> tuple[int, int | None]:
        if not 2 <= len(arguments) <= 3 or not self._is_event_time(arguments[0]):
            raise _Refused
        lengths = [micros(item.name) if isinstance(item, exp.Literal) and item.is_string else None
                   for item in arguments[1:]]  # fmt: skip
        size, slide = lengths[0], lengths[-1]
        if size is None or slide is None or slide > size:
            raise _Refused
        return size, None if slide == size else slide

    def _is_event_time(self, node: exp.Expr) -> bool:
        if self.struct and _function(node) == "window_time" and len(node.expressions) == 1:
            node = node.expressions[0]
        return _is_input(node) and node.name == self.event_time

    # --- what is made of the result ---

    def _over_result(self, node: exp.Expr, place: int | None) -> exp.Expr:
        """The expression with columns of the result for the window, keys and aggregates.

        `place` is its number in the select list: an alias is known to those that come later, and to HAVING.
        """
        if isinstance(node, _LEAVES):
            return node.copy()
        text = _text(node)
        if text == self.window:
            return _column(WINDOW)
        if text in self.keys:
            return _column(self.keys[text])
        call = _call(node)
        if call is not None:
            return _column(self._noted(text, node, call))
        base, fields = _fields_of(node)
        if isinstance(base, exp.Column):
            return self._defined(base, fields, place)
        if isinstance(node, exp.Filter | exp.Distinct | exp.Star) or _function(node) in (*_TIME_WINDOWS, *_NAMING):
            raise _Refused
        copy = node.copy()
        for child, original in zip(list(copy.iter_expressions()), node.iter_expressions(), strict=True):
            child.replace(self._over_result(original, place))
        return copy

    def _defined(self, column: exp.Column, fields: list[str], place: int | None) -> exp.Expr:
        """What the query itself calls by a name: the window, or an alias of the select list."""
        if _is_input(column):
            raise _Refused
        if column.name in self.aliases:
            return _with_fields(self._over_result(self.aliases.defined(column.name, place), place), fields)
        if column.name == "window" and fields in ([], ["start"], ["end"]):
            return _with_fields(_column(WINDOW), fields)
        raise _Refused

    def _noted(self, text: str, node: exp.Expr, call: _Parts) -> str:
        """The column of an aggregate; equal ones are computed once."""
        if text not in self.calls:
            for part in (call.argument, call.condition):
                if part is not None:
                    self._refuse_defined(part)
            name = f"{CALL}{len(self.calls)}"
            argument = None if call.argument is None else _text(call.argument)
            condition = None if call.condition is None else _text(call.condition)
            self.calls[text] = Call(Written(name, call.function, argument, call.option, condition), text)
        return self.calls[text].written.name

    @staticmethod
    def _refuse_defined(expression: exp.Expr) -> None:
        """Raises unless the expression is about columns of the input alone."""
        for node in expression.walk():
            if (isinstance(node, exp.Column) and not _is_input(node)) or _function(node) in _TIME_WINDOWS:
                raise _Refused


class _Item:
    """One entry of the select list."""

    def __init__(self, place: int, written: exp.Expr, names: _Names) -> None:
        self.place = place
        self.alias = written.alias.lower() if isinstance(written, exp.Alias) else ""
        self.expression = names.resolved(written.this if isinstance(written, exp.Alias) else written)


class _Aliases:
    """The names that the select list gives."""

    def __init__(self, items: list[_Item]) -> None:
        self.items: dict[str, list[_Item]] = {}
        for item in items:
            if item.alias:
                self.items.setdefault(item.alias, []).append(item)

    def __contains__(self, name: object) -> bool:
        return name in self.items

    def defined(self, name: str, place: int | None = None) -> exp.Expr:
        """What an alias stands for, if it is the only one of that name and stands before this place."""
        found = self.items.get(name, [])
        if len(found) != 1 or (place is not None and found[0].place >= place):
            raise _Refused
        return found[0].expression


def _column(name: str) -> exp.Column:
    return exp.Column(this=exp.Identifier(this=name, quoted=True))


# --- aggregates --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Parts:
    """An aggregate the kernel has."""

    function: str
    argument: exp.Expr | None = None
    option: float | None = None
    condition: exp.Expr | None = None


def _has_aggregate(expression: exp.Expr) -> bool:
    return any(_call(node) is not None for node in expression.walk())


def _call(node: exp.Expr) -> _Parts | None:
    """The parts of a call of an aggregate, if the kernel has it."""
    if isinstance(node, exp.Filter):
        found = _call(node.this)
        return None if found is None else _Parts(found.function, found.argument, found.option, node.expression.this)
    function = _FUNCTIONS.get(_function(node))
    if function is None or not node.expressions:
        return None
    argument, *options = node.expressions
    if function == "percentile":
        literal = len(options) == 1 and isinstance(options[0], exp.Literal) and not options[0].is_string
        return _Parts(function, argument, float(options[0].name)) if literal else None
    if options:
        return None
    if function == "count" and isinstance(argument, exp.Star):
        return _Parts(function)
    if isinstance(argument, exp.Distinct):
        single = function == "count" and len(argument.expressions) == 1 and not argument.args.get("on")
        return _Parts("count_distinct", argument.expressions[0]) if single else None
    return _Parts(function, argument)
