"""A files sink that goes back to savepoints: whoever reads at whatever moment finds the state before or after."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from tests.components.test_files_merging import DAY, Clock, Died, Lists, Memory, Rows, Runs, Sinking

from penstock.components.base import Batch, SinkContext
from penstock.components.shared import crashpoints
from penstock.components.shared.going_back import PINS, TIMELINE, Gone, read_manifests, read_pins, up_to
from penstock.components.shared.manifests import FOLDER, Span
from penstock.components.sinks.files import Files, FilesWriter
from penstock.errors import PenstockError


class Watched(Memory):
    """A storage at which somebody looks after each change."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.changed: Callable[[], None] = lambda: None

    def write(self, name: str, text: str) -> None:
        super().write(name, text)
        self.changed()

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            super().delete([name])
            self.changed()


def dying_at(point: str) -> crashpoints.Hook:
    def die(reached: str, number: int) -> None:
        if reached == point:
            raise Died

    return die


class Rewinding(Sinking):
    """The same runs, which also go back: to any savepoint, also to one that lies ahead since they went back before."""

    @initialize(many=st.integers(2, 4))
    def begin(self, many: int) -> None:
        self.clock = Clock()
        self.store = Watched(self.clock)
        self.sink = Files(path="out", compact=many)
        self.expected = []
        self.next_batch, self.epoch, self.next_number = 0, 0, 0
        self.listed = None
        self.older = None
        self.savepoints: dict[str, tuple[int, dict[str, Any], list[int]]] = {}
        self.taken = 0
        self.reopen()

    @rule()
    def take_a_savepoint(self) -> None:
        position = self.writer.position()
        name = f"s/{self.taken}"
        self.taken += 1
        self.writer.pin(name, position)
        self.savepoints[name] = (self.next_batch - 1, position, list(self.expected))

    @rule(data=st.data())
    @precondition(lambda self: bool(getattr(self, "savepoints", None)))
    def give_a_savepoint_up(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.savepoints)))
        self.writer.release(name)
        self.writer.release(name)
        del self.savepoints[name]

    @rule(data=st.data(), dies=st.integers(0, 2), new_run=st.booleans())
    @precondition(lambda self: bool(getattr(self, "savepoints", None)))
    def go_back(self, data: st.DataObject, dies: int, new_run: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.savepoints)))
        batch, position, held = self.savepoints[name]
        before, after = sorted(self.expected), sorted(held)

        def look() -> None:
            assert self._read(read_manifests(self.store)) in (before, after)

        if new_run or dies:
            self.reopen()
        assert isinstance(self.store, Watched)
        self.store.changed = look
        for _ in range(dies):
            crashpoints.install(dying_at("sink.rewinding"))
            with pytest.raises(Died):
                self.writer.rewind(batch, position)
            crashpoints.install(None)
            before = after
            self.reopen()
        self.writer.rewind(batch, position)
        self.store.changed = lambda: None
        self.expected, self.next_batch = list(held), batch + 1

    @rule()
    def what_is_old_and_useless_goes(self) -> None:
        self.clock.now += 2 * DAY
        self.reopen()
        named = {file.path for item in read_manifests(self.store) for file in item.files}
        there = {file.path for file in self.store.files("")}
        assert named <= there
        if not self.savepoints:
            assert named == there


Rewinding.TestCase.settings = settings(max_examples=20, stateful_step_count=30)
TestRewinding = Rewinding.TestCase


class Longer(Rewinding):
    pass


Longer.TestCase.settings = settings(max_examples=600, stateful_step_count=60)
TestRewindingForLong = pytest.mark.long(Longer.TestCase)


# --- single moments ------------------------------------------------------------------------------------------


def test_all_that_was_written_since_is_gone_and_comes_again_once() -> None:
    runs = Runs(compact=4)
    writer = runs.open()
    positions, newer = {}, writer
    for batch in range(10):
        runs.write(writer, batch, batch)
        positions[batch] = writer.position()
        writer.pin(str(batch), positions[batch])
    for batch in (9, 5, 7, 2):
        newer = runs.open(newer.context.epoch + 1)
        newer.rewind(batch, positions[batch])
        newer.rewind(batch, positions[batch])
        assert runs.stored() == list(range(batch + 1))
    for batch in range(3, 8):
        assert runs.write(newer, batch, 100 + batch)
    assert runs.stored() == [0, 1, 2, *range(103, 108)]


def test_what_the_savepoint_had_not_committed_goes_too() -> None:
    runs = Runs(compact=4)
    writer = runs.open()
    for batch in range(4):
        runs.write(writer, batch, batch)
    assert [item.span for item in read_manifests(runs.store)] == [Span(0, 3, 1)]
    position = writer.position()
    newer = runs.open(2)
    newer.rewind(2, position)
    assert runs.stored() == [0, 1, 2]
    assert runs.write(newer, 3, 33)
    assert runs.stored() == [0, 1, 2, 33]


def test_without_what_it_was_merged_from_a_manifest_cannot_be_divided() -> None:
    with pytest.raises(Gone, match="later batches"):
        up_to(2, {Span(0, 3, 1).name: 0})
    assert up_to(3, {Span(0, 3, 1).name: 0, Span(4, 4).name: 2}) == {Span(0, 3, 1).name: 0}


def test_an_older_run_is_refused_afterwards() -> None:
    runs = Runs()
    older = runs.open(1)
    runs.write(older, 0, 0)
    position = older.position()
    runs.write(older, 1, 1)
    newer = runs.open(2)
    newer.rewind(0, position)
    for action in (lambda: runs.write(older, 2, 2), lambda: older.rewind(0, position)):
        with pytest.raises(PenstockError) as raised:
            action()
        assert raised.value.code == "SINK_FENCED"
    assert runs.stored() == [0]


@pytest.mark.parametrize("empty", [True, False])
@pytest.mark.parametrize("merging", [True, False])
def test_what_a_run_writes_that_was_overtaken_does_not_count(merging: bool, empty: bool) -> None:
    runs = Runs(compact=2)
    older = runs.open(1)
    runs.write(older, 0, 0)
    position = older.position()
    held: list[Any] = []
    commit = older._commit

    def hold(manifest: Any) -> None:
        if manifest.span.level == int(merging):
            held.append(manifest)
            raise Died
        commit(manifest)

    older._commit = hold  # type: ignore[method-assign]
    with pytest.raises(Died):
        runs.write(older, 1, 1)
    newer = runs.open(2)
    newer.rewind(0, position)
    older._refuse_if_fenced = lambda: None  # type: ignore[method-assign]
    commit(held[0])
    assert held[0].span.path in runs.store.content
    assert runs.stored() == [0]
    assert newer.write(Batch("demo", "l", 2, 1), Rows([] if empty else [[11]]))  # type: ignore[arg-type]
    runs.write(newer, 2, 12)
    runs.write(newer, 3, 13)
    assert sorted(runs.stored()) == [0, *([] if empty else [11]), 12, 13]
    runs.clock.now += 2 * DAY
    runs.open(3)
    assert sorted(runs.stored()) == [0, *([] if empty else [11]), 12, 13]


def test_a_reader_in_the_middle_sees_the_state_before_or_after() -> None:
    seen = set()
    for moment in range(40):
        runs = Runs(compact=3)
        writer = runs.open()
        for batch in range(5):
            runs.write(writer, batch, batch)
        position = writer.position()
        for batch in range(5, 9):
            runs.write(writer, batch, batch)
        newer, left = runs.open(2), [moment]
        read = runs.store.read

        def counted(
            name: str, newer: FilesWriter = newer, left: list[int] = left, read: Callable[[str], str | None] = read
        ) -> str | None:
            left[0] -= 1
            if left[0] == 0:
                newer.rewind(4, position)  # noqa: B023
                for batch in range(5, 8):
                    newer.write(Batch("demo", "l", 2, batch), Rows([[100 + batch]]))  # type: ignore[arg-type]
            return read(name)

        runs.store.read = counted  # type: ignore[method-assign]
        manifests = read_manifests(runs.store)
        data = Lists(runs.store)
        seen.add(tuple(sorted(number for item in manifests for file in item.files for number in data.read(file.path))))
    assert seen == {tuple(range(9)), (0, 1, 2, 3, 4, 105, 106, 107)}


def test_a_file_that_is_gone_is_named_and_nothing_is_changed() -> None:
    runs = Runs(compact=None)
    writer = runs.open()
    for batch in range(3):
        runs.write(writer, batch, batch)
    position = writer.position()
    runs.write(writer, 3, 3)
    (lost,) = read_manifests(runs.store)[1].files
    text = runs.store.content.pop(lost.path)
    newer = runs.open(2)
    before = dict(runs.store.content)
    with pytest.raises(PenstockError) as raised:
        newer.rewind(2, position)
    assert raised.value.code == "SINK_CANNOT_REWIND"
    assert lost.path in str(raised.value)
    assert runs.store.content == before
    runs.store.content[lost.path] = text
    newer.rewind(2, position)
    assert runs.stored() == [0, 1, 2]


@pytest.mark.parametrize("pinned", [True, False])
def test_what_a_savepoint_counts_on_stays_as_long_as_it_is_pinned(pinned: bool) -> None:
    runs = Runs(compact=2, keep="0 seconds")
    writer = runs.open()
    for batch in range(3):
        runs.write(writer, batch, batch)
    position = writer.position()
    if pinned:
        writer.pin("before/the change", position)
        assert [*read_pins(runs.store)] == ["before/the change"]
        assert len(runs.store.names(PINS)) == 1
    for batch in range(3, 9):
        runs.clock.now += 10
        runs.write(writer, batch, batch)
    newer = runs.open(2)
    if pinned:
        newer.pin("again", position)
        newer.rewind(2, position)
        assert runs.stored() == [0, 1, 2]
        newer.release("before/the change")
        return
    actions: tuple[Callable[[], None], ...] = (
        lambda: newer.rewind(2, position),
        lambda: newer.pin("too late", position),
    )
    for action in actions:
        with pytest.raises(PenstockError) as raised:
            action()
        assert raised.value.code == "SINK_CANNOT_REWIND"
        assert FOLDER in str(raised.value)
    assert read_pins(runs.store) == {}
    assert runs.stored() == list(range(9))


def test_a_savepoint_without_a_position_is_refused() -> None:
    runs = Runs()
    writer = runs.open()
    runs.write(writer, 0, 0)
    actions: tuple[Callable[[], None], ...] = (lambda: writer.rewind(-1, {}), lambda: writer.forget(-1))
    for action in actions:
        with pytest.raises(PenstockError) as raised:
            action()
        assert raised.value.code == "SINK_CANNOT_REWIND"
    assert runs.stored() == [0]


def test_an_output_can_go_back_to_nothing() -> None:
    runs = Runs()
    position = runs.open().position()
    runs.write(runs.open(2), 0, 0)
    newer = runs.open(3)
    newer.rewind(-1, position)
    assert runs.stored() == []
    assert runs.write(newer, 0, 7)
    assert runs.stored() == [7]


def test_a_run_that_died_while_it_went_back_is_finished_by_the_next_that_opens() -> None:
    runs = Runs(compact=None)
    writer = runs.open()
    for batch in range(3):
        runs.write(writer, batch, batch)
    newer = runs.open(2)
    crashpoints.install(dying_at("sink.rewinding"))
    try:
        with pytest.raises(Died):
            newer.rewind(0, {"manifests": {Span(0, 0).name: 0}})
    finally:
        crashpoints.install(None)
    assert runs.stored() == [0]
    assert len(runs.store.names(FOLDER)) == 3
    last = runs.open(3)
    assert runs.store.names(FOLDER) == [Span(0, 0).name]
    assert '"settled": true' in (runs.store.read(TIMELINE) or "")
    assert runs.write(last, 1, 8)
    assert runs.stored() == [0, 8]
    assert isinstance(last.context, SinkContext)
    assert last.context.folder == Path()
