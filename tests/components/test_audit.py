"""An audit finds what was changed in a sink behind the pipeline's back."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.components.sql_stores import Store
from tests.engine.running import course, json_lines

from penstock.components.shared.checksum import NAME, Content, python_sum, spark_sum
from penstock.errors import PenstockError
from penstock.runner.audit import audit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.conftest import Project

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
    assert (found["latest"].verdict, "replaced by key" in found["latest"].reason) == ("not compared", True)

    # A row that someone changed, with as many rows as before.
    store.execute("UPDATE t SET name = 'eve' WHERE id = 1")
    found = {item.sink: item for item in audit(project.load(body), state, lambda: spark)}
    assert found["out"].verdict == "differs"
    assert found["out"].held is not None
    assert found["out"].held.rows == len(ROWS)


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
