"""A history that is read first gives what having run from the first day would have given."""

from __future__ import annotations

import datetime as dt
import random
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.engine.running import course, json_lines, problems, table

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.conftest import Project

START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
CUT = 3_000
END = 5_000
DELAY, OVER, WINDOW = 20, 300, 60
Row = dict[str, Any]


def time(second: int) -> dt.datetime:
    return START + dt.timedelta(seconds=second)


def row(id: int, second: int) -> Row:
    return {"id": id, "ts": time(second), "user": f"u{id % 5}", "n": id % 7}


PARQUET = "files: {path: ./old}, format: {parquet: {}}"
STEPS = f"""
        steps:
          recent:
            from: events
            rolling: {{by: [user], over: {OVER} seconds, values: {{seen: count(*), total: sum(n)}}}}
          minutes: {{from: events, window: {{size: {WINDOW} seconds, by: [user], values: {{rows: count(*)}}}}}}
        sinks:
          recent_rows: {{from: recent, sqlite: {{path: out.db, table: recent}}}}
          minute_rows: {{from: minutes, sqlite: {{path: out.db, table: minutes}}}}
"""
ROWS = """
        sinks:
          all: {from: events, sqlite: {path: out.db, table: rows}}
"""


def pipeline(history: str = PARQUET, until: bool = True, rest: str = ROWS) -> str:
    cut = f', until: "{time(CUT).isoformat()}"' if until else ""
    return f"""
        sources:
          events:
            files: {{path: ./in, maxFilesPerBatch: 1}}
            format: {{json: {{schema: {{id: bigint, ts: timestamp, user: string, n: bigint}}}}}}
            eventTime: {{column: ts, maxDelay: {DELAY} seconds}}
            bootstrap: {{{history}{cut}}}
        state: {{partitions: 2}}{rest}"""


def expected(rows: list[Row]) -> tuple[set[tuple[Any, ...]], set[tuple[Any, ...]]]:
    """What a computation over all rows gives for those that the watermark has passed."""
    mark = max(item["ts"] for item in rows) - dt.timedelta(seconds=DELAY)
    recent = set()
    for item in rows:
        if item["ts"] <= mark:
            near = [
                other["n"]
                for other in rows
                if other["user"] == item["user"] and dt.timedelta(0) <= item["ts"] - other["ts"] < dt.timedelta(0, OVER)
            ]
            recent.add((item["id"], len(near), sum(near)))
    minutes: dict[tuple[int, str], int] = {}
    for item in rows:
        second = int((item["ts"] - START).total_seconds()) // WINDOW * WINDOW
        if time(second + WINDOW) <= mark:
            minutes[second, item["user"]] = minutes.get((second, item["user"]), 0) + 1
    return recent, {(second, user, count) for (second, user), count in minutes.items()}


def found(folder: Path) -> tuple[set[tuple[Any, ...]], set[tuple[Any, ...]]]:
    recent = table(folder / "out.db", "SELECT id, seen, total FROM recent")
    minutes = [
        (int((dt.datetime.fromisoformat(start).replace(tzinfo=dt.UTC) - START).total_seconds()), user, count)
        for start, user, count in table(folder / "out.db", "SELECT window_start, user, rows FROM minutes")
    ]
    assert len(recent) == len(set(recent))
    assert len(minutes) == len(set(minutes))
    return set(recent), set(minutes)


def ids(folder: Path) -> list[int]:
    return [id for (id,) in table(folder / "out.db", "SELECT id FROM rows ORDER BY id")]


def write_parquet(file: Path, rows: list[Row]) -> None:
    file.parent.mkdir(exist_ok=True)
    schema = pa.schema(
        [("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("user", pa.string()), ("n", pa.int64())]
    )
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows, schema), file)


def draw(project: Project, chance: random.Random) -> list[Row]:
    """A history whose files are in no order, and live rows; both hold the time around the cut. What counts of them."""
    old = [row(number, chance.randrange(0, CUT + 200)) for number in range(400)]
    times = sorted(chance.randrange(CUT - 200, END) for _ in range(300))
    live = [row(1_000 + place, second) for place, second in enumerate(times)]
    chance.shuffle(old)
    for number in range(4):
        write_parquet(project.folder / "old" / f"{number}.parquet", old[number::4])
    cuts = sorted(chance.sample(range(1, len(live)), 2))
    for number, (first, last) in enumerate(zip([0, *cuts], [*cuts, len(live)], strict=True)):
        part = [{**item, "ts": item["ts"].isoformat()} for item in live[first:last]]
        project.put(f"in/{number}.json", json_lines(part))
    cut = time(CUT)
    return [item for item in old if item["ts"] < cut] + [item for item in live if item["ts"] >= cut]


@pytest.mark.spark
@pytest.mark.parametrize(
    "deaths",
    [
        pytest.param((), marks=pytest.mark.long),
        ("sink.after_commit", "history.read"),
    ],
)
def test_history_then_live_is_as_if_run_from_the_first_day(
    deaths: tuple[str, ...], project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.engine import history

    monkeypatch.setattr(history, "ROWS_PER_FILE", 20)
    monkeypatch.setattr(history, "FILES_PER_BATCH", 12)
    rows = draw(project, random.Random(len(deaths)))
    graph, state = project.build(pipeline(rest=STEPS)), project.folder / "state"
    for death in deaths:
        course(graph, state, die_at=death)
    seen = course(graph, state)
    assert found(project.folder) == expected(rows)
    assert seen[-1].phase == "done"
    assert not (state / "spool" / "history" / "events" / "rows").exists()
    if not deaths:
        shown = [status.history for status in seen if status.history is not None]
        old = sum(item["ts"] < time(CUT) for item in rows)
        assert {(item.total, item.done <= item.total) for item in shown} == {(old, True)}
        assert seen[-1].history is None
        assert seen[-1].rows_in == {"events": len(rows)}


@pytest.mark.spark
def test_without_a_cut_all_of_the_history_comes_first(project: Project) -> None:
    old, live = [row(1, 10), row(2, 100)], [row(3, 90), row(4, 400)]
    write_parquet(project.folder / "old" / "a.parquet", old)
    project.put("in/a.json", json_lines([{**item, "ts": item["ts"].isoformat()} for item in live]))
    course(project.build(pipeline(until=False)), project.folder / "state")
    assert ids(project.folder) == [1, 2, 3, 4]


@pytest.mark.spark
def test_a_table_can_be_the_history(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    old, live = [row(number, number * 10 % CUT) for number in range(1, 300)], [row(1000, CUT), row(1001, CUT + 100)]
    with closing(sqlite3.connect(project.folder / "old.db")) as db:
        db.execute("CREATE TABLE old (id BIGINT NOT NULL PRIMARY KEY, ts TIMESTAMP, user TEXT, n BIGINT)")
        rows = [(item["id"], item["ts"].strftime("%Y-%m-%d %H:%M:%S"), item["user"], item["n"]) for item in old]
        db.executemany("INSERT INTO old VALUES (?, ?, ?, ?)", rows)
        db.commit()
    project.put("in/a.json", json_lines([{**item, "ts": item["ts"].isoformat()} for item in live]))
    course(project.build(pipeline('sql_poll: {url: "sqlite:///old.db", table: old, order: id}')), project.folder / "s")
    assert ids(project.folder) == [*range(1, 300), 1000, 1001]
    assert [path.name for path in (project.folder / "s" / "spool" / "history" / "events").iterdir()] == ["plan.json"]


@pytest.mark.spark
def test_rows_of_the_history_that_cannot_be_read_are_dead_letters(project: Project) -> None:
    (project.folder / "old").mkdir()
    (project.folder / "old" / "a.csv").write_text(
        "id,ts,user,n\n1,2024-01-01T00:00:10Z,u1,x\n2,2024-01-01T00:00:20Z,u2,2\n", "utf-8"
    )
    (project.folder / "in").mkdir()
    schema = "{csv: {schema: {id: bigint, ts: timestamp, user: string, n: bigint}}}"
    graph = project.build(pipeline(f"files: {{path: ./old}}, format: {schema}"))
    last = course(graph, project.folder / "state")[-1]
    assert (last.rows_in, last.rows_dead) == ({"events": 2}, {"events": 1})
    assert course(graph, project.folder / "state")[-1].rows_in == {}


@pytest.mark.spark
def test_a_history_is_refused_once_the_source_has_been_read(project: Project) -> None:
    write_parquet(project.folder / "old" / "a.parquet", [row(1, 10)])
    project.put("in/a.json", json_lines([{**row(2, CUT + 1), "ts": time(CUT + 1).isoformat()}]))
    state = project.folder / "state"
    plain = pipeline().replace("bootstrap", "# bootstrap")
    course(project.build(plain), state)
    with pytest.raises(PenstockError) as raised:
        course(project.build(pipeline()), state)
    assert raised.value.code == "HISTORY_TOO_LATE"


@pytest.mark.spark
def test_a_cut_cannot_be_moved_once_history_was_read(project: Project) -> None:
    write_parquet(project.folder / "old" / "a.parquet", [row(1, 10)])
    (project.folder / "in").mkdir()
    state = project.folder / "state"
    course(project.build(pipeline()), state)
    with pytest.raises(PenstockError) as raised:
        course(project.build(pipeline(until=False)), state)
    assert raised.value.code == "HISTORY_CHANGED"


@pytest.mark.spark
def test_columns_that_differ_are_found_before_the_run(project: Project, spark: SparkSession) -> None:
    file = project.folder / "old" / "a.parquet"
    file.parent.mkdir()
    (project.folder / "in").mkdir()
    pyarrow.parquet.write_table(pa.table({"id": [1], "ts": [time(1)], "user": ["u"], "n": ["many"]}), file)
    (problem,) = problems(spark, project.build(pipeline()), project.folder / "spool")
    assert (problem.code, "'n' is string, not bigint" in problem.message) == ("HISTORY_COLUMNS", True)
    assert problem.location is not None


def test_what_cannot_be_a_history_is_refused(project: Project) -> None:
    with pytest.raises(PenstockError) as raised:
        project.load(pipeline("generator: {dataset: page_views}"))
    assert raised.value.code == "HISTORY_UNBOUNDED"
    with pytest.raises(PenstockError) as raised:
        project.load(pipeline().replace("eventTime", "# eventTime"))
    assert raised.value.code == "HISTORY_WITHOUT_TIME"
