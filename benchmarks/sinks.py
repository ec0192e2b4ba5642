"""Loading a table of PostgreSQL: the sink of Penstock beside Spark's own JDBC writer, over the same rows in memory.

Both have the same partitions and an empty table of the same columns. Penstock stores the batch exactly once, JDBC
commits partition by partition.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from tests.servers.base import PASSWORD, USER
from tests.servers.postgres import Postgres as PostgresServer
from tests.servers.sql import Database

from benchmarks.environments import cache
from benchmarks.workloads import VIEWS
from penstock.components.base import Batch, SinkContext
from penstock.components.sinks.postgres import Postgres
from penstock.engine.session import Session, SessionOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DRIVER = "org.postgresql:postgresql:42.7.4"
_PARTITIONS = 2
_BATCH_SIZE = 10_000
_TARGET = 3.0
_WARM_UP = 2
_JDBC, _REWRITTEN, _PENSTOCK = "spark jdbc", "spark jdbc, rewriting inserts", "penstock"


class Sinks:
    turns = 3

    def __init__(self, folder: Path, rows: int) -> None:
        self.folder, self.rows = folder, rows
        self.seconds: dict[str, list[float]] = {_JDBC: [], _REWRITTEN: [], _PENSTOCK: []}
        self.answers: dict[str, tuple[Any, ...]] = {}

    def play(self, turns: int) -> Iterator[str]:
        server = PostgresServer()
        session = Session(SessionOptions(master=f"local[{_PARTITIONS}]", packages=(_DRIVER,)))
        try:
            server.start()
            yield "sinks: reading the rows"
            rows = _rows(session.spark, VIEWS.first(cache(), self.rows))
            for turn in range(_WARM_UP + turns):
                for name, load in self._loads(session.spark, server).items():
                    yield f"sinks: turn {turn + 1} of {_WARM_UP + turns}, {name}"
                    seconds, self.answers[name] = _timed(server, rows, load)
                    if turn >= _WARM_UP:
                        self.seconds[name].append(seconds)
        finally:
            session.stop()
            server.close()

    def _loads(self, spark: SparkSession, server: PostgresServer) -> dict[str, Callable[[Database, DataFrame], None]]:
        def penstock(database: Database, rows: DataFrame) -> None:
            kinds = {item.name: item.dataType.simpleString() for item in rows.schema.fields}
            sink = Postgres(
                url=f"postgresql://{USER}:{PASSWORD}@{database.host}:{database.port}/{database.name}", table="t"
            )
            writer = sink.open(SinkContext(spark, "out", self.folder, "bench", "l", 1, kinds))
            writer.write(Batch("bench", "l", 1, 0), rows)
            writer.close()

        return {
            _JDBC: lambda database, rows: _jdbc(database, rows, ""),
            _REWRITTEN: lambda database, rows: _jdbc(database, rows, "?reWriteBatchedInserts=true"),
            _PENSTOCK: penstock,
        }

    @property
    def right(self) -> bool:
        return len(set(self.answers.values())) == 1

    def _medians(self) -> dict[str, float]:
        return {name: statistics.median(seconds) for name, seconds in self.seconds.items()}

    def figures(self) -> dict[str, Any]:
        seconds = self._medians()
        return {
            "workload": "sinks",
            "rows": self.rows,
            "equal": self.right,
            "seconds": seconds,
            "rows_per_second": {name: self.rows / value for name, value in seconds.items()},
            "ratio": seconds[_JDBC] / seconds[_PENSTOCK],
            "target": _TARGET,
        }

    def show(self, console: Console) -> None:
        figures = self.figures()
        table = Table(title=f"sinks · {self.rows:,} rows into PostgreSQL · tables equal: {self.right}")
        for column in ("", "median s", "rows/s"):
            table.add_column(column, justify="right" if column else "left")
        for name, seconds in figures["seconds"].items():
            table.add_row(name, f"{seconds:.2f}", f"{figures['rows_per_second'][name]:,.0f}")
        console.print(table)
        passed = "pass" if figures["ratio"] >= _TARGET else "fail"
        console.print(f"penstock loads {figures['ratio']:.1f} times as fast as jdbc (target ≥ {_TARGET:g}: {passed})")


def _rows(spark: SparkSession, data: Path) -> DataFrame:
    schema = "user bigint, item bigint, ms bigint, ts timestamp"
    rows = spark.read.schema(schema).json(str(data)).repartition(_PARTITIONS).persist()
    rows.count()
    return rows


def _jdbc(database: Database, rows: DataFrame, options: str) -> None:
    rows.write.format("jdbc").mode("append").options(
        url=f"jdbc:postgresql://{database.host}:{database.port}/{database.name}{options}",
        dbtable="t",
        user=USER,
        password=PASSWORD,
        driver="org.postgresql.Driver",
        batchsize=str(_BATCH_SIZE),
    ).save()


def _timed(
    server: PostgresServer, rows: DataFrame, load: Callable[[Database, DataFrame], None]
) -> tuple[float, tuple[Any, ...]]:
    """How long it takes in an empty database, and what a query over the table says then."""
    database = server.create_database()
    types = {"string": "text", "bigint": "bigint", "double": "double precision", "timestamp": "timestamptz"}
    columns = ", ".join(f'"{item.name}" {types[item.dataType.simpleString()]}' for item in rows.schema.fields)
    first = rows.columns[0]
    with server.connect(database.name) as connection:
        connection.execute(f"CREATE TABLE t ({columns})".encode())
        start = time.perf_counter()
        load(database, rows)
        seconds = time.perf_counter() - start
        query = f'SELECT count(*), sum(hashtext(t::text)::bigint), count(DISTINCT "{first}") FROM t'
        answer = tuple(connection.execute(query.encode()).fetchone() or ())
    server.drop_database(database)
    return seconds, answer
