"""`penstock doctor`: what it prints, what it writes, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.pages import EXAMPLES
from tests.doctor.breaking import BAD, HEALTHY
from tests.e2e.commands import Command, command

from penstock.doctor.diagnose import diagnose
from penstock.doctor.findings import Severity

WARNED = HEALTHY.read_text("utf-8").replace("partitions: 16", "partitions: 1")
INVALID = HEALTHY.read_text("utf-8").replace("from: joined", "from: joint")


@pytest.fixture
def penstock(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return command(monkeypatch, capsys)


def written(folder: Path, text: str, name: str = "p.yaml") -> Path:
    (folder / name).write_text(text, "utf-8")
    return folder / name


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_there_are_no_warnings_in_an_example(path: Path) -> None:
    diagnosis = diagnose(path)

    assert diagnosis.valid
    assert [finding.code for finding in diagnosis.findings if finding.severity is not Severity.INFO] == []


def test_the_exit_code_says_whether_something_is_as_bad_as_asked(penstock: Command, tmp_path: Path) -> None:
    warned, invalid = written(tmp_path, WARNED), written(tmp_path, INVALID, "invalid.yaml")

    assert penstock("doctor", HEALTHY, "--fail-on", "warning").code == 0
    assert penstock("doctor", warned).code == 0
    assert penstock("doctor", warned, "--fail-on", "warning").code == 1
    assert penstock("doctor", BAD).code == 1
    assert penstock("doctor", invalid).code == 2
    assert penstock("doctor", BAD, invalid).code == 2
    assert penstock("doctor", tmp_path / "missing.yaml").code == 2
    assert penstock("doctor", warned, "--fail-on", "info").code == 2


def test_infos_never_fail(penstock: Command, tmp_path: Path) -> None:
    file = written(tmp_path, HEALTHY.read_text("utf-8").replace("trigger: 1 second", "trigger: 10 milliseconds"))

    answer = penstock("doctor", file, "--fail-on", "warning")

    assert answer.code == 0
    assert "info[trigger-short] batches start every 10 milliseconds" in answer.out


def test_a_finding_is_told_with_its_place_why_and_what_to_do(penstock: Command, tmp_path: Path) -> None:
    file = written(tmp_path, WARNED)
    line = WARNED.splitlines().index("  state: {partitions: 1}") + 1

    answer = penstock("doctor", file)

    assert answer.err == ""
    first, why, fix, verdict = answer.out.splitlines()
    assert first.endswith(
        f"p.yaml:{line}:23: warning[state-partitions-one] all state lies in one partition "
        "(joined, users, accounts, hours, recent, counted)"
    )
    assert why.startswith("    Why: A partition is worked on by one core")
    assert fix.startswith("    Fix: Write two to four times the cores")
    assert verdict == f"{file}: 1 warning"


def test_json_is_a_list_of_findings_with_stable_keys(penstock: Command, tmp_path: Path) -> None:
    file = written(tmp_path, WARNED)

    (finding,) = json.loads(penstock("doctor", file, "-o", "json").out)

    assert list(finding) == [
        "code", "severity", "file", "line", "column", "message", "why", "evidence", "fix", "fixable", "fixed",
    ]  # fmt: skip
    assert finding["code"] == "state-partitions-one"
    assert (finding["severity"], finding["file"], finding["column"]) == ("warning", str(file), 23)
    assert finding["evidence"] == {"steps": "joined, users, accounts, hours, recent, counted", "partitions": 1}
    assert (finding["fixable"], finding["fixed"]) == (False, False)


def test_json_of_a_healthy_pipeline_is_an_empty_list(penstock: Command) -> None:
    assert json.loads(penstock("doctor", HEALTHY, "-o", "json").out) == []


def test_of_an_invalid_file_only_what_validate_says_is_told(penstock: Command, tmp_path: Path) -> None:
    file = written(tmp_path, INVALID.replace("partitions: 16", "partitions: 1"))

    found = json.loads(penstock("doctor", file, "-o", "json").out)

    assert [(finding["code"], finding["severity"]) for finding in found] == [("INPUT_UNKNOWN", "error")]
    assert INVALID.splitlines()[found[0]["line"] - 1].startswith("    lake: {from: joint")
    assert found[0]["fix"] == "Did you mean 'joined'?"


def test_warnings_of_validate_are_among_the_findings(penstock: Command, tmp_path: Path) -> None:
    text = HEALTHY.read_text("utf-8").replace(
        '    priced_out: {from: priced, files: {path: "s3a://lake/priced"}}\n', ""
    )

    found = json.loads(penstock("doctor", written(tmp_path, text), "-o", "json").out)

    assert [(finding["code"], finding["severity"]) for finding in found] == [("STEP_UNUSED", "warning")]


def test_fixes_are_written_and_told_once(penstock: Command, tmp_path: Path) -> None:
    file = written(tmp_path, HEALTHY.read_text("utf-8").replace(", startingOffsets: latest", ""))

    told = penstock("doctor", file, "--fail-on", "warning")
    first = penstock("doctor", file, "--fail-on", "warning", "--fix")
    second = penstock("doctor", file, "--fail-on", "warning", "--fix")

    assert (told.code, told.out.splitlines()[-1]) == (1, f"{file}: 1 warning; --fix writes 1 of the fixes")
    assert (first.code, first.out.splitlines()[-2:]) == (0, ["    Fixed.", f"{file}: nothing found, 1 fixed"])
    assert (second.code, second.out) == (0, f"{file}: nothing found\n")
    assert file.read_text("utf-8") == HEALTHY.read_text("utf-8")


def test_json_tells_what_was_fixed(penstock: Command, tmp_path: Path) -> None:
    found = json.loads(penstock("doctor", written(tmp_path, BAD.read_text("utf-8")), "--fix", "-o", "json").out)

    assert {finding["code"] for finding in found if finding["fixed"]} == {
        "batch-unlimited", "late-policy-implicit", "starting-offsets-implicit", "throttle-missing",
    }  # fmt: skip
    assert [finding["code"] for finding in found if finding["fixed"] != finding["fixable"]] == []


def test_an_invalid_file_is_never_changed(penstock: Command, tmp_path: Path) -> None:
    text = BAD.read_text("utf-8").replace("from: joined", "from: joint")
    file = written(tmp_path, text)

    assert penstock("doctor", file, "--fix").code == 2
    assert file.read_text("utf-8") == text


def test_the_state_folder_is_looked_at_if_it_is_named(penstock: Command) -> None:
    answer = penstock("doctor", HEALTHY, "--state-dir", "/tmp/penstock-state")

    assert answer.code == 1
    assert "error[state-in-temporary-folder] the state folder /tmp/penstock-state is temporary" in answer.out


def test_no_secret_is_looked_up_or_shown(penstock: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PG_PASSWORD", "hunter2-of-the-database")
    file = written(tmp_path, HEALTHY.read_text("utf-8").replace("{team: news}", "{team: ghp_abcdefghijklmnopqrstuvwx}"))

    answer = penstock("doctor", file, "-o", "json")

    assert [finding["code"] for finding in json.loads(answer.out)] == ["secret-literal"]
    assert "ghp_" not in answer.text
    assert "hunter2" not in answer.text
    for output in ("text", "json"):
        assert "AKIA" in BAD.read_text("utf-8")
        assert "AKIA" not in penstock("doctor", BAD, "-o", output).text


def test_spark_is_not_loaded() -> None:
    program = (
        "import sys\nfrom pathlib import Path\nfrom penstock.doctor.diagnose import diagnose\n"
        f"assert diagnose(Path({str(BAD)!r})).findings\n"
        "print(*sorted({'pyspark', 'py4j'} & set(sys.modules)))"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stdout.split(), done.stderr) == (0, [], "")
