"""`penstock cutover`: what it refuses and how it prints, without Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.engine.savepoints.made import BODY, made
from typer.testing import CliRunner

from penstock.cli import cutover as verbs
from penstock.cli.main import app
from penstock.engine.cutover import note
from penstock.engine.cutover.comparing import Compared, Sample
from penstock.engine.cutover.follower import Standing
from penstock.engine.cutover.note import Cutover
from penstock.engine.cutover.overlap import SinkCompared
from penstock.engine.statedir import StateDir, read_identity
from penstock.errors import PenstockError
from penstock.reports.version import Version
from penstock.runner import cutover
from penstock.spec.dump import as_document

UNDER_WAY = Cutover("demo", "/p/new.yaml", "f", "b", "20240101T000000Z", "2024-01-01T00:00:00", "following", 3)


def told(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["cutover", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def refused(*arguments: str | Path) -> tuple[str, str]:
    with pytest.raises(PenstockError) as raised:
        told(*arguments)
    return raised.value.code, str(raised.value)


def write(path: Path, name: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(BODY.replace("NAME", name), "utf-8")
    return path


def test_without_a_cut_over_nothing_is_shown_finished_or_given_up(tmp_path: Path) -> None:
    found = made(tmp_path)
    arguments = (found.file.path, "--state-dir", found.state)
    for verb in ("status", "compare", "finish", "abort"):
        assert refused(verb, *arguments)[0] == "CUTOVER_UNKNOWN"


def test_what_cannot_take_over_is_told_before_spark_starts(tmp_path: Path) -> None:
    found = made(tmp_path)
    name = found.file.pipeline.name
    there = ("--state-dir", found.state)
    other = write(tmp_path / "other.yaml", "other")
    assert "is called 'other'" in refused("start", found.file.path, other, *there)[1]
    elsewhere = write(tmp_path / "away" / "new.yaml", name)
    assert "another folder" in refused("start", found.file.path, elsewhere, *there)[1]
    new = write(tmp_path / "new.yaml", name)
    assert "which version" in refused("start", found.file.path, new, *there)[1]
    assert refused("start", found.file.path, new, "--state-dir", tmp_path / "none")[0] == "STATE_MISSING"
    assert not (tmp_path / "none").exists()


def test_one_command_at_a_time(tmp_path: Path) -> None:
    found = made(tmp_path)
    with cutover._alone(found.state, "demo"):
        assert refused("abort", found.file.path, "--state-dir", found.state)[0] == "CUTOVER_REFUSED"


def test_status_tells_how_far_it_is(tmp_path: Path) -> None:
    found = made(tmp_path)
    note.write(found.state, replace(UNDER_WAY, pipeline=found.file.pipeline.name))
    arguments = ("status", found.file.path, "--state-dir", found.state)
    code, text = told(*arguments)
    assert code == 0
    assert "to /p/new.yaml" in text
    assert "nothing follows now" in text
    content = json.loads(told(*arguments, "-o", "json")[1])
    assert (content["stage"], content["stands"], content["following"]) == ("following", 3, False)


def test_giving_up_before_it_has_begun_takes_all_away(tmp_path: Path) -> None:
    found = made(tmp_path)
    name = found.file.pipeline.name
    with StateDir(found.state, name) as state:
        state.note_version(Version(as_document(found.file.pipeline)))
    before = read_identity(found.state)
    note.write(found.state, replace(UNDER_WAY, pipeline=name, stage="preparing"))
    arguments = (found.file.path, "--state-dir", found.state)
    assert refused("finish", *arguments)[0] == "CUTOVER_REFUSED"
    assert told("abort", *arguments)[0] == 0
    assert note.find(found.state) is None
    assert read_identity(found.state) == before


def test_differences_are_shown_with_samples_and_an_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sample = Sample({"id": "1", "n": "2"}, {"id": "1", "n": None})
    differing = SinkCompared("store", "time", Compared(5, 1, 0, 0, (sample,)), "", ("first",))
    equal = SinkCompared("rows", "new rows", Compared(7))
    left_out = SinkCompared("topic", "not compared", reason="what it has stored cannot be read back")
    file = made(tmp_path).file.path
    found: list[tuple[SinkCompared, ...]] = [(differing, equal, left_out)]
    monkeypatch.setattr(cutover, "compare", lambda *_: (Standing(4, 5, 6), found[0]))
    code, text = told("compare", file)
    assert code == 1
    assert "after batch 5, 1 batch behind" in text
    assert "store: left out, as new: first" in text
    assert "store - id: 1, n: 2\nstore + id: 1, n: null\n" in text
    lines = {line.split()[0]: line.split()[1:5] for line in text.splitlines() if line}
    assert (lines["rows"], lines["topic"][:2]) == (["7", "0", "-", "0"], ["-", "-"])
    found[0] = (equal, left_out)
    assert told("compare", file)[0] == 0
    assert json.loads(told("compare", file, "-o", "json")[1])["sinks"][0]["compared"]["equal"] == 7
    assert verbs._batches(1_200) == "1,200 batches"
