"""Findings are accepted by comments, each rule by its id, and only where the comment stands."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.doctor.breaking import BAD, HEALTHY, diagnosed

from penstock.doctor.diagnose import diagnose
from penstock.doctor.ignored import ignored_rules
from penstock.doctor.repair import repair

WARNED = HEALTHY.read_text("utf-8").replace("partitions: 16", "partitions: 1")
LINE = "  state: {partitions: 1}\n"


def test_a_comment_holds_for_its_line_or_the_next_one_that_is_no_comment() -> None:
    text = """\
a: 1  # doctor: ignore one-rule
# doctor: ignore two-rule, three-rule: as it is small
# and for no other reason

b: 2
c: 3  # nothing to see
"""

    assert {line: set(ids) for line, ids in ignored_rules(text).items() if ids} == {
        1: {"one-rule"},
        5: {"two-rule", "three-rule"},
    }


@pytest.mark.parametrize(
    ("written", "left"),
    [
        (LINE, ["state-partitions-one"]),
        ("  state: {partitions: 1}  # doctor: ignore state-partitions-one\n", []),
        ("  # doctor: ignore tests-missing, state-partitions-one: one core is enough\n" + LINE, []),
        ("  # doctor: ignore state-partitions-one\n  run: {}\n" + LINE, ["state-partitions-one"]),
        ("  state: {partitions: 1}  # doctor: ignore state-partitions\n", ["state-partitions-one"]),
        ("  state: {partitions: 1}  # ignore state-partitions-one\n", ["state-partitions-one"]),
    ],
)
def test_a_finding_is_accepted_by_the_id_of_its_rule(written: str, left: list[str]) -> None:
    run = "  run:\n    trigger: 1 second\n    restart: {maxPerHour: 6}\n"
    text = WARNED.replace(LINE, written)
    diagnosis = diagnosed(text.replace(run, "") if "  run: {}" in text else text)

    assert [finding.code for finding in diagnosis.findings] == left
    assert diagnosis.ignored == 1 - len(left)


def test_an_accepted_finding_is_not_fixed() -> None:
    text = BAD.read_text("utf-8").replace(
        "    clicks:\n      kafka", "    clicks:  # doctor: ignore throttle-missing\n      kafka"
    )

    fixed = {finding.code for finding in repair(diagnosed(text)).fixed}

    assert fixed == {"batch-unlimited", "late-policy-implicit", "starting-offsets-implicit"}


def test_comments_count_in_python_files_too(tmp_path: Path) -> None:
    file = tmp_path / "clicks.py"
    file.write_text(
        """\
import penstock as ps

pipeline = ps.Pipeline("clicks")
clicks = pipeline.source("clicks", ps.sources.Memory(schema={"id": "string"}))
# doctor: ignore sink-guarantee-weak
clicks.to("screen", ps.sinks.Console())
clicks.to("other", ps.sinks.Console())
""",
        "utf-8",
    )

    diagnosis = diagnose(file)

    assert [(finding.code, finding.location.line) for finding in diagnosis.findings] == [
        ("tests-missing", 3),
        ("sink-guarantee-weak", 7),
    ]
    assert diagnosis.ignored == 1
