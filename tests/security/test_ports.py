"""Every user of a machine can connect to the ports that Spark opens on the loopback: without the secret of the run
none of them does anything."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from penstock.engine.session import DEFAULTS, SessionOptions, spark_conf

pytestmark = pytest.mark.spark
_LOOPBACK = ("127.0.0.1", "::1", "::ffff:127.0.0.1")
_RPC_REQUEST, _RPC_RESPONSE = 3, 4


def text(value: str) -> bytes:
    return struct.pack(">i", len(value)) + value.encode()


OPEN_BLOCKS = bytes([0]) + text("app") + text("driver") + struct.pack(">i", 0)
"""Asks the block manager for no blocks: it answers with a stream if it answers at all."""
SPARK = struct.pack(">qbqi", 8 + 1 + 8 + 4 + len(OPEN_BLOCKS), _RPC_REQUEST, 7, len(OPEN_BLOCKS)) + OPEN_BLOCKS
PY4J = b"r\nu\njava.lang.System\nrj\ne\n"
"""Asks the gateway for a class of Java."""
CALLBACK = b"c\nt\ntoString\ne\n"


def listening(spark: SparkSession) -> Iterator[tuple[str, int]]:
    """Where the JVM, Spark's Python workers and PySpark listen. Other tests have servers in this process too."""
    gateway: Any = spark.sparkContext._gateway
    accumulators: Any = spark.sparkContext._accumulatorServer
    of_pyspark = {gateway._callback_server.port, accumulators.server_address[1]}
    me, jvm = psutil.Process(os.getpid()), psutil.Process(gateway.jvm.ProcessHandle.current().pid())
    for process in (me, jvm, *jvm.children(recursive=True)):
        for connection in process.net_connections("tcp"):
            address = connection.laddr
            if connection.status == psutil.CONN_LISTEN and (process != me or address.port in of_pyspark):
                yield address.ip, address.port


def answer(port: int, asked: bytes) -> bytes:
    """What comes back; nothing where the connection is closed, or nothing is said."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        client.sendall(asked)
        client.settimeout(3)
        try:
            return client.recv(4096)
        except (ConnectionError, TimeoutError):
            return b""


@pytest.fixture(scope="module")
def ports() -> list[int]:
    from penstock.testing.session import shared_session

    spark: SparkSession = shared_session()
    double = F.udf(lambda number: number * 2, "long")
    assert [row[0] for row in spark.range(2).select(double("id")).collect()] == [0, 2]
    ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call]
    found = list(listening(spark))
    assert {address for address, _ in found} <= {*_LOOPBACK}, "nothing listens to the network"
    return sorted({port for _, port in found})


def test_spark_answers_nobody_without_the_secret_of_the_run(ports: list[int], spark: SparkSession) -> None:
    assert spark.conf.get("spark.authenticate") == "true"
    assert spark.conf.get("spark.ui.enabled") == "false"
    assert len(ports) >= 4, "Spark's messages and blocks, and a gateway in each direction"
    for port in ports:
        found = answer(port, SPARK)
        kind = found[8] if len(found) > 8 else None
        assert kind != _RPC_RESPONSE, f"port {port} answers {found!r}"


def test_neither_gateway_does_what_somebody_else_asks(ports: list[int], spark: SparkSession) -> None:
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    assert {gateway.gateway_parameters.port, gateway._callback_server.port} <= {*ports}
    for port in ports:
        for asked in (PY4J, CALLBACK):
            found = answer(port, asked)
            assert not found.startswith((b"y", b"!y")), f"port {port} answers {found!r}"


@pytest.mark.parametrize(
    ("master", "makes_its_own"),
    [("local", True), ("local[*]", True), ("local[2,3]", True), ("yarn", True), ("k8s://https://h:1", True),
     ("spark://h:7077", False), ("local-cluster[2,1,1024]", False)],
)  # fmt: skip
def test_it_is_on_wherever_spark_makes_the_secret_itself(master: str, makes_its_own: bool, tmp_path: Path) -> None:
    conf = spark_conf(SessionOptions(master=master), tmp_path)
    assert (conf.get("spark.authenticate") == "true") is makes_its_own
    assert "spark.authenticate.secret" not in conf, "so it is on no command line"
    assert "spark.authenticate" not in DEFAULTS
    off = spark_conf(SessionOptions(master=master, conf={"spark.authenticate": "false"}), tmp_path)
    assert off["spark.authenticate"] == "false"
