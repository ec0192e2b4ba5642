"""Every sink beside the same write in bare Spark, over the same rows in memory.

Both write the same partitions into an empty place. Penstock stores the batch exactly once; what Spark does by itself is
done at least once, partition by partition. Spark has no writer for Kafka and Delta without jars that its version lacks,
so there the bare way is a task that sends with the same client, and plain Parquet files.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable
from rich.console import Console
from rich.table import Table
from tests.servers.base import PASSWORD, USER
from tests.servers.kafka import Kafka as KafkaServer
from tests.servers.mariadb import MariaDb
from tests.servers.postgres import Postgres as PostgresServer
from tests.servers.sql import Database

from benchmarks.environments import cache
from benchmarks.workloads import VIEWS
from penstock.components.base import Batch, Sink, SinkContext
from penstock.components.sinks.delta import Delta
from penstock.components.sinks.files import Files, read_files
from penstock.components.sinks.kafka import Kafka
from penstock.components.sinks.mysql import Mysql
from penstock.components.sinks.postgres import Postgres
from penstock.components.sinks.sqlite import Sqlite
from penstock.engine.session import Session, SessionOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DRIVERS = (
    "org.postgresql:postgresql:42.7.4",
    "org.mariadb.jdbc:mariadb-java-client:3.4.1",
    "org.xerial:sqlite-jdbc:3.46.1.3",
)
_PARTITIONS = 2
_BATCH_SIZE = 10_000
_WARM_UP = 3
_PENSTOCK = "penstock"
Load = Callable[["DataFrame"], None]
Answer = tuple[Any, ...]


class Contest(ABC):
    """One kind of sink: who writes to it, and what is there afterwards."""

    name: str
    target: float | None = None
    """How many times as fast as the first contender Penstock should be."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.turn = 0

    def start(self) -> None:  # noqa: B027
        """Starts what it needs."""

    def close(self) -> None:  # noqa: B027
        """Ends what it started."""

    @abstractmethod
    def contenders(self) -> dict[str, Load]:
        """Bare Spark first, Penstock among them."""

    @abstractmethod
    def prepare(self, rows: DataFrame) -> None:
        """Makes an empty place."""

    @abstractmethod
    def answer(self) -> Answer:
        """What is there, such that equal rows give equal answers."""

    def store(self, sink: Sink, rows: DataFrame) -> None:
        kinds = {item.name: item.dataType.simpleString() for item in rows.schema.fields}
        writer = sink.open(SinkContext(self.spark, "out", self.folder, "bench", "l", 1, kinds))
        writer.write(Batch("bench", "l", 1, 0), rows)
        writer.close()


def _summary(rows: DataFrame) -> Answer:
    return tuple(rows.selectExpr("count(*)", "sum(user_id)", "sum(ms)", "max(ts)").collect()[0])


class FilesContest(Contest):
    name = "files"

    def prepare(self, rows: DataFrame) -> None:
        shutil.rmtree(self.folder / "files", ignore_errors=True)
        self._bare = False

    def contenders(self) -> dict[str, Load]:
        return {"spark parquet": self._spark, _PENSTOCK: self._penstock}

    def _spark(self, rows: DataFrame) -> None:
        self._bare = True
        rows.write.parquet(str(self.folder / "files"))

    def _penstock(self, rows: DataFrame) -> None:
        self.store(Files(path=str(self.folder / "files")), rows)

    def answer(self) -> Answer:
        path = str(self.folder / "files")
        rows = self.spark.read.parquet(path) if self._bare else read_files(self.spark, path)
        return _summary(rows)


class DeltaContest(FilesContest):
    name = "delta"

    def _penstock(self, rows: DataFrame) -> None:
        self.store(Delta(path=str(self.folder / "files")), rows)

    def answer(self) -> Answer:
        if self._bare:
            return super().answer()
        files = DeltaTable(str(self.folder / "files")).file_uris()
        return _summary(self.spark.read.parquet(*files))


class TableContest(Contest):
    """A table of a database, beside JDBC."""

    jdbc: tuple[tuple[str, str], ...]
    """Contenders by name, with what follows the URL."""
    driver: str
    query = "SELECT count(*), sum(user_id), sum(ms), count(DISTINCT item) FROM t"

    def contenders(self) -> dict[str, Load]:
        def bare(options: str) -> Load:
            return lambda rows: self._jdbc(rows, options)

        return {name: bare(options) for name, options in self.jdbc} | {_PENSTOCK: self._penstock}

    @abstractmethod
    def url(self) -> str: ...

    @abstractmethod
    def sink(self) -> Sink: ...

    def _penstock(self, rows: DataFrame) -> None:
        self.store(self.sink(), rows)

    def _jdbc(self, rows: DataFrame, options: str) -> None:
        rows.write.format("jdbc").mode("append").options(
            url=f"{self.url()}{options}",
            dbtable="t",
            user=USER,
            password=PASSWORD,
            driver=self.driver,
            batchsize=str(_BATCH_SIZE),
        ).save()


class PostgresContest(TableContest):
    name = "postgres"
    target = 3.0
    jdbc = (("spark jdbc", ""), ("spark jdbc, rewriting inserts", "?reWriteBatchedInserts=true"))
    driver = "org.postgresql.Driver"
    database: Database

    def start(self) -> None:
        self.server = PostgresServer()
        self.server.start()

    def close(self) -> None:
        self.server.close()

    def prepare(self, rows: DataFrame) -> None:
        self.database = self.server.create_database()
        with self.server.connect(self.database.name) as connection:
            connection.execute("CREATE TABLE t (user_id bigint, item bigint, ms bigint, ts timestamptz)")

    def url(self) -> str:
        return f"jdbc:postgresql://{self.database.host}:{self.database.port}/{self.database.name}"

    def sink(self) -> Sink:
        found = self.database
        return Postgres(url=f"postgresql://{USER}:{PASSWORD}@{found.host}:{found.port}/{found.name}", table="t")

    def answer(self) -> Answer:
        with self.server.connect(self.database.name) as connection:
            found = tuple(connection.execute(self.query).fetchone() or ())
        self.server.drop_database(self.database)
        return found


class MysqlContest(TableContest):
    name = "mysql"
    jdbc = (("spark jdbc", ""), ("spark jdbc, bulk", "&useBulkStmts=true&useBulkStmtsForInserts=true"))
    driver = "org.mariadb.jdbc.Driver"
    database: Database

    def start(self) -> None:
        self.server = MariaDb()
        self.server.start()

    def close(self) -> None:
        self.server.close()

    def prepare(self, rows: DataFrame) -> None:
        self.database = self.server.create_database()
        with self.server.connect(self.database.name) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE TABLE t (user_id bigint, item bigint, ms bigint, ts datetime(6))")

    def url(self) -> str:
        # Spark quotes names as MySQL wants them only by this scheme.
        return f"jdbc:mysql://{self.database.host}:{self.database.port}/{self.database.name}?permitMysqlScheme"

    def sink(self) -> Sink:
        found = self.database
        return Mysql(url=f"mysql://{USER}:{PASSWORD}@{found.host}:{found.port}/{found.name}", table="t")

    def answer(self) -> Answer:
        with self.server.connect(self.database.name) as connection, connection.cursor() as cursor:
            cursor.execute(self.query)
            found = tuple(int(value) for value in cursor.fetchone() or ())
        self.server.drop_database(self.database)
        return found


class SqliteContest(TableContest):
    name = "sqlite"
    jdbc = (("spark jdbc, one task", ""),)
    driver = "org.sqlite.JDBC"

    def prepare(self, rows: DataFrame) -> None:
        for file in self.folder.glob("out.db*"):
            file.unlink()
        with closing(sqlite3.connect(self.folder / "out.db")) as db:
            db.execute("CREATE TABLE t (user_id BIGINT, item BIGINT, ms BIGINT, ts TIMESTAMP)")

    def url(self) -> str:
        return f"jdbc:sqlite:{self.folder / 'out.db'}"

    def sink(self) -> Sink:
        return Sqlite(path=str(self.folder / "out.db"), table="t")

    def _jdbc(self, rows: DataFrame, options: str) -> None:
        # Of several tasks all but one would find the file locked.
        super()._jdbc(rows.coalesce(1), options)

    def answer(self) -> Answer:
        with closing(sqlite3.connect(self.folder / "out.db")) as db:
            return tuple(db.execute(self.query).fetchone())


class KafkaContest(Contest):
    name = "kafka"
    topic: str

    def start(self) -> None:
        self.server = KafkaServer()
        self.server.start()

    def close(self) -> None:
        self.server.close()

    def prepare(self, rows: DataFrame) -> None:
        self.turn += 1
        self.topic = f"bench{self.turn}"
        self.server.create_topic(self.topic, partitions=_PARTITIONS)

    def contenders(self) -> dict[str, Load]:
        return {"spark tasks, same client": self._tasks, _PENSTOCK: self._penstock}

    def _tasks(self, rows: DataFrame) -> None:
        bootstrap, topic = self.server.bootstrap, self.topic

        def send(part: Iterator[Any]) -> None:
            from confluent_kafka import Producer

            producer = Producer(
                {"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 500_000}
            )
            for number, row in enumerate(part):
                producer.produce(topic, row["value"])
                if number % 10_000 == 0:
                    producer.poll(0)
            producer.flush()

        rows.selectExpr("to_json(struct(*)) AS value").foreachPartition(send)

    def _penstock(self, rows: DataFrame) -> None:
        self.store(Kafka(bootstrap=self.server.bootstrap, topic=self.topic), rows)

    def answer(self) -> Answer:
        found = [json.loads(value) for value in self.server.values(self.topic)]
        return (len(found), sum(row["user_id"] for row in found), sum(row["ms"] for row in found))


CONTESTS: tuple[type[Contest], ...] = (
    FilesContest,
    DeltaContest,
    PostgresContest,
    MysqlContest,
    SqliteContest,
    KafkaContest,
)


class Sinks:
    turns = 3

    def __init__(self, folder: Path, rows: int) -> None:
        self.folder, self.rows = folder, rows
        self.seconds: dict[str, dict[str, list[float]]] = {}
        self.answers: dict[str, set[Answer]] = {}

    def play(self, turns: int) -> Iterator[str]:
        session = Session(SessionOptions(master=f"local[{_PARTITIONS}]", packages=_DRIVERS))
        try:
            yield "sinks: reading the rows"
            rows = _rows(session.spark, VIEWS.first(cache(), self.rows))
            for kind in CONTESTS:
                contest = kind(session.spark, self.folder)
                contest.start()
                try:
                    for turn in range(_WARM_UP + turns):
                        yield f"sinks: {contest.name}, turn {turn + 1} of {_WARM_UP + turns}"
                        self._turn(contest, rows, counts=turn >= _WARM_UP)
                finally:
                    contest.close()
        finally:
            session.stop()

    def _turn(self, contest: Contest, rows: DataFrame, *, counts: bool) -> None:
        for name, load in contest.contenders().items():
            contest.prepare(rows)
            start = time.perf_counter()
            load(rows)
            seconds = time.perf_counter() - start
            self.answers.setdefault(contest.name, set()).add(contest.answer())
            if counts:
                self.seconds.setdefault(contest.name, {}).setdefault(name, []).append(seconds)

    @property
    def right(self) -> bool:
        return all(len(answers) == 1 for answers in self.answers.values())

    def figures(self) -> dict[str, Any]:
        found = {}
        for kind in CONTESTS:
            medians = {name: statistics.median(values) for name, values in self.seconds[kind.name].items()}
            bare = next(iter(medians.values()))
            found[kind.name] = {
                "equal": len(self.answers[kind.name]) == 1,
                "seconds": medians,
                "ratio": bare / medians[_PENSTOCK],
                "target": kind.target,
            }
        return {"workload": "sinks", "rows": self.rows, "sinks": found}

    def show(self, console: Console) -> None:
        table = Table(title=f"sinks · {self.rows:,} rows · answers equal: {self.right}")
        for column in ("sink", "", "median s", "rows/s", "penstock over the first", "target"):
            table.add_column(column, justify="left" if column in ("sink", "") else "right")
        for sink, figures in self.figures()["sinks"].items():
            for name, seconds in figures["seconds"].items():
                ours = name == _PENSTOCK
                target = f"≥ {figures['target']:g}" if ours and figures["target"] else ""
                ratio = f"{figures['ratio']:.2f}" if ours else ""
                table.add_row(sink, name, f"{seconds:.2f}", f"{self.rows / seconds:,.0f}", ratio, target)
        console.print(table)


def _rows(spark: SparkSession, data: Path) -> DataFrame:
    schema = "user bigint, item bigint, ms bigint, ts timestamp"
    rows = spark.read.schema(schema).json(str(data)).withColumnRenamed("user", "user_id")
    kept = rows.repartition(_PARTITIONS).persist()
    kept.count()
    return kept
