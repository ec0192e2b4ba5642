"""State of a step that is made anew from what was read before: it knows what it would had it always been there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.engine.evolution.story import LATEST, NATIVE, ROLLING, START, VIEWS, WINDOW, Story
from tests.engine.running import table
from tests.faults.victim import contents

from penstock.engine.savepoints.places import found_in
from penstock.errors import PenstockError
from penstock.frontends.load import load
from penstock.graph.again import why_not_again
from penstock.graph.build import build
from penstock.runner.upgrade import Upgraded, upgrade
from penstock.testing import shared_session

if TYPE_CHECKING:
    from tests.conftest import Project
    from tests.servers.kafka import Kafka

pytestmark = pytest.mark.timeout(900)


def carried(story: Story, pipeline: Path, *bootstrap: str) -> Upgraded:
    return upgrade(load(pipeline), story.state, (), bootstrap, spark=shared_session())


def watermark(story: Story) -> float:
    """Of the last batch, in seconds since the rows begin."""
    offsets = story.state / "checkpoint" / "offsets"
    last = max((file for file in offsets.iterdir() if file.name.isdigit()), key=lambda file: int(file.name))
    millis = json.loads(last.read_text("utf-8").splitlines()[1])["batchWatermarkMs"]
    return float(millis) / 1000 - START.timestamp()


@pytest.mark.spark
@pytest.mark.long
def test_new_steps_know_all_that_was_read_before(project: Project) -> None:
    """What they would have given out by then is not given; what was open then is complete."""
    story = Story(project)
    story.more(2)
    story.run(story.write({"per_user": NATIVE, "other": ROLLING}, sinks={"per_user": "per_user", "rows": "other"}))
    seen, until = list(story.views), watermark(story)
    assert 0 < until < max(row.second for row in seen)
    # A file that is there already, but was not read, is for the run and not for the state.
    story.more(1)
    steps = {"other": ROLLING, "per_minute": WINDOW, "per_user": NATIVE, "recent": ROLLING, "newest": LATEST}
    pipeline = story.write(steps, sinks={name: name for name in steps if name != "other"} | {"rows": "other"})

    done = carried(story, pipeline, "per_minute", "recent", "newest")

    assert done.grafted is not None
    assert (done.grafted.begun, done.grafted.bootstrapped) == ((), ("newest", "per_minute", "recent"))
    assert [one.name for one in found_in(story.state)] == [done.savepoint]
    story.end()
    story.run(pipeline)

    story.check("per_user", "newest")
    assert story.found("per_minute") == [row for row in story.wanted("per_minute") if row[1] + 60 > until]
    later = {row.id for row in story.views if row.second > until}
    assert story.found("recent") == [row for row in story.wanted("recent") if row[0] in later]
    assert len(later) < len(story.views)


@pytest.mark.spark
def test_a_changed_step_is_made_anew_instead_of_given_up(project: Project) -> None:
    story = Story(project)
    story.more(2)
    story.run(story.write({"per_user": NATIVE, "newest": LATEST}))
    most = NATIVE.replace("count(*) AS n", "count(id) AS n")
    pipeline = story.write({"per_user": most, "newest": LATEST})

    done = carried(story, pipeline, "per_user")

    assert done.grafted is not None
    assert done.grafted.bootstrapped == ("per_user",)
    story.more(1)
    story.end()
    story.run(pipeline)
    story.check("per_user", "newest")


@pytest.mark.spark
@pytest.mark.long
def test_rows_on_which_an_expression_fails_are_left_out_as_they_were(project: Project) -> None:
    story = Story(project)
    story.more(2)
    shares = {"shared": "sql: 'SELECT *, 100 div amount AS share FROM views'", "per_user": NATIVE}
    sinks = {"rows": "shared", "per_user": "per_user"}
    story.run(story.write(shares, sinks=sinks))
    wrong = [row for row in story.views if row.amount == 0]
    assert wrong
    pipeline = story.write({**shares, "newest": f"from: shared, {LATEST}"}, sinks={**sinks, "newest": "newest"})

    carried(story, pipeline, "newest")

    story.more(1)
    story.end()
    story.run(pipeline)
    rows = [row for row in story.views if row.amount != 0]
    assert story.found("newest") == story.wanted("newest", rows)
    story.check("per_user")


@pytest.mark.spark
def test_rows_that_are_gone_leave_all_as_it_was(project: Project) -> None:
    story = Story(project)
    story.more(2)
    pipeline = story.write({"per_user": NATIVE})
    story.run(pipeline)
    changed = story.write({"per_user": NATIVE, "newest": LATEST})
    first = project.folder / "views" / "000.json"
    first.write_text("".join(first.read_text("utf-8").splitlines(keepends=True)[:-3]), "utf-8")
    held = contents(story.state / "checkpoint")

    def refused(step: str) -> str:
        with pytest.raises(PenstockError) as raised:
            carried(story, changed, step)
        assert raised.value.code == ("UPGRADE_FAILED" if step == "newest" else "BOOTSTRAP_REFUSED")
        return str(raised.value)

    assert "of 48 rows of 'views' that were read before, 45 are still there" in refused("newest")
    first.unlink()
    assert "000.json is gone" in refused("newest")
    assert "no such step keeps state" in refused("nobody")
    assert "no such step keeps state" in refused("views")
    assert contents(story.state / "checkpoint") == held
    story.write({"per_user": NATIVE})
    story.more(1)
    story.end()
    story.run(pipeline)
    story.check("per_user")


HISTORY = VIEWS + "  bootstrap: {files: {path: ./old}}\n"
ARCHIVED = VIEWS.replace("maxFilesPerBatch: 1", "maxFilesPerBatch: 1, archiveTo: ./read")


@pytest.mark.parametrize(
    ("source", "reason"),
    [(VIEWS, None), (HISTORY, "had a history"), (ARCHIVED, "moves files away")],
    ids=["files", "history", "archive"],
)
def test_what_cannot_be_read_again_is_told_beforehand(project: Project, source: str, reason: str | None) -> None:
    graph = build(load(Story(project).write({"newest": LATEST}, (source,))))
    found = why_not_again(graph, "newest")
    assert (found is None) if reason is None else (found is not None and reason in found)


COUNTED = """
    sources:
      views:
        kafka: {bootstrap: "%s", topic: %s, startingOffsets: earliest, maxRowsPerBatch: 3}
        format: {json: {schema: {id: bigint, user: string}}}
    steps:
      counts: {from: views, sql: "SELECT user, count(*) AS n FROM views GROUP BY user"}%s
    sinks:
      counts_table: {from: counts, sqlite: {path: ./out.db, table: counts, key: [user]}}%s
"""
LAST = (
    "\n      newest: {from: views, latest: {by: [user], order: [id]}}",
    "\n      last_table: {from: newest, sqlite: {path: ./out.db, table: last, key: [user]}}",
)


@pytest.mark.spark
@pytest.mark.long
def test_messages_that_the_broker_still_has_are_read_again(project: Project, kafka: Kafka, kafka_topic: str) -> None:
    """Up to where the pipeline was; and if some are gone, nothing is changed."""

    def send(*ids: int) -> None:
        kafka.send(kafka_topic, [json.dumps({"id": id, "user": "ab"[id % 2]}) for id in ids])

    def stored(what: str) -> list[tuple[object, ...]]:
        return table(project.folder / "out.db", what)

    story = Story(project)
    pipeline = project.write(COUNTED % (kafka.bootstrap, kafka_topic, "", ""))
    send(*range(8))
    story.run(pipeline)
    send(10, 12)
    project.write(COUNTED % (kafka.bootstrap, kafka_topic, *LAST))
    done = carried(story, pipeline, "newest")

    assert done.grafted is not None
    assert done.grafted.kept["newest"] > 0
    send(1)
    story.run(pipeline)
    assert stored("SELECT user, n FROM counts ORDER BY user") == [("a", 6), ("b", 5)]
    # The last row of b came before, so the later one with a smaller id does not take its place.
    assert stored("SELECT user, id FROM last ORDER BY user") == [("a", 12)]

    kafka.delete_records(kafka_topic, 2)
    with pytest.raises(PenstockError) as raised:
        carried(story, pipeline, "newest")
    assert raised.value.code == "UPGRADE_FAILED"
