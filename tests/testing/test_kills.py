"""Kills are counted for the sinks they say something of, and by several processes at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.components.base import Sink
from penstock.components.registry import components
from penstock.components.shared import crashpoints
from penstock.components.shared.crashpoints import MEANINGS
from penstock.components.sinks.files import Files
from penstock.components.sinks.sqlite import Sqlite
from penstock.docs.kills import results_page
from penstock.testing import Kill
from penstock.testing.crash import MOMENTS
from penstock.testing.kills import FILE, WRITING, Tally, note, read_tally

SINKS = {"raw": Files(path="out"), "one": Sqlite(path="db", table="one"), "two": Sqlite(path="db", table="two")}
KINDS = {"raw": "files", "one": "sqlite", "two": "sqlite"}


def test_a_kill_at_a_sink_counts_for_its_kind_and_any_other_for_all_kinds_once() -> None:
    kills = [Kill("sink.after_commit", 3, "two"), Kill("batch.start", 4), Kill("sink.in_transaction", 5)]

    tally = Tally().with_kills(KINDS, kills)

    assert tally.kills == {"sqlite": {"sink.after_commit": 1, "batch.start": 1}, "files": {"batch.start": 1}}
    # Where there is one sink only, it is the one whose point was reached.
    assert tally.with_kills({"raw": "files"}, kills[2:]).kills["files"] == {"batch.start": 1, "sink.in_transaction": 1}


def test_random_kills_tell_which_sink_was_storing_a_batch() -> None:
    kills = [
        Kill("random", 1, reached="sink.before_write@1@raw", seed=7),
        Kill("random", 1, reached="sink.after_commit@1@raw", seed=7),
        Kill("random", 2, reached="sink.in_transaction@2@two", seed=3),
        Kill("random", 2, reached="batch.start@2@", seed=3),
        Kill("commits.written", 2, reached="sink.in_transaction@2@two"),
    ]

    tally = Tally(seeds=(5,)).with_kills(KINDS, kills)

    assert tally.kills == {kind: {"random": 4, WRITING: 1, "commits.written": 1} for kind in ("files", "sqlite")}
    assert tally.seeds == (3, 5, 7)


def test_kills_are_noted_where_it_is_asked_for_and_added_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "kills.json"
    monkeypatch.delenv(FILE, raising=False)
    note(SINKS, [Kill("batch.start", 0)])
    assert not file.exists()

    monkeypatch.setenv(FILE, str(file))
    for _ in range(2):
        note(SINKS, [Kill("batch.start", 0), Kill("random", 0, seed=1)])

    assert read_tally(file) == Tally({kind: {"batch.start": 2, "random": 2} for kind in ("files", "sqlite")}, (1,))


def test_processes_that_note_at_once_lose_nothing(tmp_path: Path) -> None:
    file = tmp_path / "kills.json"
    program = (
        f"import os; os.environ[{FILE!r}] = {str(file)!r}\n"
        "from penstock.components.sinks.files import Files\n"
        "from penstock.testing.kills import Kill, note\n"
        "for _ in range(50): note({'raw': Files(path='out')}, [Kill('batch.start', 0)])\n"
    )
    started = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(3)]

    assert [process.wait(120) for process in started] == [0, 0, 0]
    assert read_tally(file).kills == {"files": {"batch.start": 150}}


# --- the page ------------------------------------------------------------------------------------------------------


def test_the_page_adds_up_what_the_file_says() -> None:
    kills = {"files": {"batch.start": 2, "random": 40, WRITING: 9}, "kafka": {"sink.in_transaction": 1_000}}
    rows = results_page(Tally(kills, (1, 2, 3, 9))).splitlines()

    (files, kafka, console) = [
        [cell.strip() for cell in row.split("|")][3:7] for name in ("files", "kafka", "console")
        for row in rows if row.startswith(f"| `{name}` |")
    ]  # fmt: skip
    assert files == ["2", "42", "40", "9"]
    assert kafka == ["1", "1,000", "0", "0"]
    assert console == ["–", "–", "–", "–"]
    assert f"| `batch.start` | {MEANINGS['batch.start']} | 2 | 0 |" in rows
    assert any("1 to 3, 9" in row for row in rows)


@pytest.mark.parametrize("kills", [{"filse": {"random": 1}}, {"files": {"batch.strat": 1}}])
def test_a_file_that_tells_of_what_there_is_not_is_refused(kills: dict[str, dict[str, int]]) -> None:
    with pytest.raises(ValueError, match=r"filse|batch\.strat"):
        results_page(Tally(kills))


def test_every_point_says_where_it_is() -> None:
    groups = [value for name, value in vars(crashpoints).items() if name == "POINTS" or name.endswith("_POINTS")]
    assert {point for group in groups for point in group} == {*MEANINGS}
    assert not {*MOMENTS} & {*MEANINGS}


@pytest.mark.parametrize("sink", [cls for cls in components("sink").values() if issubclass(cls, Sink)])
def test_every_sink_says_what_it_promises(sink: type[Sink]) -> None:
    assert sink.guarantee.startswith(("Exactly once", "At least once", "Once"))
    assert sink.guarantee.endswith(".")
