"""The safe fixes are written into the file, and cost nothing that a pipeline has."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from tests.doctor.breaking import BAD, HEALTHY

from penstock.doctor.diagnose import diagnose
from penstock.doctor.registry import rules
from penstock.doctor.repair import repair, write
from penstock.errors import PenstockError
from penstock.frontends.load import load
from penstock.spec.diff import cost, differences
from penstock.spec.fields import Change

FIXABLE = {"batch-unlimited", "late-policy-implicit", "starting-offsets-implicit", "throttle-missing"}


def copied(folder: Path, text: bytes | None = None) -> Path:
    file = folder / "pipeline.yaml"
    file.write_bytes(BAD.read_bytes() if text is None else text)
    return file


def repaired(file: Path) -> list[str]:
    """The codes of what was fixed."""
    diagnosis = diagnose(file)
    done = repair(diagnosis)
    write(diagnosis, done)
    return [finding.code for finding in done.fixed]


def test_only_these_rules_have_a_fix_and_each_is_written(tmp_path: Path) -> None:
    assert {name for name, rule in rules().items() if rule.fixable} == FIXABLE

    assert set(repaired(copied(tmp_path))) == FIXABLE


def test_what_was_fixed_is_gone_and_the_rest_is_as_it_was(tmp_path: Path) -> None:
    file = copied(tmp_path)
    before = [finding.code for finding in diagnose(file).findings]

    repaired(file)

    after = [finding.code for finding in diagnose(file).findings]
    assert after == [code for code in before if code not in FIXABLE]


def test_a_second_time_changes_nothing(tmp_path: Path) -> None:
    file = copied(tmp_path)
    repaired(file)
    once = file.read_bytes()
    inode = file.stat().st_ino

    assert repaired(file) == []
    assert (file.read_bytes(), file.stat().st_ino) == (once, inode)


def test_comments_order_and_quotes_stay(tmp_path: Path) -> None:
    file = copied(tmp_path)
    repaired(file)

    old, new = BAD.read_text("utf-8").splitlines(), file.read_text("utf-8").splitlines()
    assert [line for line in new if line not in old] == [
        '      kafka: {bootstrap: "broker-1.example.com:9092", topic: views, onDataLoss: skip, maxRowsPerBatch: '
        '500000, security: {username: shop, password: "${secret:env/KAFKA_PASSWORD}"}, startingOffsets: latest}',
        "      throttle: {adaptive: true}",
        "  late: drop",
    ]
    assert [line for line in old if line not in new] == [old[9]]


def test_a_fix_changes_nothing_that_state_depends_on(tmp_path: Path) -> None:
    file = copied(tmp_path)
    before = load(file).pipeline
    repaired(file)

    changes = differences(before, load(file).pipeline)

    assert {change.path for change in changes} == {
        "sources.views.kafka.maxRowsPerBatch",
        "sources.clicks.throttle.adaptive",
    }
    assert cost(changes) is Change.RESTART


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_ends_of_lines_and_a_mark_at_the_start_stay(tmp_path: Path, newline: bytes, mark: bytes) -> None:
    file = copied(tmp_path, mark + BAD.read_bytes().replace(b"\n", newline))

    assert set(repaired(file)) == FIXABLE

    written = file.read_bytes()
    assert written.startswith(mark + b"# A pipeline")
    assert written.count(b"\n") == written.count(newline) == BAD.read_bytes().count(b"\n") + 2


def test_lines_that_end_in_two_ways_are_left_alone(tmp_path: Path) -> None:
    file = copied(tmp_path, BAD.read_bytes().replace(b"\n", b"\r\n", 3))
    before = file.read_bytes()
    diagnosis = diagnose(file)

    done = repair(diagnosis)
    write(diagnosis, done)

    assert (file.read_bytes(), done.fixed) == (before, ())
    assert {reason for _, reason in done.refused} == {"some lines end with CRLF and some do not"}


def test_a_file_that_was_changed_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    file = copied(tmp_path)
    diagnosis = diagnose(file)
    theirs = BAD.read_bytes() + b"# a colleague was here\n"
    file.write_bytes(theirs)

    with pytest.raises(PenstockError) as refused:
        write(diagnosis, repair(diagnosis))

    assert (refused.value.problems[0].code, refused.value.exit_code) == ("DOCTOR_FILE_CHANGED", 4)
    assert file.read_bytes() == theirs


def test_a_file_that_is_gone_is_not_made_again(tmp_path: Path) -> None:
    file = copied(tmp_path)
    diagnosis = diagnose(file)
    file.unlink()

    with pytest.raises(PenstockError):
        write(diagnosis, repair(diagnosis))

    assert list(tmp_path.iterdir()) == []


def test_permissions_and_links_stay(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    file = copied(tmp_path / "real")
    file.chmod(0o664)
    link = tmp_path / "link.yaml"
    link.symlink_to(file)

    assert set(repaired(link)) == FIXABLE

    assert link.is_symlink()
    assert stat.S_IMODE(file.stat().st_mode) == 0o664
    assert b"late: drop" in file.read_bytes()
    assert os.listdir(tmp_path / "real") == ["pipeline.yaml"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = copied(tmp_path)
    before = file.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        repaired(file)

    assert file.read_bytes() == before
    assert os.listdir(tmp_path) == ["pipeline.yaml"]


def test_a_healthy_file_is_not_touched(tmp_path: Path) -> None:
    file = copied(tmp_path, HEALTHY.read_bytes())
    inode = file.stat().st_ino

    assert repaired(file) == []
    assert (file.read_bytes(), file.stat().st_ino) == (HEALTHY.read_bytes(), inode)


def test_fixes_are_not_written_into_sql_files(tmp_path: Path) -> None:
    file = tmp_path / "clicks.sql"
    text = """\
/* penstock
name: clicks
sources:
  clicks:
    kafka: {bootstrap: "a.example.com:9092,b.example.com:9092", topic: clicks}
    format: {json: {schema: {id: string}}}
sinks:
  out: {from: clicks, files: {path: "s3a://lake/clicks"}}
*/
"""
    file.write_text(text, "utf-8")
    diagnosis = diagnose(file)

    done = repair(diagnosis)
    write(diagnosis, done)

    (found,) = [finding for finding in diagnosis.findings if finding.code == "starting-offsets-implicit"]
    assert (found.location.line, found.location.column) == (5, 5)
    assert [(finding.code, reason) for finding, reason in done.refused] == [
        ("starting-offsets-implicit", "fixes are written into YAML only")
    ]
    assert file.read_text("utf-8") == text
