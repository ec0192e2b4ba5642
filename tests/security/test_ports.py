"""Every user of a machine can connect to the ports that Spark opens on the loopback: without the secret of the run
none of them does anything."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

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


_SESSION = """
import json, sys
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import functions as F
from penstock.engine.session import Session, SessionOptions

session = Session(SessionOptions(master="local[2]", quick=True))
spark = session.spark
double = F.udf(lambda number: number * 2, "long")
assert [row[0] for row in spark.range(2).select(double("id")).collect()] == [0, 2]
gateway = spark.sparkContext._gateway
ensure_callback_server_started(gateway)
settings = {name: spark.conf.get(name) for name in ("spark.authenticate", "spark.ui.enabled")}
gateways = [gateway.gateway_parameters.port, gateway._callback_server.port]
print(json.dumps({"settings": settings, "gateways": gateways}), flush=True)
sys.stdin.read()
session.stop()
"""


@dataclass(frozen=True)
class Run:
    """A session in a process of its own, which has called Python in both directions."""

    settings: dict[str, str]
    gateways: list[int]
    listening: list[tuple[str, int]]
    """Where it listens: the process itself, its JVM, and Spark's Python workers."""

    @property
    def ports(self) -> list[int]:
        return sorted({port for _, port in self.listening})


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    command = [sys.executable, "-c", _SESSION]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        started = psutil.Process(process.pid)
        listening = [
            (connection.laddr.ip, connection.laddr.port)
            for one in (started, *started.children(recursive=True))
            for connection in one.net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN
        ]
        yield Run(told["settings"], told["gateways"], listening)


def answer(port: int, asked: bytes) -> bytes:
    """What comes back; nothing where the connection is closed, or nothing is said."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        client.sendall(asked)
        client.settimeout(3)
        try:
            return client.recv(4096)
        except (ConnectionError, TimeoutError):
            return b""


def test_nothing_listens_to_the_network(run: Run) -> None:
    assert {address for address, _ in run.listening} <= {*_LOOPBACK}
    assert len(run.ports) >= 4, "Spark's messages and blocks, and a gateway in each direction"
    assert {*run.gateways} <= {*run.ports}


def test_spark_answers_nobody_without_the_secret_of_the_run(run: Run) -> None:
    assert run.settings == {"spark.authenticate": "true", "spark.ui.enabled": "false"}
    for port in run.ports:
        found = answer(port, SPARK)
        kind = found[8] if len(found) > 8 else None
        assert kind != _RPC_RESPONSE, f"port {port} answers {found!r}"


def test_neither_gateway_does_what_somebody_else_asks(run: Run) -> None:
    for port in run.ports:
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
