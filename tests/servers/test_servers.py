"""The servers that other tests rely on: each starts, keeps what it is given, and Spark reaches it where it has to."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from tests.servers.fixtures import missing
from tests.servers.kafka import Kafka
from tests.servers.mariadb import MariaDb
from tests.servers.postgres import Postgres
from tests.servers.s3 import S3
from tests.servers.sql import Database

from penstock.engine.jars import jars_of
from penstock.errors import PenstockError
from penstock.testing.processes import is_running, until

# --- Kafka ---------------------------------------------------------------------------------------------------


def test_kafka_keeps_rows_over_a_restart(kafka: Kafka, kafka_topic: str) -> None:
    kafka.send(kafka_topic, ["a", "b"])
    kafka.restart()
    kafka.send(kafka_topic, ["c"])
    assert kafka.values(kafka_topic) == [b"a", b"b", b"c"]


def test_kafka_makes_no_topic_by_itself(kafka: Kafka) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0, "message.timeout.ms": 2000})
    failed: list[Any] = []
    producer.produce("nobody-made-this", value=b"x", on_delivery=lambda error, _: failed.append(error))
    producer.flush(10)
    assert len(failed) == 1
    assert failed[0] is not None
    assert "nobody-made-this" not in kafka.admin.list_topics(timeout=10).topics


def test_kafka_topics_get_partitions_lose_rows_and_go_away(kafka: Kafka) -> None:
    topic = kafka.create_topic(partitions=2)
    kafka.send(topic, ["old", "new"], partition=0)
    kafka.add_partitions(topic, 3)
    kafka.send(topic, ["third"], partition=2)
    kafka.delete_records(topic, before=1)
    assert kafka.values(topic) == [b"new", b"third"]
    kafka.delete_topic(topic)
    assert topic not in kafka.admin.list_topics(timeout=10).topics


def test_kafka_hides_rows_of_a_transaction_that_is_not_committed(kafka: Kafka, kafka_topic: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "t"})
    producer.init_transactions(30)
    for value, end in (("kept", producer.commit_transaction), ("dropped", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(kafka_topic, value=value.encode())
        producer.flush(30)
        end(30)
    assert kafka.values(kafka_topic) == [b"kept"]
    assert kafka.values(kafka_topic, committed=False) == [b"kept", b"dropped"]


def test_kafka_asks_for_a_password_on_its_second_listener(kafka: Kafka) -> None:
    login: dict[str, str | int | float] = {
        "bootstrap.servers": kafka.sasl_bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": kafka.username,
        "log_level": 0,
    }
    assert len(AdminClient({**login, "sasl.password": kafka.password}).list_topics(timeout=10).brokers) == 1
    with pytest.raises(KafkaException):
        AdminClient({**login, "sasl.password": "wrong"}).list_topics(timeout=2)


# --- databases -----------------------------------------------------------------------------------------------


def test_postgres_keeps_rows_over_a_restart(postgres: Postgres, postgres_database: Database) -> None:
    with postgres.connect(postgres_database.name) as connection:
        connection.execute("CREATE TABLE t (name text)")
        connection.execute("INSERT INTO t VALUES (%s)", ["ñ"])
    postgres.restart()
    with postgres.connect(postgres_database.name) as connection:
        assert connection.execute("SELECT name FROM t").fetchall() == [("ñ",)]


def test_postgres_asks_for_a_password(postgres_database: Database) -> None:
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(
            host=postgres_database.host,
            port=postgres_database.port,
            user=postgres_database.user,
            password="wrong",
            dbname=postgres_database.name,
        )


def test_mariadb_keeps_rows_over_a_restart(mariadb: MariaDb, mariadb_database: Database) -> None:
    with mariadb.connect(mariadb_database.name) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE t (name varchar(10)) ENGINE=InnoDB")
        cursor.execute("INSERT INTO t VALUES (%s)", ["ñ"])
    mariadb.restart()
    with mariadb.connect(mariadb_database.name) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT name FROM t")
        assert cursor.fetchall() == (("ñ",),)


def test_mariadb_asks_for_a_password(mariadb_database: Database) -> None:
    with pytest.raises(pymysql.err.OperationalError):
        pymysql.connect(
            host=mariadb_database.host,
            port=mariadb_database.port,
            user=mariadb_database.user,
            password="wrong",
            database=mariadb_database.name,
        )


# --- S3 ------------------------------------------------------------------------------------------------------


def test_s3_keeps_objects_over_a_restart(s3: S3, s3_bucket: str) -> None:
    with s3.filesystem().open_output_stream(f"{s3_bucket}/folder/a.txt") as stream:
        stream.write(b"text")
    s3.restart()
    assert s3.files(s3_bucket) == ["folder/a.txt"]
    with s3.filesystem().open_input_stream(f"{s3_bucket}/folder/a.txt") as stream:
        assert stream.read() == b"text"


@pytest.mark.spark
def test_spark_writes_parquet_to_s3_and_reads_it_back(spark: SparkSession, s3: S3, s3_bucket: str) -> None:
    try:
        jars_of(["s3"])
    except PenstockError as error:
        missing("s3a", error.problems[0].message)
    s3.introduce(spark, s3_bucket)
    path = f"s3a://{s3_bucket}/numbers"
    spark.range(100).write.parquet(path)
    spark.range(100, 110).write.mode("append").parquet(path)
    assert all(name.endswith(".parquet") for name in s3.files(s3_bucket))
    assert sorted(row.id for row in spark.read.parquet(path).collect()) == list(range(110))


# --- how they end --------------------------------------------------------------------------------------------

_HOLDER = """\
import sys, time
from tests.servers.{module} import {name}
server = {name}()
server.start()
print(server.process.pid, server.folder, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(("module", "name"), [("postgres", "Postgres"), ("mariadb", "MariaDb"), ("s3", "S3")])
def test_a_server_dies_with_a_killed_parent_and_leaves_nothing(
    module: str, name: str, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(module)
    code = _HOLDER.format(module=module, name=name)
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", code], cwd=root, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid, folder = parent.stdout.readline().split()
        assert is_running(int(pid))
        parent.send_signal(signal.SIGKILL)
    until(lambda: not is_running(int(pid)), "the server to die")
    until(lambda: not Path(folder).exists(), "its folder to go")
