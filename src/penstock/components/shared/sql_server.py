"""What tables of database servers have in common: a URL, and loading by Spark's tasks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import ClassVar

from penstock.access.limits import check_address
from penstock.components.base import CheckContext, SinkContext, SinkWriter
from penstock.components.shared.sql_database import Database
from penstock.components.shared.sql_sink import AUTOMATIC, SqlSink, SqlWriter
from penstock.components.shared.sql_url import BadUrl, Server, read_url
from penstock.errors import PenstockError, Problem
from penstock.spec.fields import Change, Holds, field
from penstock.spec.secrets import hide

NAMES = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?$"
REFERENCE = r"\$\{secret:"


class ServerSink(SqlSink):
    """A table of a database server."""

    schemes: ClassVar[tuple[str, ...]]
    port: ClassVar[int]
    options: ClassVar[tuple[str, ...]]

    url: str = field(holds=Holds.ADDRESS, doc="Where the database is and who asks.", change=Change.LOSES_STATE)
    table: str = field(holds=Holds.NAME, doc="The table, or `schema.table`.", change=Change.LOSES_STATE, pattern=NAMES)
    bulk_rows: int | None = field(
        None, ge=1,
        doc="A task of Spark with more rows than this loads them itself, into a table beside the real one; others send "
        "them to the driver. Default: all go through the driver on one machine, and up to 128 MB of a batch in a "
        "cluster.",
    )  # fmt: skip

    def check(self, context: CheckContext) -> Iterator[Problem]:
        yield from super().check(context)
        yield from self.url_problems(self.url, f"`{self.name}.url` of sink '{context.node}'")

    @classmethod
    def url_problems(cls, url: str, where: str) -> Iterator[Problem]:
        """What is wrong with a URL, which may hold values of secrets."""
        try:
            server = cls.server(url)
        except BadUrl as error:
            advice = f"Write {cls.schemes[0]}://USER:${{secret:env/PASSWORD}}@HOST:PORT/DATABASE."
            yield Problem("SPEC_BAD_VALUE", {"where": where, "reason": error, "advice": advice}, at=("url",))
        else:
            if server.password and hide(url) == url:
                yield Problem("SECRET_IN_PLAIN_TEXT", {"where": where}, at=("url",))

    @classmethod
    def server(cls, url: str) -> Server:
        """The server a URL names; raises BadUrl."""
        found = read_url(url, cls.schemes, cls.port, cls.options)
        check_address(url, "the address of a database")
        return found

    @classmethod
    @abstractmethod
    def database(cls, server: Server) -> Database: ...

    def database_of(self, context: SinkContext) -> Database:
        try:
            return self.database(self.server(self.url))
        except BadUrl as error:
            where = f"`{self.name}.url` of sink '{context.node}'"
            raise PenstockError.of("SPEC_BAD_VALUE", where=where, reason=error) from None

    def open(self, context: SinkContext) -> SinkWriter:
        return SqlWriter(self, self.database_of(context), context, self.bulk_rows or AUTOMATIC)
