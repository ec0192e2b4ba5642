"""A polled table gives every row once, whatever the commits, cuts, restarts and replays."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.components.polling import Row, Stream, settings, source
from tests.components.sql_stores import STORES, Store, made
from tests.servers.cutting import CuttingProxy

from penstock.components.shared.source_errors import SourceError, problem_in
from penstock.components.shared.sql_poll_spool import Spool
from penstock.components.shared.sql_poll_stream import Part, SqlPollReader
from penstock.errors import Problem

EPOCH = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
OVERLAP = 10


def at(second: float) -> dt.datetime:
    return EPOCH + dt.timedelta(seconds=second)


# --- random histories ------------------------------------------------------------------------------------------


@dataclass
class History:
    """Writes to a table as transactions do: rows get their time first and appear when they are committed."""

    store: Store
    by_time: bool
    with_key: bool
    stack: ExitStack
    second: int = 0
    number: int = 0
    open: list[tuple[int, Any, Row]] = field(default_factory=list)
    table: Counter[Row] = field(default_factory=Counter)
    """What a reader can see now."""
    ever: Counter[Row] = field(default_factory=Counter)
    """What could ever be seen."""

    def __post_init__(self) -> None:
        self.store.execute("DROP TABLE IF EXISTS t")
        kind = {"sqlite": "TIMESTAMP", "postgres": "timestamptz", "mysql": "DATETIME(6)"}[self.store.name]
        key = ", PRIMARY KEY (id)" if self.with_key else ""
        self.store.execute(f"CREATE TABLE t (ts {kind} NOT NULL, id BIGINT NOT NULL, v INT{key})")
        self.connection = self.stack.enter_context(self.store.connected())

    def clock(self, _: object) -> dt.datetime:
        return at(self.second).replace(tzinfo=None)

    def begin(self, ago: int) -> None:
        """A transaction takes a time and a number, of which the first may be some seconds ago, and stays open."""
        # Rows without a key can be exactly alike.
        self.number += 1 if self.with_key or not self.by_time else 0
        row = (at(max(self.second - ago, 0)), self.number, self.second % 3)
        connection = None
        if self.store.name != "sqlite":
            connection = self.stack.enter_context(self.store.connected())
            connection.cursor().execute("BEGIN")
            self._insert(connection, row)
        self.open.append((self.second - ago if self.by_time else self.second, connection, row))

    def commit(self, which: int) -> None:
        if not self.open:
            return
        _, connection, row = self.open.pop(which % len(self.open))
        if connection is None:
            self._insert(self.connection, row)
        else:
            connection.cursor().execute("COMMIT")
        self.table[row] += 1
        self.ever[row] += 1

    def wait(self, seconds: int) -> None:
        """Time passes; no transaction stays open for longer than the overlap."""
        self.second += seconds
        while late := [number for number, (since, _, _) in enumerate(self.open) if since <= self.second - OVERLAP]:
            self.commit(late[0])

    def change(self, which: int) -> None:
        """A row that is there is changed, and gets the time of now."""
        if not self.table or not self.with_key or not self.by_time:
            return
        old = sorted(self.table)[which % len(self.table)]
        new = (at(self.second), old[1], (old[2] or 0) + 1)
        mark = "?" if self.store.name == "sqlite" else "%s"
        changed = f"UPDATE t SET ts = {mark}, v = {mark} WHERE id = {mark}"
        self.connection.cursor().execute(changed, (self._written(new[0]), new[2], new[1]))
        del self.table[old]
        self.table[new] += 1
        self.ever[new] += 1

    def _insert(self, connection: Any, row: Row) -> None:
        marks = ", ".join(["?" if self.store.name == "sqlite" else "%s"] * 3)
        connection.cursor().execute(f"INSERT INTO t VALUES ({marks})", (self._written(row[0]), *row[1:]))

    def _written(self, time: dt.datetime) -> str | dt.datetime:
        return time if self.store.name == "postgres" else time.replace(tzinfo=None).isoformat(" ")


WEIGHTS = {"begin": 9, "commit": 6, "wait": 4, "change": 2, "run": 4, "replay": 2, "lose": 1, "restart": 1}


def steps(seed: int, count: int) -> list[tuple[str, int]]:
    """What happens, and a number that says how."""
    chance = random.Random(seed)
    return [(step, chance.randrange(8)) for step in chance.choices(list(WEIGHTS), list(WEIGHTS.values()), k=count)]


@contextmanager
def history(store: Store, by_time: bool, with_key: bool) -> Iterator[History]:
    with ExitStack() as stack:
        yield History(store, by_time, with_key, stack)


def follow(store: Store, spool: Path, seed: int, by_time: bool, with_key: bool, piece: int) -> None:
    """Reads while a table is written to, and compares with what was written."""
    with history(store, by_time, with_key) as written:
        order = ["ts"] if by_time else ["id"]
        told = settings(store, spool, order=order, overlap_seconds=float(OVERLAP), piece_rows=piece)
        stream = Stream(told, written.clock)
        for step, number in steps(seed, 80):
            if step == "begin":
                written.begin(number % 4)
            elif step == "commit":
                written.commit(number)
            elif step == "wait":
                written.wait(1 + number)
            elif step == "change":
                written.change(number)
            elif step == "run":
                assert len(stream.run(1 + number)) <= 1 + number or not with_key
            elif step == "lose":
                stream.planned(1 + number)
            elif step == "restart":
                stream.restart()
            else:
                end = stream.planned(1 + number)
                first = stream.rows(end)
                written.commit(number)
                stream.restart()
                assert stream.rows(end) == first
                stream.run(end=end)
        while written.open:
            written.commit(0)
        stream.drain(5)
        missing, twice = written.table - stream.got, stream.got - written.ever
        assert (missing, twice) == (Counter(), Counter()), f"seed {seed}"


BY = pytest.mark.parametrize("by_time", [True, False], ids=["time", "number"])
KEY = pytest.mark.parametrize("with_key", [True, False], ids=["key", "no_key"])
PIECE = pytest.mark.parametrize("piece", [1, 50_000], ids=["ranges", "rows"])


@BY
@KEY
@PIECE
def test_every_row_is_read_once_from_sqlite(tmp_path: Path, by_time: bool, with_key: bool, piece: int) -> None:
    for seed in range(6):
        follow(Store(tmp_path), tmp_path / f"spool{seed}", seed, by_time, with_key, piece)


@pytest.mark.parametrize("name", ["postgres", "mysql"])
def test_every_row_is_read_once_from_servers(request: pytest.FixtureRequest, tmp_path: Path, name: str) -> None:
    store = made(name, request, tmp_path)
    for seed, (by_time, with_key, piece) in enumerate([(True, True, 1), (True, False, 50_000), (False, True, 1)]):
        follow(store, tmp_path / f"spool{seed}", seed, by_time, with_key, piece)


@pytest.mark.long
@pytest.mark.parametrize("name", list(STORES))
def test_every_row_is_read_once_over_many_histories(request: pytest.FixtureRequest, tmp_path: Path, name: str) -> None:
    store = made(name, request, tmp_path)
    for seed in range(100, 400 if name == "sqlite" else 160):
        chance = random.Random(seed)
        by_time, with_key, piece = chance.random() < 0.5, chance.random() < 0.7, chance.choice([1, 2, 50_000])
        follow(store, tmp_path / f"spool{seed}", seed, by_time, with_key, piece)


# --- single cases ----------------------------------------------------------------------------------------------


def stamped(store: Store, *rows: tuple[str, int], key: bool = True) -> None:
    """Adds rows with a time and a number to the table, which is made first."""
    kind = {"sqlite": "TIMESTAMP", "postgres": "timestamp", "mysql": "DATETIME"}[store.name]
    unique = ", PRIMARY KEY (id)" if key else ""
    store.execute(f"CREATE TABLE IF NOT EXISTS t (ts {kind} NOT NULL, id INT NOT NULL{unique})")
    if rows:
        store.execute("INSERT INTO t VALUES " + ", ".join(f"('{time}', {number})" for time, number in rows))


def ids(rows: list[Row]) -> list[int]:
    return [row[1] for row in rows]


def test_a_thousand_rows_of_one_time_are_cut_and_read_once(store: Store, tmp_path: Path) -> None:
    stamped(store, *(("2024-01-01 10:00:00", number) for number in range(1000)), key=False)
    stream = Stream(settings(store, tmp_path / "spool", max_rows_per_batch=300, overlap_seconds=0.0))
    batches = [len(stream.run()) for _ in range(4)]
    stamped(store, ("2024-01-01 10:00:00", 1000), ("2024-01-01 10:00:00", 5), key=False)
    assert (batches, sorted(ids(stream.run()))) == ([300, 300, 300, 100], [5, 1000])
    assert stream.run() == []


def test_a_backlog_is_read_in_ranges_that_stay_as_they_were_read_first(store: Store, tmp_path: Path) -> None:
    stamped(store, *((f"2024-01-01 10:{number // 60:02d}:{number % 60:02d}", number) for number in range(100)))
    stream = Stream(settings(store, tmp_path / "spool", piece_rows=20, max_rows_per_batch=70))
    end = stream.planned()
    parts = stream.rows(end)
    assert [ids(part) for part in parts] == [list(range(start, min(start + 20, 70))) for start in (0, 20, 40, 60)]
    store.execute("UPDATE t SET id = id + 1000 WHERE id < 50", "DELETE FROM t WHERE id = 60")
    stream.restart()
    assert stream.rows(end) == parts
    stream.run(end=end)
    # Spark may lose its note that the batch was done, and run it again.
    assert [row for piece in stream.reader._spool.pieces(end["plan"]) for row in stream.reader.read(Part(piece))]
    assert ids(stream.run()) == list(range(70, 100))
    assert stream.run() == []


def test_of_two_tasks_that_read_a_range_the_first_counts(tmp_path: Path) -> None:
    store = Store(tmp_path)
    stamped(store, *((f"2024-01-01 10:00:{number:02d}", number) for number in range(40)))
    stream = Stream(settings(store, tmp_path / "spool", piece_rows=10))
    part = stream.reader.partitions(stream.offset, stream.planned())[0]
    slow, fast = (SqlPollReader(stream.settings) for _ in range(2))
    asked = slow._read_range

    def overtaken(connection: Any, piece: Any) -> Any:
        found = asked(connection, piece)
        stamped(store, ("2024-01-01 10:00:03", 99))
        assert sum(batch.num_rows for batch in fast.read(part)) == 11
        return found

    slow._read_range = overtaken  # type: ignore[method-assign]
    assert sum(batch.num_rows for batch in slow.read(part)) == 11


def test_a_row_dated_in_the_future_is_read_once_and_holds_nothing_up(store: Store, tmp_path: Path) -> None:
    stamped(store, ("2024-01-01 10:00:00", 1), ("2099-01-01 00:00:00", 2))
    stream = Stream(settings(store, tmp_path / "spool", piece_rows=2, overlap_seconds=5.0))
    assert sorted(ids(stream.run())) == [1, 2]
    stamped(store, ("2024-01-01 10:00:07", 3), ("2024-01-01 09:59:55", 4))
    assert sorted(ids(stream.run())) == [3, 4]
    stamped(store, *((f"2024-01-02 10:00:{number:02d}", number) for number in range(10, 30)))
    stream.restart()
    assert sorted(ids(stream.run() + stream.run())) == list(range(10, 30))
    assert stream.run() == []


def test_only_what_the_overlap_needs_is_remembered(store: Store, tmp_path: Path) -> None:
    stream = None
    for minute in range(5):
        stamped(store, *((f"2024-01-01 10:{minute:02d}:{second:02d}", 60 * minute + second) for second in range(60)))
        stream = stream or Stream(settings(store, tmp_path / "spool", overlap_seconds=15.0))
        assert len(stream.run()) == 60
        name = stream.offset["plan"]
        assert Spool(tmp_path / "spool").position(name).seen.total() == 16
        assert {file.name.partition(".")[0] for file in (tmp_path / "spool").iterdir()} == {name}


def test_a_first_run_can_start_at_a_time_a_number_or_the_end(store: Store, tmp_path: Path) -> None:
    stamped(store, *((f"2024-01-01 10:00:0{number}", number) for number in range(5)))
    for case, (start, order, expected) in enumerate(
        [
            ("2024-01-01 10:00:03", ["ts"], [3, 4, 9]),
            ("3", ["id"], [3, 4, 9]),
            ("latest", ["ts"], [9]),
            ("latest", ["id"], [9]),
            ("earliest", ["id"], [0, 1, 2, 3, 4, 9]),
        ]
    ):
        stream = Stream(settings(store, tmp_path / f"spool{case}", start=start, order=order))
        before = stream.run() if start != "latest" else []
        stamped(store, ("2024-01-01 10:00:04", 9))
        # A run that ended before there was anything to read has begun all the same.
        stream.restart()
        assert stream.reader.initialOffset()["plan"] == stream.offset["plan"] or before
        assert sorted(ids(before + stream.run())) == expected, (start, order)
        store.execute("DELETE FROM t WHERE id = 9")


def test_a_table_is_not_looked_at_more_often_than_wanted(tmp_path: Path) -> None:
    store, now = Store(tmp_path), [0.0]
    stamped(store, ("2024-01-01 10:00:00", 1))
    told = settings(store, tmp_path / "spool", every_seconds=10.0)
    stream = Stream(told)
    stream.reader = SqlPollReader(told, monotonic=lambda: now[0])
    assert ids(stream.run()) == [1]
    stamped(store, ("2024-01-01 10:00:01", 2))
    now[0] = 9.0
    assert stream.run() == []
    now[0] = 10.0
    assert ids(stream.run()) == [2]


def test_a_run_until_now_ends_although_rows_keep_coming(tmp_path: Path) -> None:
    store = Store(tmp_path)
    stamped(store, *((f"2024-01-01 10:00:0{number}", number) for number in range(6)))
    stream = Stream(settings(store, tmp_path / "spool", max_rows_per_batch=2), bounded=True)
    for number in range(10):
        found = ids(stream.run())
        stamped(store, (f"2024-01-01 10:01:{number:02d}", 100 + number))
        assert found == ([2 * number, 2 * number + 1] if number < 3 else [])
    assert stream.reader.reportLatestOffset() == {"waiting": 0, "counted": 1_000_000}


def test_rows_that_wait_are_counted(tmp_path: Path) -> None:
    store = Store(tmp_path)
    stamped(store, *((f"2024-01-01 10:00:{number:02d}", number) for number in range(50)))
    for piece, waiting in ((10, 10), (50_000, 10)):
        stream = Stream(settings(store, tmp_path / f"spool{piece}", max_rows_per_batch=40, piece_rows=piece,
                                 overlap_seconds=0.0))  # fmt: skip
        stream.run()
        latest = stream.reader.reportLatestOffset()
        found = source(store).backlog(None, {"latestOffset": latest})  # type: ignore[arg-type]
        assert str(found) == f"{waiting} rows"
    assert str(source(store).backlog(None, {"latestOffset": {"waiting": 7, "counted": 7}})) == "7 rows or more"  # type: ignore[arg-type]


def test_a_column_that_is_added_is_read_from_the_next_run_on(store: Store, tmp_path: Path) -> None:
    stamped(store, ("2024-01-01 10:00:00", 1), ("2024-01-01 10:00:01", 2))
    stream = Stream(settings(store, tmp_path / "spool"))
    stream.run()
    stamped(store, ("2024-01-01 10:00:02", 3))
    end = stream.planned()
    store.execute("ALTER TABLE t ADD COLUMN note INT", "INSERT INTO t VALUES ('2024-01-01 10:00:03', 4, 7)")
    stream.settings = settings(store, tmp_path / "spool")
    stream.restart()
    assert [row[1:] for row in stream.run(end=end)] == [(3, None)]
    assert [row[1:] for row in stream.run()] == [(4, 7)]
    assert stream.run() == []


def failure(action: Callable[[], object]) -> Problem:
    with pytest.raises(SourceError) as raised:
        action()
    found = problem_in(str(raised.value))
    assert found is not None
    return found


def test_what_a_position_no_longer_fits_is_said(store: Store, tmp_path: Path) -> None:
    stamped(store, ("2024-01-01 10:00:00", 1), ("2024-01-01 10:00:01", 2))
    stream = Stream(settings(store, tmp_path / "spool"))
    stream.run()
    stream.settings = settings(store, tmp_path / "spool", order=["id"])
    stream.restart()
    other = failure(stream.run)
    assert (other.code, "in the order of ts, id" in other.message) == ("STATE_SOURCES_CHANGED", True)
    stream.settings = settings(store, tmp_path / "spool")
    stream.restart()
    for file in (tmp_path / "spool").glob("*.json"):
        file.write_bytes(file.read_bytes()[:-20])
    assert failure(stream.run).code == "STATE_UNREADABLE"
    for file in (tmp_path / "spool").iterdir():
        file.unlink()
    gone = failure(stream.run)
    assert (gone.code, "the file is missing" in gone.message) == ("STATE_UNREADABLE", True)


def test_a_table_that_is_gone_or_not_in_order_stops_the_run(tmp_path: Path) -> None:
    store = Store(tmp_path)
    stamped(store, ("2024-99-99", 1))
    told = settings(store, tmp_path / "spool")
    wrong = failure(Stream(told).run)
    assert (wrong.code, "'2024-99-99' in column 'ts' is no time" in wrong.message) == ("SOURCE_FAILED", True)
    store.execute("DROP TABLE t")
    gone = failure(Stream(told).run)
    assert (gone.code, "no such table" in gone.message) == ("SOURCE_FAILED", True)


def test_a_lost_connection_is_tried_again(server: Store, tmp_path: Path) -> None:
    stamped(server, *((f"2024-01-01 10:00:0{number}", number) for number in range(5)))
    assert server.database is not None
    with CuttingProxy(server.database.port, b"ORDER BY") as proxy:
        server.port = proxy.port
        stream = Stream(settings(server, tmp_path / "spool"))
        proxy.arm(delivered=False)
        lost = failure(stream.run)
        assert (lost.code, server.database.password in str(lost)) == ("SOURCE_FAILED", False)
        proxy.arm(delivered=False)
        stream.reader = SqlPollReader(stream.settings)
        assert ids(stream.run()) == [0, 1, 2, 3, 4]
        assert proxy.cuts == 2
