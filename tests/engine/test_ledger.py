"""The ledger keeps the counts of each batch, and a batch that comes again replaces its own entry."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.engine.ledger import BatchEntry, Ledger, add
from penstock.errors import PenstockError


def test_entries_come_back_as_they_were_recorded_in_the_order_of_batches(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    second = BatchEntry(1, 1, {"a": 5, "b": 0}, {"a": 2}, {"out": 3})
    first = BatchEntry(0, 1, {"a": 1}, {"a": 0}, {"out": 1})
    ledger.record(second)
    ledger.record(first)
    assert ledger.entries() == [first, second]
    assert ledger.entries(1) == [second]
    assert ledger.entries(2) == []


def test_a_batch_that_is_run_again_replaces_its_entry(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.record(BatchEntry(0, 1, {"a": 3}, {"a": 0}, {"out": 3}))
    again = BatchEntry(0, 2, {"a": 3}, {"a": 1}, {"out": 2})
    ledger.record(again)
    assert ledger.entries() == [again]


def test_totals_add_up_by_name(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.record(BatchEntry(0, 1, {"a": 3, "b": 1}, {"a": 1}, {"out": 2}))
    ledger.record(BatchEntry(4, 2, {"a": 2}, {"a": 0, "b": 7}, {"out": 2, "copy": 9}))
    assert ledger.totals() == BatchEntry(4, 2, {"a": 5, "b": 1}, {"a": 1, "b": 7}, {"out": 4, "copy": 9})


def test_an_empty_ledger_has_no_batch(tmp_path: Path) -> None:
    assert Ledger(tmp_path / "ledger.db").totals() == BatchEntry(-1, 0)


def test_a_ledger_is_found_again_in_its_file(tmp_path: Path) -> None:
    entry = BatchEntry(0, 1, {"a": 1}, {}, {})
    Ledger(tmp_path / "ledger.db").record(entry)
    assert Ledger(tmp_path / "ledger.db").entries() == [entry]


def test_counts_of_nothing_are_nothing() -> None:
    assert add([]) == {}
    assert add([{"a": 1}, {}, {"a": 2, "b": 0}]) == {"a": 3, "b": 0}


def test_a_run_that_was_overtaken_cannot_write_to_the_ledger(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.claim(1)
    ledger.record(BatchEntry(0, 1, {"a": 3}))
    ledger.claim(2)
    with pytest.raises(PenstockError) as recorded:
        ledger.record(BatchEntry(1, 1, {"a": 4}))
    with pytest.raises(PenstockError) as claimed:
        ledger.claim(1)
    assert recorded.value.code == claimed.value.code == "FENCED"
    ledger.claim(2)
    ledger.record(BatchEntry(1, 2, {"a": 5}))
    assert [entry.epoch for entry in ledger.entries()] == [1, 2]
