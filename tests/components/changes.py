"""A table that random changes are made to, and Debezium's records of them."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
START_MS = 1_704_067_200_000
FIELDS = [
    {"field": "id", "type": "int64"},
    {"field": "name", "type": "string"},
    {"field": "amount", "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}},
    {"field": "born", "type": "int32", "name": "io.debezium.time.Date"},
    {"field": "seen", "type": "int64", "name": "io.debezium.time.MicroTimestamp"},
]


def unscaled(number: int) -> str:
    """A decimal's digits as Kafka Connect writes them."""
    return base64.b64encode(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)).decode()


def written(row: Row | None) -> Row | None:
    """A row as it stands in a record; amounts are in cents."""
    return row and {**row, "amount": unscaled(row["amount"])}


def record(
    op: str, before: Row | None, after: Row | None, source: dict[str, Any], *, with_schema: bool, ms: int = START_MS
) -> bytes:
    payload = {"before": written(before), "after": written(after), "op": op, "ts_ms": ms + 50,
               "source": {"ts_ms": ms, **source}}  # fmt: skip
    if not with_schema:
        return json.dumps(payload).encode()
    sides = [{"field": side, "type": "struct", "fields": FIELDS} for side in ("before", "after")]
    return json.dumps({"schema": {"type": "struct", "fields": sides}, "payload": payload}).encode()


@dataclass
class Changed:
    """A table, and the records of what was done to it, in order."""

    seed: int
    database: str
    with_schema: bool
    rows: dict[int, Row] = field(default_factory=dict)
    records: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    """Keys and values of messages."""

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.position = 100

    def change(self, count: int) -> None:
        for _ in range(count):
            key = self.chance.randrange(12)
            old = self.rows.get(key)
            if old is not None and self.chance.random() < 0.35:
                del self.rows[key]
                self._note("d", key, self._before(old), None)
                self.records.append((self._key(key), None))
                continue
            new = {"id": key, "name": f"n{self.chance.randrange(1000)}", "amount": self.chance.randrange(-500, 99_999),
                   "born": self.chance.randrange(-100, 20_000), "seen": START_MS * 1000 + self.position}  # fmt: skip
            self.rows[key] = new
            self._note("r" if not self.records else "u" if old else "c", key, self._before(old), new)

    def _before(self, row: Row | None) -> Row | None:
        """PostgreSQL tells only the key of a row before its change, unless it is asked for more."""
        if row is None or self.database == "mysql":
            return row
        return {**dict.fromkeys(row), "id": row["id"], "amount": 0}

    def _key(self, key: int) -> bytes:
        return json.dumps({"schema": {}, "payload": {"id": key}} if self.with_schema else {"id": key}).encode()

    def _note(self, op: str, key: int, before: Row | None, after: Row | None) -> None:
        self.position += self.chance.randrange(1, 50)
        source: dict[str, Any] = {"lsn": self.position}
        if self.database == "mysql":
            # Positions begin anew in each file, and rows of one statement share one.
            number, pos = divmod(self.position, 400)
            source = {"file": f"binlog.{number + 8:06d}", "pos": 4 + pos // 40, "row": pos % 40}
        found = record(op, before, after, source, with_schema=self.with_schema)
        self.records.append((self._key(key), found))

    def batches(self, count: int) -> Iterator[list[tuple[bytes, bytes | None]]]:
        """All records in some parts, out of order and with repetitions."""
        shuffled = [*self.records, *self.chance.sample(self.records, len(self.records) // 4)]
        self.chance.shuffle(shuffled)
        for part in range(count):
            yield shuffled[part::count]

    @property
    def expected(self) -> list[tuple[Any, ...]]:
        return sorted((row["id"], row["name"], f"{row['amount'] / 100:.2f}") for row in self.rows.values())
