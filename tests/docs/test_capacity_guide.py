"""What the guide on capacity shows is what the command prints, for the scenarios that it shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from tests.capacity.histories import TrueCosts, history, state_folder
from tests.docs.pages import ROOT, Block, blocks_of, project_of
from tests.docs.test_docs import commands
from typer.testing import CliRunner

from penstock.cli.main import app

GUIDE = ROOT / "docs" / "guides" / "capacity.md"
EXAMPLES = ROOT / "examples" / "capacity"


def printed(call: list[str]) -> str:
    result = CliRunner().invoke(app, call[1:])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_every_command_of_the_guide_runs_and_every_output_is_of_one_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = blocks_of(GUIDE)
    calls = [call for block in blocks if block.language == "sh" for call in commands(block.text)]
    with project_of(GUIDE, tmp_path) as folder:
        monkeypatch.chdir(folder)
        state_folder(folder, history(TrueCosts(0.4, 50e-6), batches=900))
        outputs = [printed(call) for call in calls]

    assert len(calls) == 6
    shown = [part for block in blocks if block.language == "text" for part in block.text.split("\n\n")]
    assert len(shown) == 17
    for part in shown:
        assert any(part.strip("\n") in output for output in outputs), part


@pytest.mark.parametrize("name", ["guide.yaml", "day.yaml"])
def test_the_scenarios_of_the_guide_are_those_of_the_examples(name: str) -> None:
    (block,) = [block for block in blocks_of(GUIDE) if block.file_name == name]

    assert content(block) == YAML(typ="safe").load((EXAMPLES / name).read_text("utf-8"))
    assert sorted(path.name for path in EXAMPLES.glob("*.yaml")) == ["day.yaml", "guide.yaml"]


def content(block: Block) -> Any:
    return YAML(typ="safe").load(block.text)


def test_without_rounding_the_sum_is_what_the_guide_says(tmp_path: Path) -> None:
    text = (EXAMPLES / "guide.yaml").read_text("utf-8").replace("roundTo: 1 MB/s\n", "")
    exact = tmp_path / "exact.yaml"
    exact.write_text(text, "utf-8")

    assert "  overall                     10,333 MB/s     = 82.67 Gbit/s" in printed(["", "capacity", str(exact)])
