"""What is submitted to each kind of Spark master: the driver is always this process, and a local one is loopback."""

from __future__ import annotations

from pathlib import Path
from tempfile import mkdtemp

import pytest

from penstock.engine.jvm import JvmOptions, command
from penstock.engine.session import SessionOptions, spark_conf
from penstock.errors import PenstockError

MASTERS = {
    "standalone": ("spark://10.0.0.5:7077", {"spark.cores.max": "4"}),
    "yarn": ("yarn", {"spark.yarn.queue": "news", "spark.executor.instances": "3"}),
    "kubernetes": (
        "k8s://https://10.0.0.9:6443",
        {"spark.kubernetes.namespace": "news", "spark.kubernetes.container.image": "registry/penstock:1"},
    ),
}


def submitted(tmp_path: Path, master: str, conf: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """The part of the command that Spark's submit sees, and the options in the file that it names."""
    options = spark_conf(SessionOptions(master=master, conf=conf), tmp_path)
    whole = command(
        "java", JvmOptions(tmp_path, tmp_path / "spark.log", options, packages=("g:a:1",)), Path(mkdtemp(dir=tmp_path))
    )
    seen = whole[whole.index("org.apache.spark.deploy.SparkSubmit") :]
    lines = Path(seen[seen.index("--properties-file") + 1]).read_text("utf-8").splitlines()
    given = dict(line.replace("\\:", ":").split("=", 1) for line in lines)
    return seen, given


@pytest.mark.parametrize("kind", MASTERS)
def test_a_cluster_gets_its_master_and_options_and_a_driver_in_client_mode(tmp_path: Path, kind: str) -> None:
    master, conf = MASTERS[kind]
    found, given = submitted(tmp_path, master, conf)
    assert {"spark.master": master, "spark.submit.deployMode": "client", **conf}.items() <= given.items()
    assert not given.keys() & {"spark.driver.host", "spark.driver.bindAddress", "spark.local.dir"}
    assert found[-3:] == ["--packages", "g:a:1", "pyspark-shell"]


def test_a_local_master_listens_on_loopback_only(tmp_path: Path) -> None:
    _, given = submitted(tmp_path, "local[2]", {})
    assert {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}.items() <= given.items()


def test_a_driver_cannot_be_sent_away(tmp_path: Path) -> None:
    with pytest.raises(PenstockError) as raised:
        submitted(tmp_path, "yarn", {"spark.submit.deployMode": "cluster"})
    assert raised.value.code == "CONF_NOT_ALLOWED"
