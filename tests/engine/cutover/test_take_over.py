"""A new version that follows the pipeline and takes over from it: no row is lost and none is stored twice."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest
from tests.engine.cutover.twins import Twins
from tests.engine.running import table
from tests.faults.victim import contents

from penstock.components.shared.crashpoints import AT
from penstock.engine.checkpoint import last_committed
from penstock.engine.cutover.following import APART
from penstock.engine.savepoints.places import found_in
from penstock.errors import PenstockError
from penstock.frontends.load import load
from penstock.reports.state_folder import state_partitions
from penstock.runner.cutover import abort, compare, current, finish, follow, start, status
from penstock.testing import shared_session
from penstock.testing.processes import penstock

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.conftest import Project

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def test_a_new_version_follows_is_compared_and_takes_over(project: Project) -> None:
    twins, spark = Twins(project), shared_session()
    old, new = twins.write()
    twins.more(2)
    twins.run(old)
    saved = twins.read()
    begun = start(load(old), twins.state, load(new), spark=spark)
    assert begun.begun == ("newest",)
    assert begun.kept["per_minute"] > 0
    # Behind by more than it takes one by one, so that its batches have other numbers.
    twins.more(5)
    twins.run(old)
    assert status(twins.state, "demo")[1].behind > APART
    assert follow(twins.state, "demo", spark=spark).behind == 0
    look_at_differences(twins, saved, spark)

    before, windows = last_committed(twins.state / "checkpoint"), twins.stored_windows()
    done = finish(twins.state, "demo", spark=spark)
    assert done.taken.batch == before
    assert done.taken.rows > 0
    assert twins.stored_windows() == windows
    assert current(twins.state) is None
    assert not (twins.state / "cutover").exists()
    assert {one.name for one in found_in(twins.state)} == {begun.savepoint, done.savepoint}
    twins.taken("new", saved)
    with pytest.raises(PenstockError) as refused:
        twins.run(old)
    assert refused.value.code == "CHANGE_NEEDS_UPGRADE"
    twins.more(1)
    twins.end()
    twins.run(new)
    twins.check()


def look_at_differences(twins: Twins, saved: int, spark: SparkSession) -> None:
    """The new version has only the even ones of the rows that came after the savepoint."""
    later = [row for row in twins.rows if row.file >= saved]
    even = sum(row.amount % 2 == 0 for row in later)
    found = {one.sink: one for one in compare(twins.state, "demo", spark)[1]}
    assert {name: one.how for name, one in found.items()} == {
        "rows": "time", "windows": "time", "files": "batches", "newest_rows": "not compared",
    }  # fmt: skip
    counts = found["files"].compared
    assert counts is not None
    assert (counts.equal, counts.different, counts.only_old, counts.only_new) == (even, 0, len(later) - even, 0)
    counts = found["rows"].compared
    assert counts is not None
    assert 0 < counts.equal <= even
    assert 0 < counts.only_old <= len(later) - even
    assert (counts.different, counts.only_new) == (0, 0)
    counts = found["windows"].compared
    assert counts is not None
    assert counts.different > 0
    assert counts.only_new == 0


def test_giving_up_leaves_the_pipeline_as_it_was(project: Project) -> None:
    twins, spark = Twins(project), shared_session()
    old, new = twins.write(more=False)
    with pytest.raises(PenstockError) as missing:
        start(load(old), twins.state, load(new), spark=spark)
    assert missing.value.code == "STATE_MISSING"
    twins.more(2)
    twins.run(old)
    held, stored = contents(twins.state / "checkpoint"), twins.stored_rows()
    with pytest.raises(PenstockError) as unknown:
        abort(twins.state, "demo")
    assert unknown.value.code == "CUTOVER_UNKNOWN"

    start(load(old), twins.state, load(new), spark=spark)
    assert follow(twins.state, "demo", spark=spark).behind == 0
    twins.write(more=True)
    with pytest.raises(PenstockError) as changed:
        follow(twins.state, "demo", spark=spark)
    assert changed.value.code == "CUTOVER_REFUSED"
    with pytest.raises(PenstockError) as another:
        start(load(old), twins.state, load(new), spark=spark)
    assert another.value.code == "CUTOVER_ANOTHER"
    abort(twins.state, "demo")

    assert contents(twins.state / "checkpoint") == held
    assert twins.stored_rows() == stored
    assert found_in(twins.state) == []
    assert not (twins.state / "cutover").exists()
    twins.more(1)
    twins.end()
    twins.run(old)
    twins.check()


@pytest.mark.long
def test_a_kill_in_the_swap_leaves_the_new_version(project: Project, tmp_path: Path) -> None:
    """A process is killed when the new state lies ready; what comes next puts it in place."""
    twins, spark = Twins(project), shared_session()
    old, new = twins.write(more=False)
    twins.more(2)
    twins.run(old)
    start(load(old), twins.state, load(new), spark=spark)
    twins.more(1)
    twins.run(old)
    code, text = penstock("cutover", "finish", old, log=tmp_path / "log", env={AT: "restore.built@0"})
    assert code == -signal.SIGKILL, text
    twins.taken("new", 2)
    twins.end()
    twins.run(new)
    assert not (twins.state / "cutover").exists()
    twins.check()


@pytest.mark.long
def test_a_pipeline_that_went_back_meanwhile_is_not_cut_over(project: Project) -> None:
    """Nor one whose new version a sink would not take. All of it leaves the old side."""
    twins, spark = Twins(project), shared_session()
    old, new = twins.write(partitions=3)
    twins.more(2)
    twins.run(old)
    begun = start(load(old), twins.state, load(new), spark=spark)
    twins.more(1)
    twins.run(old)
    follow(twins.state, "demo", spark=spark)

    offsets = twins.state / "checkpoint" / "offsets"
    last = last_committed(twins.state / "checkpoint")
    text = (offsets / str(last)).read_text("utf-8")
    settings = json.loads(text.splitlines()[1])
    other = json.dumps({**settings, "batchWatermarkMs": settings["batchWatermarkMs"] + 1}, separators=(",", ":"))
    (offsets / str(last)).write_text(text.replace(text.splitlines()[1], other), "utf-8")
    (offsets / f".{last}.crc").unlink(missing_ok=True)
    with pytest.raises(PenstockError) as strange:
        follow(twins.state, "demo", spark=spark)
    assert strange.value.code == "CUTOVER_REFUSED"
    (offsets / str(last)).write_text(text, "utf-8")
    assert follow(twins.state, "demo", spark=spark).behind == 0
    assert current(twins.state) == begun

    # A table of that name is there, and has other columns.
    made = "CREATE TABLE newest (user TEXT PRIMARY KEY)"
    table(twins.folder / "out.db", made)
    with pytest.raises(PenstockError) as unwilling:
        finish(twins.state, "demo", spark=spark)
    assert unwilling.value.code == "SINK_TABLE_DIFFERS"
    table(twins.folder / "out.db", "DROP TABLE newest")

    # Dividing its state has used up a number, so the new version is one ahead of the pipeline.
    assert status(twins.state, "demo")[1].batch == last + 1
    done = finish(twins.state, "demo", spark=spark)
    assert done.taken.batch == last
    assert state_partitions(twins.state / "checkpoint") == 3
    assert {one.name for one in found_in(twins.state)} == {begun.savepoint, done.savepoint}
    twins.taken("new", 2)
    twins.more(1)
    twins.end()
    twins.run(new)
    twins.check()


@pytest.mark.long
def test_sources_and_sinks_that_only_the_new_version_has_begin_at_the_take_over(project: Project) -> None:
    """And a step and a sink that are called otherwise go on."""
    twins, spark = Twins(project), shared_session()
    old, new = twins.write(more=False)
    text = new.read_text("utf-8")
    text = text.replace("  steps:\n", ADDED_SOURCE + "  steps:\n").replace("  state:", ADDED_SINK + "  state:")
    text = text.replace("per_minute: {", "minutes: {renamedFrom: per_minute, ").replace(
        "from: per_minute", "from: minutes"
    )
    new.write_text(text.replace("windows: {", "ends: {renamedFrom: windows, "), "utf-8")
    project.put("other/0.json", '{"id": 1}\n{"id": 2}\n')
    twins.more(2)
    twins.run(old)
    begun = start(load(old), twins.state, load(new), spark=spark)
    assert set(begun.kept) == {"minutes"}
    twins.more(2)
    twins.run(old)
    assert follow(twins.state, "demo", spark=spark).behind == 0
    found = {one.sink: one for one in compare(twins.state, "demo", spark)[1]}
    assert found["ends"].compared is not None
    assert found["others"].how == "not compared"
    finish(twins.state, "demo", spark=spark)
    twins.taken("new", 2)
    twins.more(1)
    twins.end()
    twins.run(new)
    twins.check()
    assert table(twins.folder / "out.db", "SELECT id FROM others ORDER BY id") == [(1,), (2,)]


ADDED_SOURCE = """\
    other:
      files: {path: ./other}
      format: {json: {schema: {id: bigint}}}
"""
ADDED_SINK = """\
    others: {from: other, sqlite: {path: ./out.db, table: others}}
"""
