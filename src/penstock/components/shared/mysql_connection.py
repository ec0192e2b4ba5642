"""A connection to MySQL or MariaDB that loads rows with LOAD DATA LOCAL, and gives no file of this machine away."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from penstock.components.shared.sql_database import Connection
from penstock.components.shared.sql_text import lines

if TYPE_CHECKING:
    import pyarrow as pa

_FILE = "penstock"
_PACKET = 1 << 18
_TRUNCATED = 1265
"""MySQL's number for a value that was made to fit."""


class MysqlConnection(Connection):
    def __init__(self, connection: Any) -> None:
        self.connection = connection
        ((version, self.loads_files),) = self.rows("SELECT VERSION(), @@local_infile")
        self.is_mariadb = "MariaDB" in version

    def run(self, statement: str, *values: Any) -> int:
        with self.connection.cursor() as cursor:
            return int(cursor.execute(statement, values or None))

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute(query, values or None)
            return list(cursor.fetchall())

    def load(self, table: str, columns: Mapping[str, str], rows: pa.Table, *, same_types: bool = True) -> None:
        rows = _without_zones(rows)
        if not self.loads_files:
            self._insert(table, rows, columns)
            return
        hexed = {name: f"@h{number}" for number, name in enumerate(columns) if columns[name] == "binary"}
        listed = ", ".join(hexed.get(name, name) for name in columns)
        settings = ", ".join(f"{name} = UNHEX({variable})" for name, variable in hexed.items())
        statement = (
            f"LOAD DATA LOCAL INFILE '{_FILE}' INTO TABLE {table} CHARACTER SET utf8mb4 FIELDS TERMINATED BY '\\t' "
            f"ESCAPED BY '\\\\' LINES TERMINATED BY '\\n' ({listed})" + (f" SET {settings}" if settings else "")
        )
        self.connection.outgoing = lambda: lines(rows)
        try:
            loaded = self.run(statement)
        finally:
            self.connection.outgoing = None
        warnings = self.connection.show_warnings()
        if warnings or loaded != rows.num_rows:
            # LOAD DATA LOCAL makes values fit that do not, and only warns.
            from pymysql.err import DataError

            raise DataError(
                _TRUNCATED, f"a value was changed on its way: {warnings[0][2] if warnings else 'rows are missing'}"
            )

    def _insert(self, table: str, rows: pa.Table, columns: Mapping[str, str]) -> None:
        """Slower, for servers that do not take files."""
        values = {name: column.to_pylist() for name, column in zip(columns, rows.columns, strict=True)}
        for name in (name for name, kind in columns.items() if kind == "binary"):
            values[name] = [None if value is None else bytes.fromhex(value) for value in values[name]]
        head = f"INSERT INTO {table} ({', '.join(columns)})".replace("%", "%%")
        insert = f"{head} VALUES ({', '.join('%s' for _ in columns)})"
        with self.connection.cursor() as cursor:
            cursor.executemany(insert, list(zip(*values.values(), strict=True)))

    def close(self) -> None:
        self.connection.close()


def guarded() -> Callable[..., Any]:
    """A connection that sends the rows at hand when the server asks for a file, and never a file of this machine.

    In the protocol it is the server that names the file; one with bad intentions could ask for any.
    """
    from pymysql.connections import Connection as Plain
    from pymysql.connections import MySQLResult

    class Result(MySQLResult):
        def _read_load_local_packet(self, first_packet: Any) -> None:
            connection: Any = self.connection
            rows, connection.outgoing = connection.outgoing, None
            try:
                for part in rows() if rows is not None else ():
                    for start in range(0, len(part), _PACKET):
                        connection.write_packet(part[start : start + _PACKET])
            finally:
                connection.write_packet(b"")
                answer = connection._read_packet()
            self._read_ok_packet(answer)  # type: ignore[attr-defined]

    class Guarded(Plain):
        outgoing: Callable[[], Iterator[bytes]] | None = None

        def _read_query_result(self, unbuffered: bool = False) -> Any:
            self._result = None
            result = Result(self)
            result.read()
            self._result = result
            if result.server_status is not None:
                self.server_status = result.server_status
            return result.affected_rows

    return Guarded


def _without_zones(rows: pa.Table) -> pa.Table:
    """Times in UTC without saying so, as MySQL does not read a zone."""
    import pyarrow as pa

    plain = pa.timestamp("us")
    for number, column in enumerate(rows.schema):
        if pa.types.is_timestamp(column.type) and column.type.tz is not None:
            rows = rows.set_column(number, column.name, rows.column(number).cast(plain))
    return rows
