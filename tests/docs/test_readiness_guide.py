"""The guide on production readiness knows every rule, and what it shows is what the doctor says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.docs.pages import ROOT, blocks_of, project_of
from tests.e2e.commands import command

from penstock.doctor.registry import rules
from penstock.doctor.running import RULES

GUIDE = ROOT / "docs" / "guides" / "production-readiness.md"
ROW = re.compile(r"^\| `([a-z-]+)` \| (\w+) \| (\w+) \| ([^|]+) \|$", re.MULTILINE)


def test_every_rule_is_in_the_guide_as_it_is() -> None:
    listed = ROW.findall(GUIDE.read_text("utf-8"))

    assert sorted((name, severity, scope) for name, severity, scope, _ in listed) == [
        (name, str(rule.severity), "production" if rule.production_only else "all") for name, rule in rules().items()
    ]


def test_every_rule_on_running_pipelines_is_in_the_guide_as_it_is() -> None:
    listed = re.findall(r"^\| `([a-z-]+)` \| (\w+) \| [^|]+ \|$", GUIDE.read_text("utf-8"), re.MULTILINE)

    assert listed == sorted((rule.id, str(rule.severity)) for rule in RULES)


def test_the_guide_names_the_rules_that_are_fixed() -> None:
    text = GUIDE.read_text("utf-8")
    section = text[text.index("## Let the safe fixes") : text.index("## Accept a finding")]

    named = set(re.findall(r"`([a-z]+(?:-[a-z]+)+)`", section))
    assert named == {name for name, rule in rules().items() if rule.fixable}


def test_the_output_in_the_guide_is_what_the_doctor_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (shown,) = [block.text for block in blocks_of(GUIDE) if block.language == "text"]
    with project_of(GUIDE, tmp_path):
        monkeypatch.chdir(tmp_path)
        penstock = command(monkeypatch, capsys)

        answer = penstock("doctor", "clicks.yaml")
        accepted = penstock("doctor", "countries.yaml", "--fail-on", "warning")

    assert (answer.out, answer.code) == (shown, 1)
    assert (accepted.out.splitlines()[-1], accepted.code) == ("countries.yaml: 1 info, 1 ignored", 0)
