"""A restoration that is cut off anywhere leaves the old side or the new one, never parts of both."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.components.shared import crashpoints
from penstock.engine.savepoints import journal
from penstock.engine.savepoints.journal import NEW, PARTS, Restoration, begin, finish, note_rewound, pending, undo

OLD_PARTS = ("checkpoint", "spool", "ledger.db", "pipeline.json")


class Cut(BaseException):
    """In place of the end of the process."""


def put(folder: Path, part: str, text: str) -> None:
    if "." in part:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / part).write_text(text, "utf-8")
    else:
        (folder / part).mkdir(parents=True)
        (folder / part / "file").write_text(text, "utf-8")


def side(state: Path) -> dict[str, str]:
    """What each part that is there holds."""
    found = {}
    for part in PARTS:
        path = state / part if "." in part else state / part / "file"
        if path.exists():
            found[part] = path.read_text("utf-8")
    return found


OLD_SIDE = dict.fromkeys(OLD_PARTS, "old")
NEW_SIDE = dict.fromkeys(PARTS, "new")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    for part in OLD_PARTS:
        put(tmp_path, part, "old")
    for part in PARTS:
        put(tmp_path / NEW, part, "new")
    return tmp_path


RESTORATION = Restoration("name", "demo", 7, "built", OLD_PARTS)


def cutting(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Lets so many renamings happen, and ends then."""
    left = iter(range(after))
    rename = Path.rename

    def limited(self: Path, target: Path) -> Path:
        if next(left, None) is None:
            raise Cut
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", limited)


@pytest.mark.parametrize("renamings", range(11))
def test_a_swap_that_was_cut_off_is_finished_by_the_next_to_open(
    state: Path, monkeypatch: pytest.MonkeyPatch, renamings: int
) -> None:
    with monkeypatch.context() as patched:
        cutting(patched, renamings)
        if renamings < len(PARTS) + len(OLD_PARTS):
            with pytest.raises(Cut):
                begin(state, RESTORATION)
        else:
            begin(state, RESTORATION)

    journal.settle(state)

    assert side(state) == NEW_SIDE
    found = pending(state)
    assert found is not None
    assert found.stage == "swapped"


def test_before_it_is_noted_what_was_built_is_thrown_away(state: Path) -> None:
    journal.settle(state)

    assert side(state) == OLD_SIDE
    assert sorted(item.name for item in state.iterdir()) == sorted(OLD_PARTS)


@pytest.mark.parametrize("renamings", range(5))
def test_a_refused_restoration_is_undone_also_if_that_is_cut_off(
    state: Path, monkeypatch: pytest.MonkeyPatch, renamings: int
) -> None:
    begin(state, RESTORATION)
    with monkeypatch.context() as patched:
        cutting(patched, renamings)
        if renamings < len(OLD_PARTS):
            with pytest.raises(Cut):
                undo(state)
        else:
            undo(state)

    journal.settle(state)

    assert side(state) == OLD_SIDE
    assert pending(state) is None
    assert sorted(item.name for item in state.iterdir()) == sorted(OLD_PARTS)


def test_once_a_sink_has_gone_back_there_is_no_way_but_forward(state: Path) -> None:
    begin(state, RESTORATION)
    note_rewound(state, "store")

    undo(state)

    assert side(state) == NEW_SIDE
    found = pending(state)
    assert found is not None
    assert found.rewound == ("store",)


def test_when_it_is_over_the_old_side_is_given_up_and_the_end_is_remembered(state: Path) -> None:
    begin(state, RESTORATION)
    finish(state)

    assert (side(state), pending(state)) == (NEW_SIDE, None)
    last = journal.last(state)
    assert last is not None
    assert last.batch == 7
    assert sorted(item.name for item in state.iterdir()) == sorted([*PARTS, "rewound.json"])


def test_the_points_are_passed_in_order(state: Path) -> None:
    passed: list[str] = []
    crashpoints.install(lambda point, batch: passed.append(point))
    try:
        begin(state, RESTORATION)
        finish(state)
    finally:
        crashpoints.install(None)

    assert tuple(passed) == crashpoints.RESTORE_POINTS
