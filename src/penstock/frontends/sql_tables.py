"""Which tables a query reads, found from its tokens.

Only tokens are looked at: Spark's grammar is larger than any parser of ours, and the analyser checks the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sqlglot.dialects.dialect import Dialect
from sqlglot.tokenizer_core import Token, TokenType

_FROM_ENDS = {"WHERE", "GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET", "WINDOW",
              "UNION", "INTERSECT", "EXCEPT", "MINUS", "SELECT", "QUALIFY"}  # fmt: skip
_FUNCTIONS_WITH_FROM = {"EXTRACT", "TRIM", "LTRIM", "RTRIM", "BTRIM", "SUBSTRING", "SUBSTR", "OVERLAY", "POSITION"}
_BEFORE_TABLE = {"LATERAL", "TABLE"}
_QUERY_STARTS = {"SELECT", "WITH", "VALUES", "FROM", "TABLE", "("}


@dataclass(frozen=True)
class TableRead:
    """A table named after FROM, JOIN or TABLE, and the offset of its name in the text."""

    name: str
    offset: int


def tokenize(text: str) -> Sequence[Token]:
    """The tokens of Spark SQL; raises sqlglot's TokenError for an unclosed quote or comment."""
    return Dialect.get_or_raise("spark").tokenize(text)


def word(token: Token) -> str:
    """A token as a keyword is compared; a quoted name or a text is none."""
    return "" if token.token_type in (TokenType.IDENTIFIER, TokenType.STRING) else token.text.upper()


def is_name(token: Token) -> bool:
    return token.token_type is TokenType.IDENTIFIER or (
        token.token_type is not TokenType.STRING and token.text.replace("_", "a").isalnum()
    )


def tables_read(tokens: Sequence[Token]) -> list[TableRead]:
    """The tables of a query in order of appearance, without those that `WITH` defines in it and qualified names."""
    return list(_Scan(tokens).tables())


@dataclass
class _Level:
    """What is known inside one pair of parentheses."""

    in_from: bool = False
    skips_from: bool = False
    """Inside a function such as `extract(day FROM ts)`."""
    defines: str | None = None
    """The name of the common table expression whose body this is."""
    hidden: set[str] = field(default_factory=set)
    """Common table expressions defined at this level so far."""


class _Scan:
    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = tokens
        self.levels = [_Level()]

    def tables(self) -> Iterator[TableRead]:
        expected = False
        for index, token in enumerate(self.tokens):
            level, text = self.levels[-1], word(token)
            if text == "(":
                self._open(index, expected)
                expected = expected and self._word(index + 1) not in _QUERY_STARTS - {"("}
            elif text == ")":
                self._close()
                expected = False
            elif expected and text not in _BEFORE_TABLE:
                expected = False
                if self._is_table(index):
                    yield TableRead(token.text, token.start)
            elif text in ("FROM", "JOIN") and not self._inside_expression(index):
                expected = level.in_from = True
            elif text == "TABLE" or (text == "," and level.in_from):
                expected = True
            elif text.partition(" ")[0] in _FROM_ENDS or (text == "LATERAL" and self._word(index + 1) == "VIEW"):
                level.in_from = expected = False

    def _word(self, index: int) -> str:
        return word(self.tokens[index]) if 0 <= index < len(self.tokens) else ""

    def _open(self, index: int, table_expected: bool) -> None:
        level = _Level(skips_from=self._word(index - 1) in _FUNCTIONS_WITH_FROM)
        level.in_from = table_expected and self._word(index + 1) not in _QUERY_STARTS
        if self._word(index - 1) == "AS" and self._word(index + 1) in _QUERY_STARTS:
            level.defines = self._defined_before(index - 1)
        self.levels.append(level)

    def _defined_before(self, index: int) -> str | None:
        """The name in `WITH name [(columns)] AS`, given the place of AS."""
        index -= 1
        if self._word(index) == ")":
            while index > 0 and self._word(index) != "(":
                index -= 1
            index -= 1
        follows = index > 0 and self._word(index - 1) in ("WITH", ",", "RECURSIVE")
        return self.tokens[index].text.lower() if follows else None

    def _close(self) -> None:
        closed = self.levels.pop() if len(self.levels) > 1 else _Level()
        if closed.defines is not None:
            self.levels[-1].hidden.add(closed.defines)

    def _inside_expression(self, index: int) -> bool:
        """Whether this FROM belongs to an expression: `extract(day FROM ts)`, `a IS DISTINCT FROM b`."""
        distinct = self._word(index - 1) == "DISTINCT" and self._word(index - 2) in ("IS", "NOT")
        return self.levels[-1].skips_from or distinct

    def _is_table(self, index: int) -> bool:
        token, following = self.tokens[index], self._word(index + 1)
        hidden = any(token.text.lower() in level.hidden for level in self.levels)
        return is_name(token) and following not in (".", "(") and not hidden
