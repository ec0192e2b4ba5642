"""A table in MySQL or MariaDB."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.components.shared.checksum import BETWEEN, DIGITS, NULL
from penstock.components.shared.mysql_connection import MysqlConnection, guarded
from penstock.components.shared.sql_database import (
    DELETED,
    DIRECT,
    MERGED,
    NUMBER,
    Column,
    Connection,
    Database,
    Differs,
    Fault,
    Layout,
    as_text,
    found_columns,
    in_key,
    with_batch_column,
)  # fmt: skip
from penstock.components.shared.sql_server import REFERENCE, ServerSink
from penstock.components.shared.sql_text import is_nested
from penstock.components.shared.sql_url import BadUrl, Server
from penstock.spec.fields import Change, Holds, field

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column as SparkColumn

_TYPES = {"boolean": "BOOLEAN", "tinyint": "TINYINT", "smallint": "SMALLINT", "int": "INT", "bigint": "BIGINT",
          "float": "FLOAT", "double": "DOUBLE", "string": "LONGTEXT", "binary": "LONGBLOB", "date": "DATE",
          "timestamp": "DATETIME(6)", "timestamp_ntz": "DATETIME(6)"}  # fmt: skip
_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint", "decimal")
_BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_TEXTS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "json", "enum", "set", "uuid", "inet6")
_TAKES = {"boolean": ("tinyint", "bit"), "tinyint": (*_INTEGERS, "double"), "smallint": (*_INTEGERS, "double"),
          "int": (*_INTEGERS, "double"), "bigint": _INTEGERS, "float": ("float", "double"), "double": ("double",),
          "decimal": ("decimal",), "binary": _BYTES, "date": ("date", "datetime"),
          "timestamp": ("datetime", "timestamp"), "timestamp_ntz": ("datetime",)}  # fmt: skip
"""Types that a column of the table may have; everything else goes into texts."""
_SESSION = (
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION', "
    "time_zone = '+00:00', innodb_lock_wait_timeout = 20"
)
_LONGEST_KEY = 768
"""Characters of four bytes that an index can hold."""
_LONGEST_TEXT_KEY = 255
_PASSING = (1020, 1040, 1053, 1158, 1159, 1160, 1161, 1205, 1213, 1317, 1927, 2002, 2003, 2006, 2013, 2055, 4031)
_ROWS = (1048, 1062, 1216, 1217, 1264, 1265, 1292, 1364, 1366, 1406, 1411, 1451, 1452, 1526, 1644, 1690, 3140, 3819,
         4025)  # fmt: skip
_DENIED = (1044, 1045, 1142, 1143, 1227, 1370, 1698)


class Mysql(ServerSink):
    """Stores rows in a table of MySQL or MariaDB, exactly once.

    Without a key rows are appended; with a key a later row replaces an earlier one, and of several rows of one key in
    a batch the newest by `version` counts, else the last. Rows and the number of the batch are written in one
    transaction, so a batch that comes again after a crash, or after a commit whose answer was lost, changes nothing.
    Lost connections and deadlocks are tried again for a minute.

    The table is made if it does not exist; one that is there must have all columns, an engine with transactions and,
    with a key, a unique index on it. Times are stored in UTC, nested values as JSON. Rows that violate a constraint or
    do not fit become dead letters; so do rows with a null in the key, text keys longer than the index, NaN and
    infinity, which MySQL cannot store.

    With `delete`, rows in which that column is true delete their key, unless the stored version is newer. A delete
    leaves nothing behind: an older row of the key that comes in a later batch is stored again.

    A pipeline can go back to a savepoint. With a key rows then converge: what comes again replaces what is there, and a
    row whose key does not come again stays. Without one it takes a column that tells the batch of each row, as in
    `{table: clicks, batchColumn: batch}`: the rows of later batches are deleted.

    Loading is quickest if the server allows LOAD DATA LOCAL (`local_infile`), as MariaDB does by default. The URL may
    set ssl_mode (`disabled`, `required`, `verify-ca`, `verify-identity`), ssl_ca, charset=utf8mb4 and connect_timeout.
    The user needs the right to create tables, also temporary ones, beside the table: `_penstock_batches` and others
    with names that begin so.
    """

    name: ClassVar[str] = "mysql"
    guarantee: ClassVar[str] = (
        "Exactly once: rows and the number of the batch are written in one transaction. Tables whose engine has none "
        "are refused."
    )
    example: ClassVar[str] = """\
from: views
mysql:
  url: mysql://shop:${secret:env/MYSQL_PASSWORD}@db.example.com/shop
  table: views
  key: [id]
"""
    schemes: ClassVar[tuple[str, ...]] = ("mysql", "mariadb")
    port: ClassVar[int] = 3306
    options: ClassVar[tuple[str, ...]] = ("ssl_mode", "ssl_ca", "charset", "connect_timeout")

    url: str = field(
        holds=Holds.ADDRESS,
        doc="Where the database is: mysql://USER:PASSWORD@HOST:PORT/DATABASE; the password is a secret.",
        change=Change.LOSES_STATE, pattern=rf"^(mysql://|mariadb://|{REFERENCE})",
    )  # fmt: skip

    @classmethod
    def server(cls, url: str) -> Server:
        server = super().server(url)
        _refuse_unless(server, "charset", ("utf8mb4",))
        _refuse_unless(server, "ssl_mode", tuple(_TLS))
        return server

    @classmethod
    def database(cls, server: Server) -> Database:
        return MysqlDatabase(server)


_TLS: dict[str, dict[str, Any]] = {
    "disabled": {"ssl_disabled": True},
    # Options of its own make the client insist: with `ssl_verify_cert` alone it would go on without TLS.
    "required": {"ssl": {"check_hostname": False, "verify_mode": False}},
    "verify-ca": {"ssl_verify_cert": True},
    "verify-identity": {"ssl_verify_cert": True, "ssl_verify_identity": True},
}


@dataclass(frozen=True)
class MysqlDatabase(Database):
    server: Server
    name_type: ClassVar[str] = "VARCHAR(255)"
    text_type: ClassVar[str] = "LONGTEXT"

    @property
    def place(self) -> str:
        return self.server.place

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        from pymysql.err import MySQLError

        return (MySQLError,)

    def connect(self) -> Connection:
        server = self.server
        seconds = int(server.options.get("connect_timeout", "10"))
        options: dict[str, Any] = dict(_TLS.get(server.options.get("ssl_mode", ""), {}))
        if "ssl_ca" in server.options:
            options["ssl_ca"] = server.options["ssl_ca"]
        connection = guarded()(
            host=server.host,
            port=server.port,
            user=server.user,
            password=server.password or "",
            database=server.database,
            charset="utf8mb4",
            autocommit=True,
            local_infile=True,
            connect_timeout=seconds,
            read_timeout=seconds,
            init_command=_SESSION,
            **options,
        )
        opened = MysqlConnection(connection)
        # Greetings come quickly; a statement may take its time.
        connection._read_timeout = None
        opened.run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        if opened.is_mariadb:
            # MySQL has no such setting: a run that is halted in its transaction holds it until it goes on.
            opened.run("SET SESSION idle_transaction_timeout = 30")
        return opened

    def fault(self, error: Exception) -> Fault:
        from pymysql.err import InterfaceError

        number = error.args[0] if error.args else None
        if number in _PASSING or isinstance(error, InterfaceError):
            return Fault.PASSING
        if number in _ROWS:
            return Fault.ROWS
        return Fault.DENIED if number in _DENIED else Fault.OTHER

    def reason(self, error: Exception) -> str:
        text = str(error.args[1]) if len(error.args) > 1 else str(error)
        return self.server.without_password(" ".join(text.split()))

    def quote(self, name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    def row_sum(self, columns: Sequence[str], of: str = "") -> str:
        def mark(text: str) -> str:
            return f"CHAR({ord(text)} USING utf8mb4)"

        texts = (
            f"COALESCE(CAST({of}{self.quote(name)} AS CHAR CHARACTER SET utf8mb4), {mark(NULL)})" for name in columns
        )
        digest = f"MD5(CONCAT_WS({mark(BETWEEN)}, {', '.join(texts)}))"
        return f"CAST(CONV(SUBSTR({digest}, 1, {DIGITS}), 16, 10) AS UNSIGNED)"

    join: ClassVar[str] = "STRAIGHT_JOIN"

    # --- tables -------------------------------------------------------------------------------------------

    def make_table(self, connection: Connection, layout: Layout) -> Layout:
        for name, columns in self.bookkeeping(layout).items():
            self._make(connection, self.near(layout, name), columns)
        self._make(connection, self.table(layout.table), _columns(self, layout))
        return self._checked(connection, layout)

    def _make(self, connection: Connection, table: str, columns: str) -> None:
        connection.run(f"CREATE TABLE IF NOT EXISTS {table} ({columns}) {self._like(connection)}")

    def _like(self, connection: Connection) -> str:
        """Engine and collation: the only one in which texts are equal if and only if their characters are."""
        assert isinstance(connection, MysqlConnection)
        plain = "utf8mb4_nopad_bin" if connection.is_mariadb else "utf8mb4_0900_bin"
        return f"ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {plain}"

    def _about(self, connection: Connection, what: str, layout: Layout, source: str) -> list[tuple[Any, ...]]:
        schema, _, table = layout.table.rpartition(".")
        query = f"SELECT {what} FROM information_schema.{source} WHERE table_schema = COALESCE(%s, DATABASE()) "
        return connection.rows(f"{query} AND table_name = %s", schema or None, table)

    def _checked(self, connection: Connection, layout: Layout) -> Layout:
        engine = self._about(connection, "engine", layout, "tables")[0][0]
        with_them = "SELECT 1 FROM information_schema.engines WHERE engine = %s AND transactions = 'YES'"
        if not connection.rows(with_them, engine):
            raise Differs(f"its engine {engine} has no transactions")
        what = "column_name, data_type, collation_name, is_nullable = 'NO' AND column_default IS NULL AND extra = ''"
        present = {row[0]: row[1:] for row in self._about(connection, what, layout, "columns")}
        stored = found_columns(layout, {name.lower(): name for name in present} | {name: name for name in present})
        layout = with_batch_column(layout, {name: row[0] for name, row in present.items()}, "bigint")
        given = {*stored.values(), layout.batch_column}
        needed = [name for name, row in present.items() if row[2] and name not in given]
        if needed:
            raise Differs(f"column {', '.join(needed)} must be given and is not among the rows")
        layout = layout.with_columns(
            {item.name: _fitted(item, stored[item.name], *present[stored[item.name]][:2]) for item in layout.columns}
        )
        if layout.key:
            self._check_index(connection, layout)
        return layout

    def _check_index(self, connection: Connection, layout: Layout) -> None:
        indexes: dict[str, set[str]] = {}
        for index, column, repeats, part in self._about(
            connection, "index_name, column_name, non_unique, sub_part", layout, "statistics"
        ):
            # An index on a part of a text does not tell whether whole texts are equal.
            indexes.setdefault(index, set()).add(column if not repeats and part is None else "")
        if {layout.column(name).stored for name in layout.key} not in indexes.values():
            raise Differs(f"it has no unique index on the key ({', '.join(layout.key)})")

    def leftovers(self, connection: Connection, prefix: str) -> list[str]:
        query = (
            "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name LIKE %s"
        )
        return [row[0] for row in connection.rows(query, prefix.replace("_", r"\_") + "%")]

    def make_stage(self, connection: Connection, table: str, layout: Layout) -> None:
        self._make(connection, table, self.own_columns(layout))

    def begin(self, connection: Connection, layout: Layout | None = None) -> None:
        if layout is not None:
            columns, like = self.own_columns(layout), self._like(connection)
            for name, more in ((DIRECT, ""), (MERGED, f"{NUMBER} BIGINT PRIMARY KEY, ")):
                connection.run(f"CREATE TEMPORARY TABLE IF NOT EXISTS {name} ({more}{columns}) {like}")
                connection.run(f"DELETE FROM {name}")
        connection.run("START TRANSACTION")

    # --- values -------------------------------------------------------------------------------------------

    def own_type(self, column: Column, layout: Layout) -> str:
        kind = column.kind
        if kind == "binary":
            return f"VARBINARY({_LONGEST_KEY})" if in_key(column, layout) else "LONGBLOB"
        if kind.startswith("decimal") or (kind in _TYPES and kind != "string"):
            return _plain_type(kind)
        text = f"VARCHAR({_LONGEST_KEY})" if in_key(column, layout) else "LONGTEXT"
        return f"{text} COLLATE {column.collation}" if column.collation.startswith("utf8mb4") else text

    def storable(self, column: SparkColumn, kind: str) -> SparkColumn:
        from pyspark.sql import functions as F

        if kind == "binary":
            return F.hex(column)
        if kind == "boolean":
            return column.cast("tinyint")
        return column if kind in _TYPES or kind.startswith("decimal") else as_text(column, kind)

    def unstorable(self, rows: pa.Table, layout: Layout) -> Iterator[tuple[pa.Array, str]]:
        import pyarrow as pa
        import pyarrow.compute as pc

        for name in layout.key:
            yield pc.is_null(rows[name]), f"column '{name}' of the key is null"
            if pa.types.is_string(rows[name].type):
                reason = f"column '{name}' of the key is longer than {_LONGEST_KEY} characters"
                yield pc.greater(pc.utf8_length(rows[name]), _LONGEST_KEY), reason
        for column in rows.schema:
            if pa.types.is_floating(column.type):
                reason = f"column '{column.name}' is NaN or infinite, which MySQL cannot store"
                yield pc.invert(pc.is_finite(rows[column.name])), reason

    # --- storing ------------------------------------------------------------------------------------------

    def store(self, connection: Connection, layout: Layout, where: str) -> None:
        names, values = self.inserted(layout)
        target = self.table(layout.table)
        insert = f"INSERT INTO {target} ({names}) SELECT {values} FROM {MERGED} w"
        kept = f"{where} AND {self.kept(layout)}"
        if not layout.key:
            connection.run(f"{insert} WHERE {where}")
            return
        # Not ON DUPLICATE KEY UPDATE: that would take a conflict in any other unique index for one in the key.
        same, older = self.same_key(layout), self.not_older(layout)
        changes = ", ".join(f"t.{self.quote(item.stored)} = {self.value(item, layout)}" for item in layout.others)
        if changes:
            connection.run(
                f"UPDATE {MERGED} w STRAIGHT_JOIN {target} t ON {same} SET {changes} WHERE {kept} AND {older}"
            )
        missing = f"t.{self.quote(layout.column(layout.key[0]).stored)} IS NULL"
        connection.run(f"{insert} LEFT JOIN {target} t ON {same} WHERE {kept} AND {missing}")
        if layout.delete is not None:
            found = f"{MERGED} w STRAIGHT_JOIN {target} t ON {same}"
            connection.run(f"DELETE t FROM {found} WHERE {where} AND w.{DELETED} AND {older}")


def _refuse_unless(server: Server, option: str, known: tuple[str, ...]) -> None:
    if option in server.options and server.options[option] not in known:
        raise BadUrl(f"option '{option}' must be {' or '.join(known)}")


def _plain_type(kind: str) -> str:
    return kind.upper() if kind.startswith("decimal") else _TYPES.get(kind, "LONGTEXT")


def _columns(database: Database, layout: Layout) -> str:
    """The columns of a table that is made."""
    texts = [name for name in layout.key if _plain_type(layout.column(name).kind) in ("LONGTEXT", "LONGBLOB")]
    longest = min(_LONGEST_TEXT_KEY, _LONGEST_KEY // max(len(texts), 1))
    columns = []
    for column in layout.columns:
        kind = "JSON" if is_nested(column.kind) else _plain_type(column.kind)
        if in_key(column, layout):
            kind = {"LONGTEXT": f"VARCHAR({longest})", "LONGBLOB": f"VARBINARY({longest})"}.get(kind, kind)
            kind = f"VARCHAR({longest})" if kind == "JSON" else kind
        columns.append(f"{database.quote(column.stored)} {kind}{' NOT NULL' if in_key(column, layout) else ''}")
    if layout.batch_column is not None:
        columns.append(f"{database.quote(layout.batch_column)} BIGINT")
    key = ", ".join(database.quote(name) for name in layout.key)
    return ", ".join([*columns, *([f"PRIMARY KEY ({key})"] if key else [])])


def _fitted(column: Column, stored: str, type_name: str, collation: str | None) -> Column:
    """The column as the table has it; raises Differs if its values do not fit there."""
    taken = _TAKES.get("decimal" if column.kind.startswith("decimal") else column.kind, _TEXTS)
    if type_name.lower() not in taken:
        raise Differs(f"column {stored} is {type_name}, and the rows have {column.kind}")
    return replace(column, stored=stored, collation=collation or "")
