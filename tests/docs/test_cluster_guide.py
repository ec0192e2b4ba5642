"""The targets that the guide on clusters shows become what Spark is given."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docs.pages import ROOT, Block, blocks_of
from tests.engine.test_masters import submitted

from penstock.control.config import ServerConfig, read_server_config
from penstock.engine.session import FIXED

GUIDE = ROOT / "docs" / "guides" / "deploying-on-a-cluster.md"
FILES = [block for block in blocks_of(GUIDE) if block.language == "yaml"]


def config_of(block: Block, tmp_path: Path) -> ServerConfig:
    file = tmp_path / "serve.yaml"
    file.write_text(block.text, "utf-8")
    return read_server_config(file)


def test_every_kind_of_master_is_shown(tmp_path: Path) -> None:
    masters = {target.master for block in FILES for target in config_of(block, tmp_path).targets.values()}
    kinds = {master.partition(":")[0].partition("[")[0] for master in masters}
    assert kinds == {"local", "spark", "yarn", "k8s"}


@pytest.mark.parametrize("block", FILES, ids=str)
def test_the_options_of_a_target_are_what_spark_is_given(block: Block, tmp_path: Path) -> None:
    for target in config_of(block, tmp_path).supervised.values():
        _, given = submitted(tmp_path, target.master, dict(target.conf))
        assert {"spark.master": target.master, **target.conf}.items() <= given.items()
        assert not target.conf.keys() & FIXED.keys()
