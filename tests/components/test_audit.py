"""An audit finds what was changed in a sink behind the pipeline's back."""

from __future__ import annotations

import datetime as dt
import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.components.sql_stores import Store
from tests.engine.running import course, json_lines, run

from penstock.components.shared.checksum import NAME, Change, Content, python_sum, spark_sum
from penstock.engine.ledger import BatchEntry, Gap
from penstock.engine.savepoints.take import Wish
from penstock.errors import PenstockError
from penstock.runner.audit import after_changes, after_rows, audit
from penstock.runner.savepoints import create, restore_into

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.conftest import Project
    from tests.servers.kafka import Kafka

pytestmark = pytest.mark.spark
ROWS: list[dict[str, Any]] = [
    {"id": 1, "name": "ann", "day": "2024-01-01"},
    {"id": 2, "name": "böb\n", "day": "2024-02-29"},
    {"id": 3, "name": None, "day": None},
    {"id": 4, "name": "", "day": "1969-12-31"},
]


def pipeline(sink: str, ledger: str = "{checksum: [id, name, day]}") -> str:
    return f"""
        sources:
          rows:
            files: {{path: ./in, maxFilesPerBatch: 1}}
            format: {{json: {{schema: {{id: bigint, name: string, day: date}}}}}}
        ledger: {ledger}
        sinks:
          out: {{from: rows, {sink}}}
          other: {{from: rows, files: {{path: ./other}}}}
          latest: {{from: rows, sqlite: {{path: latest.db, table: t, key: [id]}}}}
    """


def feed(project: Project) -> None:
    project.put("in/0.json", json_lines(ROWS[:2]))
    project.put("in/1.json", json_lines(ROWS[2:]))


def written() -> Content:
    sums = [
        python_sum(row["id"], row["name"], None if row["day"] is None else dt.date.fromisoformat(row["day"]))
        for row in ROWS
    ]
    return Content(len(ROWS), sum(sums))


def test_tables_and_files_hold_what_the_ledger_says(
    store: Store, project: Project, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed(project)
    if store.database is not None:
        monkeypatch.setenv("DB_URL", store.url())
    body = pipeline(f"{store.yaml()}}}")
    state = project.folder / "state"
    course(project.build(body), state, die_at="batch.after_ledger")
    course(project.build(body), state)
    found = {item.sink: item for item in audit(project.load(body), state, lambda: spark)}
    assert (found["out"].verdict, found["out"].held) == ("equal", written())
    assert (found["other"].verdict, found["other"].held) == ("equal", written())
    assert (found["latest"].verdict, found["latest"].held) == ("equal", written())

    # A row that someone changed, with as many rows as before.
    store.execute("UPDATE t SET name = 'eve' WHERE id = 1")
    found = {item.sink: item for item in audit(project.load(body), state, lambda: spark)}
    assert found["out"].verdict == "differs"
    assert found["out"].held is not None
    assert found["out"].held.rows == len(ROWS)


KEYED = """
        sources:
          rows:
            files: {{path: ./in, maxFilesPerBatch: 1}}
            format: {{json: {{schema: {{id: bigint, name: string, day: date, v: int, gone: boolean}}}}}}
        ledger: {{checksum: [id, name, day]}}
        sinks:
          out: {{from: rows, {sink}}}
"""
OPTIONS = ", key: [id], version: v, delete: gone}"


def judged(project: Project, body: str, spark: SparkSession) -> str:
    (found,) = audit(project.load(body), project.folder / "state", lambda: spark)
    return found.verdict


def feed_changes(project: Project) -> None:
    """Rows that come, that are replaced, that are older than what is there, and that are deleted."""
    project.put("in/0.json", json_lines([{**row, "v": 5} for row in ROWS]))
    project.put("in/1.json", json_lines([{"id": 1, "name": "x", "v": 6}, {"id": 2, "name": "old", "v": 1}]))
    project.put("in/2.json", json_lines([{"id": 3, "v": 9, "gone": True}, {"id": None, "name": "none", "v": 1}]))
    project.put("in/3.json", json_lines([{"id": None, "name": "other", "v": 2}, {"id": 1, "name": "y", "v": 7}]))


@pytest.mark.parametrize("point", ["sink.after_commit", "batch.after_sinks", "batch.after_ledger"])
def test_a_table_with_a_key_holds_what_the_changes_add_up_to(
    point: str, store: Store, project: Project, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    if store.database is not None:
        monkeypatch.setenv("DB_URL", store.url())
    body = KEYED.format(sink=f"{store.yaml()}{OPTIONS}")
    feed_changes(project)
    state = project.folder / "state"
    for _ in range(2):
        course(project.build(body), state, die_at=point)
    course(project.build(body), state)
    assert judged(project, body, spark) == "equal"
    if point != "batch.after_ledger":
        return
    store.execute("UPDATE t SET name = 'eve' WHERE id = 2")
    assert judged(project, body, spark) == "differs"
    store.execute("UPDATE t SET name = 'böb\n' WHERE id = 2")
    assert judged(project, body, spark) == "equal"
    store.execute("INSERT INTO t (id, name) VALUES (77, 'added')")
    assert judged(project, body, spark) == "differs"
    store.execute("DELETE FROM t WHERE id = 77")
    assert judged(project, body, spark) == "equal"
    store.execute("DELETE FROM t WHERE id = 4")
    assert judged(project, body, spark) == "differs"
    # What the pipeline stores afterwards does not hide it.
    project.put("in/4.json", json_lines([{"id": 9, "name": "more", "v": 1}]))
    course(project.build(body), state)
    assert judged(project, body, spark) == "differs"


def test_a_table_that_went_back_to_a_savepoint_is_summed_up_again(project: Project, spark: SparkSession) -> None:
    body = KEYED.format(sink=f"sqlite: {{path: out.db, table: t{OPTIONS}")
    feed_changes(project)
    state = project.folder / "state"
    run(project.build(body), state, die_at="batch.start@2")
    create(project.load(body), state, Wish("early"), spark=spark)
    course(project.build(body), state)
    restore_into(project.load(body), state, state / "savepoints" / "early")
    course(project.build(body), state)
    assert judged(project, body, spark) == "equal"
    with closing(sqlite3.connect(project.folder / "out.db")) as db:
        db.execute("DELETE FROM t WHERE id = 4")
        db.commit()
    assert judged(project, body, spark) == "differs"


@pytest.mark.parametrize("partitions", ["", ", partitionBy: [day]"])
def test_a_delta_table_with_a_key_is_compared(partitions: str, project: Project, spark: SparkSession) -> None:
    body = KEYED.format(sink=f"delta: {{path: ./out{partitions}{OPTIONS}")
    feed_changes(project)
    state = project.folder / "state"
    course(project.build(body), state, die_at="sink.after_commit")
    course(project.build(body), state, die_at="batch.after_ledger")
    course(project.build(body), state)
    assert judged(project, body, spark) == "equal"
    DeltaTable(project.folder / "out").delete("id = 4")
    assert judged(project, body, spark) == "differs"


def test_a_topic_is_read_back(project: Project, spark: SparkSession, kafka: Kafka, kafka_topic: str) -> None:
    body = KEYED.format(sink=f'kafka: {{bootstrap: "{kafka.bootstrap}", topic: {kafka_topic}, key: [id]}}')
    feed_changes(project)
    state = project.folder / "state"
    course(project.build(body), state, die_at="sink.after_commit")
    course(project.build(body), state)
    assert judged(project, body, spark) == "equal"
    kafka.send(kafka_topic, [json.dumps({"id": 1, "name": "again"})])
    assert judged(project, body, spark) == "differs"
    kafka.delete_records(kafka_topic, 1)
    (found,) = audit(project.load(body), state, lambda: spark)
    assert (found.verdict, found.reason) == ("not compared", "the broker has removed its oldest messages")


def test_what_is_expected_skips_what_was_lost_and_accepted() -> None:
    changes = {0: Change(5, 50, whole=True), 1: Change(2, 20), 2: Change(-1, 3), 3: Change(4, 4)}
    gap = Gap("out", 0, 2, 10, "2026-01-01")
    assert after_changes(changes, []) == Content(10, 77)
    assert after_changes(changes, [gap]) == Content(9, 54)
    assert after_changes({**changes, 2: Change(7, 70, whole=True)}, []) == Content(11, 74)
    assert isinstance(after_changes({1: Change(1, 1)}, []), str)
    entries = [BatchEntry(number, 1, rows_out={"out": 2}, checksums={"out": 9}) for number in range(4)]
    assert after_rows("out", entries, [gap]) == Content(4, 18)


def test_a_ledger_without_checksums_cannot_be_audited(project: Project, spark: SparkSession) -> None:
    with pytest.raises(PenstockError) as raised:
        audit(project.load(pipeline("console: {}", ledger="{}")), project.folder / "state", lambda: spark)
    assert raised.value.code == "LEDGER_WITHOUT_CHECKSUM"


@settings(max_examples=20)
@given(
    st.lists(st.tuples(st.none() | st.integers(-(1 << 63), (1 << 63) - 1), st.none() | st.text(max_size=5)), max_size=5)
)
def test_spark_and_python_agree(spark: SparkSession, rows: list[tuple[int | None, str | None]]) -> None:
    valid = [(number, text) for number, text in rows if text is None or text.isprintable()]
    frame = spark.createDataFrame(valid, "a bigint, b string")
    (found,) = frame.agg(spark_sum(["a", "b"])).collect()
    assert found[NAME] == sum(python_sum(*row) for row in valid)
