"""What `penstock state` and `penstock reprocess` are asked, and what cannot be meant."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from penstock.cli.reprocess import _places, _time, reprocess
from penstock.cli.state import StateFormat, _kind, state
from penstock.errors import PenstockError


@pytest.mark.parametrize(
    ("format", "to", "step", "kind"),
    [
        (None, None, None, "table"), (None, None, "s", "table"), (StateFormat.json, None, None, "json"),
        (None, "a.parquet", "s", "parquet"), (None, "a.JSONL", "s", "json"), (StateFormat.csv, "a.txt", "s", "csv"),
    ],
)  # fmt: skip
def test_how_rows_are_written(format: StateFormat | None, to: str | None, step: str | None, kind: str) -> None:
    assert _kind(format, None if to is None else Path(to), step) == kind


@pytest.mark.parametrize(
    ("format", "to", "step", "told"),
    [
        (None, "a.txt", "s", "not known how to write a.txt"), (StateFormat.table, "a.csv", "s", "not known how"),
        (StateFormat.parquet, None, "s", "Add --out FILE"), (StateFormat.csv, None, None, "Add --step NAME"),
        (None, "a.json", None, "Add --step NAME"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_is_told(
    format: StateFormat | None, to: str | None, step: str | None, told: str
) -> None:
    with pytest.raises(PenstockError, match=told) as error:
        _kind(format, None if to is None else Path(to), step)
    assert error.value.code == "USAGE"


def test_a_key_is_of_a_step() -> None:
    with pytest.raises(PenstockError, match="--key goes with --step"):
        state("nowhere", key=["ann"])


def test_times_have_a_zone_and_places_a_sink() -> None:
    assert _time("--from", "2024-01-01T01:00:00.250+01:00") == dt.datetime(2024, 1, 1, 0, 0, 0, 250_000, dt.UTC)
    for text in ("2024-01-01T00:00:00", "yesterday", "2024-01-01T00:00:00.0001Z"):
        with pytest.raises(PenstockError, match="--from") as wrong:
            _time("--from", text)
        assert wrong.value.code == "USAGE"
    assert _places(["a.table=x", "a.path=b=c", "d.topic=e"]) == {
        "a": {"table": "x", "path": "b=c"},
        "d": {"topic": "e"},
    }
    for text in ("a.table", "a=x", ".b=c", "a.=c"):
        with pytest.raises(PenstockError, match="--into"):
            _places([text])


def test_a_range_begins_before_it_ends(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    source = "{files: {path: .}, format: {json: {schema: {id: bigint}}}}"
    file.write_text(
        "apiVersion: penstock/v1\nkind: Pipeline\nmetadata: {name: demo}\n"
        f"spec: {{sources: {{a: {source}}}, sinks: {{b: {{from: a, console: {{}}}}}}}}\n"
    )
    with pytest.raises(PenstockError, match="ends before it begins"):
        reprocess(file, "2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z")
