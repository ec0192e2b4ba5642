"""State made anew from what sources still hold: the new version reads all that was read so far once more.

It is done in two batches with a checkpoint of their own, without sinks. The first reads every source from its beginning
to where the pipeline is; the second has no rows and the watermark of the last batch, so that what was given out by then
is over there too. What comes out of them goes nowhere.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from penstock.engine.analyse import Analysed, analyse
from penstock.engine.evolution.seed import Seed, evaluate
from penstock.engine.evolution.streams import link_tree
from penstock.engine.frames import steps_in
from penstock.engine.lower import trunk_frame
from penstock.engine.markers import execution, rows_through
from penstock.engine.savepoints.trees import files_below
from penstock.graph.nodes import Graph

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_PARTITIONS = "spark.sql.shuffle.partitions"
_PATH = re.compile(r'"path":"file://(/[^"]*)"')
FED_VERSION = 3
"""The version of the state afterwards: one for each batch, one for dividing it."""


def feed(
    spark: SparkSession,
    graph: Graph,
    copy: Path,
    spool: Path,
    folder: Path,
    batch: int,
    partitions: int,
    buckets: int,
    *,
    careful: bool = False,
) -> tuple[Seed, dict[str, int]]:
    """Reads again what was read until a batch; also how many rows of each source that were.

    `copy` is the checkpoint, with streams called as they are now. With `careful`, rows on which an expression fails are
    left out, as a run does that has met one.
    """
    checkpoint = folder / "checkpoint"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}), "utf-8")
    if (copy / "sources").is_dir():
        link_tree(copy / "sources", checkpoint / "sources")
    link_tree(spool, folder / "spool")
    # Dividing state into as many parts as it has would leave it as it is: a log of changes.
    other = "2" if partitions == 1 else str(partitions - 1)
    planned = (copy / "offsets" / str(batch)).read_text("utf-8")
    before = spark.conf.get(_PARTITIONS)
    spark.conf.set(_PARTITIONS, other)
    try:
        analysed = analyse(spark, graph, folder / "spool", buckets, careful=careful)
        analysed.raise_errors()
        _plan(checkpoint, 0, planned, {"batchWatermarkMs": 0}, other)
        through = rows_through(_one_batch(analysed, checkpoint))
        _plan(checkpoint, 1, planned, {}, other)
        steps = steps_in(execution(_one_batch(analysed, checkpoint)).executedPlan(), analysed.builder)
    finally:
        spark.conf.set(_PARTITIONS, str(before))
    spark._streamingCheckpointManager.repartition(str(checkpoint), partitions)
    rows = {name: through.get(marks.came, 0) for name, marks in analysed.builder.marks.items()}
    return Seed(checkpoint, steps, FED_VERSION), rows


def _plan(checkpoint: Path, batch: int, text: str, changes: Mapping[str, int], partitions: str) -> None:
    """Lets a batch go to where another one went."""
    head, about, *offsets = text.splitlines()
    content: dict[str, Any] = {**json.loads(about), **changes}
    content["conf"] = {**content.get("conf", {}), _PARTITIONS: partitions}
    planned = "\n".join([head, json.dumps(content, separators=(",", ":")), *offsets])
    (checkpoint / "offsets" / str(batch)).write_text(planned, "utf-8")


def _one_batch(analysed: Analysed, checkpoint: Path) -> StreamingQuery:
    """Lets Spark do the batch that is planned, and no other."""
    query = (
        trunk_frame(analysed.frames, analysed.analysis.trunk)
        .writeStream.foreachBatch(evaluate)
        .outputMode(analysed.analysis.output_mode)
        .option("checkpointLocation", str(checkpoint))
        .trigger(once=True)
        .start()
    )
    query.awaitTermination()
    return query


def missing_files(sources: Path) -> list[str]:
    """Files on this machine that sources have read and that are gone; Spark would pass over them."""
    found = []
    for name in files_below(sources):
        if not name.endswith(".crc"):
            text = (sources / name).read_text("utf-8", "replace")
            found += [path for path in map(unquote, _PATH.findall(text)) if not Path(path).exists()]
    return found
