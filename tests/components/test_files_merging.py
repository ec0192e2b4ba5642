"""Merging and sweeping of a files sink: whoever reads at whatever moment finds each stored batch once.

The sink itself runs here, on a folder, with rows that are lists and a clock that is set; so Spark is not needed and
thousands of steps are tried.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.components.base import Batch, SinkContext
from penstock.components.shared import crashpoints
from penstock.components.shared.going_back import read_manifests
from penstock.components.shared.manifests import (
    FOLDER,
    Cover,
    File,
    Manifest,
    Span,
    due,
    merged,
    packed,
    to_rewrite,
    visible,
    written_for,
)
from penstock.components.shared.storage import StoredFile
from penstock.components.sinks.files import Files, FilesWriter
from penstock.errors import PenstockError

DAY = 86_400.0
_COUNT = itertools.count()
SCHEMA = {"type": "struct", "fields": []}


@dataclass
class Rows:
    """Stands in for a frame: how the rows are dealt to files."""

    files: Sequence[Sequence[int]]
    schema: Any = field(default_factory=lambda: SimpleNamespace(jsonValue=lambda: SCHEMA))


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


class Memory:
    """A storage without a disk; its files are as old as the clock says."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.content: dict[str, tuple[str, float]] = {}

    def read(self, name: str) -> str | None:
        return self.content[name][0] if name in self.content else None

    def write(self, name: str, text: str) -> None:
        self.content[name] = (text, self.clock.now)

    def create(self, name: str, text: str) -> bool:
        if name in self.content:
            return False
        self.write(name, text)
        return True

    def names(self, folder: str) -> list[str]:
        below = [name.removeprefix(f"{folder}/") for name in self.content if name.startswith(f"{folder}/")]
        return sorted({name.split("/")[0] for name in below})

    def files(self, folder: str) -> Iterator[StoredFile]:
        for name, (text, modified) in list(self.content.items()):
            if name.startswith(folder) and (folder or not name.startswith("_")):
                yield StoredFile(name, len(text), modified)

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self.content.pop(name, None)


class Lists:
    """Data files that hold lists of numbers."""

    def __init__(self, store: Memory) -> None:
        self.store = store

    def write(self, rows: Any, folder: str) -> list[File]:
        return [self._put(folder, list(some)) for some in rows.files]

    def merge(self, files: Sequence[File], schema: object, folder: str) -> list[File]:
        groups = [[number for file in some for number in self.read(file.path)] for _, some in packed(files, 400)]
        return [self._put(folder, group) for group in groups]

    def discard(self, folder: str) -> None:
        raise AssertionError("nothing has failed")

    def read(self, path: str) -> list[int]:
        text = self.store.read(path)
        assert text is not None, f"{path} is gone"
        return list(json.loads(text))

    def _put(self, folder: str, numbers: list[int]) -> File:
        text = json.dumps(numbers)
        path = f"{folder}/part-{next(_COUNT)}.json"
        self.store.write(path, text)
        return File(path, len(text))


class Died(Exception):
    pass


class Sinking(RuleBasedStateMachine):
    """Runs come and go, some die in the middle, some wake up late; readers take their time."""

    @initialize(many=st.integers(2, 4))
    def begin(self, many: int) -> None:
        self.clock = Clock()
        self.store = Memory(self.clock)
        self.sink = Files(path="out", compact=many)
        self.expected: list[int] = []
        self.next_batch, self.epoch, self.next_number = 0, 0, 0
        self.listed: tuple[float, list[Manifest], list[int]] | None = None
        self.older: tuple[FilesWriter, int] | None = None
        self.reopen()

    def teardown(self) -> None:
        crashpoints.install(None)

    def _writer(self, epoch: int) -> FilesWriter:
        spark: Any = None
        context = SinkContext(spark, "out", Path(), "demo", "l", epoch, {})
        writer = FilesWriter(self.sink, "out", self.store, context, self.clock)
        writer.data = Lists(self.store)
        return writer

    @rule()
    def reopen(self) -> None:
        self.epoch += 1
        self.writer = self._writer(self.epoch)

    def _rows(self, sizes: Sequence[int]) -> Rows:
        files = []
        for size in sizes:
            files.append(list(range(self.next_number, self.next_number + size)))
            self.next_number += size
        return Rows(files)

    def _number(self, rows: Rows) -> list[int]:
        return [number for file in rows.files for number in file]

    @rule(sizes=st.lists(st.integers(1, 30), max_size=4))
    def store_batch(self, sizes: list[int]) -> None:
        rows = self._rows(sizes)
        assert self.writer.write(Batch("demo", "l", self.epoch, self.next_batch), rows)  # type: ignore[arg-type]
        self.expected += self._number(rows)
        self.next_batch += 1

    @rule(
        sizes=st.lists(st.integers(1, 30), min_size=1, max_size=3),
        point=st.sampled_from(["sink.in_transaction", "sink.compacting", "sink.compacted"]),
        wakes_first=st.booleans(),
    )
    def die_in_a_batch_and_run_it_again(self, sizes: list[int], point: str, wakes_first: bool) -> None:
        rows, died = self._rows(sizes), False

        def die(reached: str, number: int) -> None:
            if reached == point:
                raise Died

        crashpoints.install(die)
        try:
            self.writer.write(Batch("demo", "l", self.epoch, self.next_batch), rows)  # type: ignore[arg-type]
        except Died:
            died = True
        finally:
            crashpoints.install(None)
        stored = not died or point != "sink.in_transaction"
        if not stored:
            self.older = (self.writer, self.next_batch)
        self.reopen()
        again = Rows([[number] for number in self._number(rows)])
        batch = Batch("demo", "l", self.epoch, self.next_batch)
        if wakes_first and not stored:
            self.wake_up_late(self._number(rows))
        assert self.writer.write(batch, again) is not stored  # type: ignore[arg-type]
        self.expected += self._number(rows)
        self.next_batch += 1

    @rule()
    @precondition(lambda self: self.older is not None)
    def wake_up_late(self, numbers: Sequence[int] = (-1,)) -> None:
        """A run that was stopped right before its commit, after it had seen that the sink was its own."""
        assert self.older is not None
        writer, batch = self.older
        self.older = None
        writer._refuse_if_fenced = lambda: None  # type: ignore[method-assign]
        folder = f"batch={batch:012d}/epoch={writer.context.epoch}"
        manifest = writer._manifest(Span(batch, batch), SCHEMA, writer.data.write(Rows([numbers]), folder))  # type: ignore[arg-type]
        with suppress(PenstockError):
            writer._commit(manifest)

    @rule(seconds=st.sampled_from([1.0, 700.0, DAY / 2, 2 * DAY]))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule()
    def list_now_and_read_later(self) -> None:
        self.listed = (self.clock.now, read_manifests(self.store), list(self.expected))

    @invariant()
    def a_reader_finds_each_batch_once(self) -> None:
        if hasattr(self, "writer"):
            assert self._read(read_manifests(self.store)) == sorted(self.expected)

    @invariant()
    def one_that_has_listed_the_files_can_finish(self) -> None:
        if getattr(self, "listed", None) is not None:
            assert self.listed is not None
            since, manifests, expected = self.listed
            if self.clock.now - since < DAY:
                assert self._read(manifests) == sorted(expected)

    def _read(self, manifests: list[Manifest]) -> list[int]:
        data = Lists(self.store)
        return sorted(number for item in manifests for file in item.files for number in data.read(file.path))

    @rule()
    def what_is_old_and_useless_goes(self) -> None:
        self.clock.now += 2 * DAY
        self.reopen()
        named = {file.path for item in read_manifests(self.store) for file in item.files}
        assert {file.path for file in self.store.files("")} == named


Sinking.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestSinking = Sinking.TestCase


# --- single moments ------------------------------------------------------------------------------------------


class Runs:
    """Runs of one pipeline over one output."""

    def __init__(self, **config: Any) -> None:
        self.clock = Clock()
        self.store = Memory(self.clock)
        self.sink = Files(**{"path": "out", "compact": 2, **config})

    def open(self, epoch: int = 1) -> FilesWriter:
        spark: Any = None
        context = SinkContext(spark, "out", Path(), "demo", "l", epoch, {})
        writer = FilesWriter(self.sink, "out", self.store, context, self.clock)
        writer.data = Lists(self.store)
        return writer

    def write(self, writer: FilesWriter, batch: int, *numbers: int) -> bool:
        rows: Any = Rows([list(numbers)])
        return writer.write(Batch("demo", "l", writer.context.epoch, batch), rows)

    def stored(self) -> list[int]:
        data = Lists(self.store)
        return [number for item in read_manifests(self.store) for file in item.files for number in data.read(file.path)]

    def data(self) -> list[str]:
        return sorted(file.path for file in self.store.files(""))


def test_files_that_were_merged_stay_for_their_time_however_old_they_are() -> None:
    runs = Runs()
    writer = runs.open()
    runs.write(writer, 0, 1)
    runs.clock.now += 3 * DAY
    before = runs.data()
    runs.write(writer, 1, 2)
    assert [item.span for item in read_manifests(runs.store)] == [Span(0, 1, 1)]
    assert set(before) <= set(runs.data())
    runs.clock.now += DAY + 1
    runs.write(writer, 2, 3)
    assert len(runs.data()) == 2
    assert runs.stored() == [1, 2, 3]


def test_manifests_that_were_merged_stay_as_long_as_somebody_may_go_by_a_list_of_them() -> None:
    runs = Runs(compact=4)
    writer = runs.open()
    there = []
    for batch in range(12):
        runs.write(writer, batch, batch)
        there.append("000000000000.json" in runs.store.names(FOLDER))
        runs.clock.now += 599 if batch == 3 else 2 if batch == 7 else 0
    assert there == [True] * 11 + [False]
    assert runs.stored() == list(range(12))


class Frozen(Exception):
    """Where a run stands still."""


def freeze_before_the_manifest(runs: Runs, writer: FilesWriter, batch: int, *numbers: int) -> Callable[[], None]:
    """A run that has seen that the output is its own and goes on much later; how it goes on."""
    held: list[Manifest] = []

    def hold(manifest: Manifest) -> None:
        held.append(manifest)
        raise Frozen

    commit = writer._commit
    writer._commit = hold  # type: ignore[method-assign]
    with pytest.raises(Frozen):
        runs.write(writer, batch, *numbers)
    writer._refuse_if_fenced = lambda: None  # type: ignore[method-assign]
    return lambda: commit(held[0])


def test_a_run_that_wakes_up_after_its_batch_was_stored_by_another_is_refused() -> None:
    runs = Runs()
    wake = freeze_before_the_manifest(runs, runs.open(1), 0, 1, 2)
    runs.write(runs.open(2), 0, 1, 2)
    with pytest.raises(PenstockError) as raised:
        wake()
    assert raised.value.code == "SINK_FENCED"
    assert read_manifests(runs.store)[0].epoch == 2
    assert runs.stored() == [1, 2]


def test_a_run_that_wakes_up_before_its_batch_comes_again_stores_it_and_is_replaced() -> None:
    runs = Runs()
    wake = freeze_before_the_manifest(runs, runs.open(1), 0, 1, 2)
    newer = runs.open(2)
    wake()
    assert runs.stored() == [1, 2]
    assert runs.write(newer, 0, 1, 2)
    assert read_manifests(runs.store)[0].epoch == 2
    assert runs.stored() == [1, 2]


def test_a_run_whose_answer_was_lost_finds_its_own_manifest() -> None:
    runs = Runs()
    writer = runs.open()
    create = runs.store.create

    def forgetful(name: str, text: str) -> bool:
        create(name, text)
        return False

    runs.store.create = forgetful  # type: ignore[method-assign]
    assert runs.write(writer, 0, 1)
    assert runs.stored() == [1]


def test_files_of_a_newer_run_are_never_swept() -> None:
    runs = Runs(keep="0 seconds")
    writer = runs.open(1)
    runs.store.write("batch=000000000009/epoch=2/part-0.json", "[1]")
    runs.store.write("batch=000000000009/epoch=0/part-0.json", "[1]")
    runs.write(writer, 0, 1)
    assert "batch=000000000009/epoch=2/part-0.json" in runs.data()
    assert "batch=000000000009/epoch=0/part-0.json" not in runs.data()


def test_an_output_whose_manifest_was_taken_away_says_so() -> None:
    runs = Runs()
    writer = runs.open()
    runs.write(writer, 0, 1)
    runs.store.delete([Span(0, 0).path])
    with pytest.raises(PenstockError) as raised:
        runs.write(writer, 1, 2)
    assert raised.value.code == "SINK_FAILED"
    assert Span(0, 0).path in str(raised.value)


# --- names and plans -----------------------------------------------------------------------------------------

SPANS = st.builds(lambda first, length, level: Span(first, first + (length if level else 0), level),
                  st.integers(0, 500), st.integers(0, 200), st.integers(0, 4))  # fmt: skip


@given(SPANS)
def test_a_manifest_is_known_by_its_name(span: Span) -> None:
    assert Span.of(f"x/{span.name}") == span
    assert Span.of(f"{span.name}.tmp") is None


@settings(max_examples=25)
@given(st.integers(1, 150), st.integers(2, 7))
def test_few_manifests_are_left_however_many_batches_there_are(batches: int, many: int) -> None:
    found: list[Span] = []
    for batch in range(batches):
        found.append(Span(batch, batch))
        while group := due(found, many):
            assert [span.first for span in group[1:]] == [span.last + 1 for span in group[:-1]]
            found.append(merged(group))
    shown = visible(found)
    assert [number for span in shown for number in range(span.first, span.last + 1)] == list(range(batches))
    levels = max(span.level for span in shown) + 1
    assert len(shown) < many * levels
    assert many ** (levels - 1) <= batches
    cover = Cover(found)
    assert all(cover.of(Span(batch, batch)) in shown for batch in range(batches))


FILES = st.lists(st.builds(lambda folder, name, size: File(f"batch=000000000001/epoch=1/{folder}{name}.json", size),
                           st.sampled_from(["", "c=a/", "c=b/"]), st.uuids(), st.integers(1, 300)))  # fmt: skip


def manifest(files: Sequence[File], schema: dict[str, Any] | None = None) -> Manifest:
    return Manifest(Span(0, 0), "p", "l", 1, "json", schema or SCHEMA, tuple(files))


@given(st.lists(FILES, min_size=1, max_size=4))
def test_only_small_files_with_company_are_rewritten(groups: list[list[File]]) -> None:
    chosen = to_rewrite([manifest(files) for files in groups], large=200)
    for file in [file for files in groups for file in files]:
        company = [other for files in groups for other in files if other.folder == file.folder and other.bytes < 100]
        assert (file in chosen) == (file.bytes < 100 and len(company) > 1)


def test_files_with_other_columns_stay_as_they_are() -> None:
    files = [File(f"batch=1/epoch=1/{number}.json", 1) for number in range(3)]
    other = {"type": "struct", "fields": [{"name": "x"}]}
    assert to_rewrite([manifest(files), manifest(files, other)], large=200) == []


@given(FILES)
def test_groups_hold_one_partition_and_do_not_overflow(files: list[File]) -> None:
    groups = list(packed(files, 400))
    assert sorted(file.path for _, some in groups for file in some) == sorted(file.path for file in files)
    for folder, some in groups:
        assert {file.folder for file in some} == {folder}
        assert len(some) == 1 or sum(file.bytes for file in some) <= 400


@pytest.mark.parametrize(
    ("path", "made_for", "folder"),
    [
        ("batch=000000000007/epoch=2/part-0.parquet", (7, 2), ""),
        ("shard=a0/batch=000000000007/epoch=2/shard=x/part-0.parquet", (7, 2), "shard=x"),
        ("batch=000000000007/epoch=2/batch=1/epoch=9/part-0.parquet", (7, 2), "batch=1/epoch=9"),
        ("elsewhere/batch=000000000007/epoch=2/part-0.parquet", None, "elsewhere/batch=000000000007/epoch=2"),
    ],
)
def test_a_path_tells_what_it_was_written_for(path: str, made_for: tuple[int, int] | None, folder: str) -> None:
    assert written_for(path) == made_for
    assert File(path, 1).folder == folder
