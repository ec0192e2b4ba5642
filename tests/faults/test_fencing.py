"""A run that was overtaken by a newer one on the same state writes nothing more, however late it wakes up."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.faults.victim import committed_rows

from penstock.components.base import Batch, SinkContext, SinkWriter
from penstock.components.sinks.files import Files
from penstock.components.sinks.sqlite import Sqlite
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Sinks = dict[str, Files | Sqlite]
SINKS: Sinks = {
    "files": Files(path="out"),
    "append": Sqlite(path="out.db", table="rows"),
    "upsert": Sqlite(path="out.db", table="rows", key=("id",)),
}


class Place:
    """A sink of one pipeline, as runs with different epochs see it."""

    def __init__(self, spark: SparkSession, folder: Path, sink: Files | Sqlite) -> None:
        self.spark = spark
        self.folder = folder
        self.sink = sink

    def open(self, epoch: int, lineage: str = "one") -> SinkWriter:
        return self.sink.open(
            SinkContext(self.spark, "store", self.folder, "demo", lineage, epoch, {"id": "bigint", "by": "string"})
        )

    def write(self, writer: SinkWriter, epoch: int, batch: int, *ids: int) -> bool:
        rows = self.spark.createDataFrame([(number, f"epoch {epoch}") for number in ids], "id bigint, by string")
        return writer.write(Batch("demo", "one", epoch, batch), rows)

    def stored(self) -> list[tuple[int, str]]:
        if isinstance(self.sink, Files):
            return sorted((row["id"], row["by"]) for row in committed_rows(self.folder / "out"))
        with closing(sqlite3.connect(self.folder / "out.db")) as db:
            return sorted(db.execute("SELECT id, by FROM rows").fetchall())


@pytest.fixture(params=SINKS)
def place(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Place:
    return Place(spark, tmp_path, SINKS[request.param])


def test_an_older_run_is_refused_once_a_newer_one_has_opened_the_sink(place: Place) -> None:
    older = place.open(epoch=1)
    assert place.write(older, 1, 0, 1, 2)
    newer = place.open(epoch=2)

    with pytest.raises(PenstockError) as raised:
        place.write(older, 1, 1, 3)

    assert raised.value.code == "SINK_FENCED"
    assert raised.value.exit_code == 1
    assert place.write(newer, 2, 1, 4)
    assert place.stored() == [(1, "epoch 1"), (2, "epoch 1"), (4, "epoch 2")]


def test_an_older_run_cannot_open_the_sink_again(place: Place) -> None:
    place.open(epoch=2)

    with pytest.raises(PenstockError) as raised:
        place.open(epoch=1)

    assert raised.value.code == "SINK_FENCED"


def test_an_older_run_cannot_store_a_batch_that_the_newer_one_has_stored(place: Place) -> None:
    older = place.open(epoch=1)
    newer = place.open(epoch=2)
    assert place.write(newer, 2, 0, 1, 2)

    with pytest.raises(PenstockError) as raised:
        place.write(older, 1, 0, 1, 2)

    assert raised.value.code == "SINK_FENCED"
    assert place.stored() == [(1, "epoch 2"), (2, "epoch 2")]


def test_a_batch_that_comes_again_changes_nothing(place: Place) -> None:
    assert place.write(place.open(epoch=1), 1, 0, 1, 2)

    assert not place.write(place.open(epoch=2), 2, 0, 1, 2)

    assert place.stored() == [(1, "epoch 1"), (2, "epoch 1")]


def test_other_state_may_not_append_to_what_is_there(place: Place) -> None:
    place.write(place.open(epoch=1), 1, 0, 1, 2)

    if isinstance(place.sink, Sqlite) and place.sink.key:
        place.open(epoch=1, lineage="other")
    else:
        with pytest.raises(PenstockError) as raised:
            place.open(epoch=1, lineage="other")
        assert raised.value.code == "SINK_OF_ANOTHER_RUN"
    assert place.stored() == [(1, "epoch 1"), (2, "epoch 1")]
