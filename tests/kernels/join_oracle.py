"""What joins must give, told row by row with dicts and loops. Knows nothing of the kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
NEVER = -(1 << 62)


@dataclass
class IntervalJoinOracle:
    """The interval join, batch by batch, with every row ever seen in memory."""

    keys: tuple[Sequence[str], Sequence[str]]
    how: str
    lower: int
    upper: int
    out: tuple[Sequence[tuple[str, str]], Sequence[tuple[str, str]]]
    max_delay: int
    newest: int | None = None
    watermark: int = NEVER
    before: int = NEVER
    rows: tuple[list[Row], list[Row]] = field(default_factory=lambda: ([], []))
    matched: tuple[set[int], set[int]] = field(default_factory=lambda: (set(), set()))
    given: tuple[set[int], set[int]] = field(default_factory=lambda: (set(), set()))
    late: list[tuple[int, Row]] = field(default_factory=list)

    def batch(self, left: Sequence[Row], right: Sequence[Row]) -> list[Row]:
        out: list[Row] = []
        for side, rows in enumerate((left, right)):
            for row in rows:
                if row["_time"] <= self.before:
                    self.late.append((side, row))
                    continue
                out += self._meet(side, row)
        out += self._close()
        times = [row["_time"] for row in (*left, *right)]
        if self.newest is not None:
            times.append(self.newest)
        self.before = self.watermark
        if times:
            self.newest = max(times)
            self.watermark = max(self.watermark, self.newest // 1000 * 1000 - self.max_delay)
        return out

    def finish(self, far: int) -> list[Row]:
        self.before, self.watermark = self.watermark, max(self.watermark, far)
        return self.batch([], [])

    def _meet(self, side: int, row: Row) -> list[Row]:
        out = []
        me = len(self.rows[side])
        self.rows[side].append(row)
        for number, other in enumerate(self.rows[1 - side]):
            left, right = (row, other) if side == 0 else (other, row)
            if self._are_partners(left, right):
                self.matched[side].add(me)
                self.matched[1 - side].add(number)
                out.append(self._joined(left, right))
        return out

    def _are_partners(self, left: Row, right: Row) -> bool:
        for one, other in zip(*self.keys, strict=True):
            if left[one] is None or right[other] is None or left[one] != right[other]:
                return False
        distance: int = right["_time"] - left["_time"]
        return self.lower <= distance <= self.upper

    def _close(self) -> list[Row]:
        out = []
        for side, reach in ((0, self.upper), (1, -self.lower)):
            if self.how not in (("left", "full"), ("right", "full"))[side]:
                continue
            for number, row in enumerate(self.rows[side]):
                hopeless = any(row[key] is None for key in self.keys[side])
                over = row["_time"] + reach <= self.watermark
                if (hopeless or over) and number not in self.matched[side] and number not in self.given[side]:
                    self.given[side].add(number)
                    out.append(self._joined(row, None) if side == 0 else self._joined(None, row))
        return out

    def _joined(self, left: Row | None, right: Row | None) -> Row:
        return {
            **{out: None if left is None else left[name] for name, out in self.out[0]},
            **{out: None if right is None else right[name] for name, out in self.out[1]},
        }


Table = dict[tuple[Any, ...], Row]


@dataclass
class ChangelogJoinOracle:
    """Two tables as dicts, changed row by row and joined anew after each batch."""

    keys: tuple[Sequence[str], Sequence[str]]
    on: Sequence[tuple[str, str]]
    version: tuple[str, str]
    deleted: tuple[str | None, str | None]
    how: str
    out: tuple[Sequence[tuple[str, str]], Sequence[tuple[str, str]]]
    tombstones: int | None
    content: tuple[Sequence[str], Sequence[str]]
    """For each side the columns that decide between changes of one version and one time, in their order."""
    tables: tuple[Table, Table] = field(default_factory=lambda: ({}, {}))

    def batch(self, watermark: int, left: Sequence[Row], right: Sequence[Row]) -> list[Row]:
        """The changes of the joined table; the watermark is the one of this batch."""
        before = self.joined()
        for side, rows in enumerate((left, right)):
            for row in rows:
                self._apply(side, row)
        after = self.joined()
        out = []
        for key in {**before, **after}:
            if key not in after:
                out.append(self._gone(key))
            elif key not in before or repr(before[key]) != repr(after[key]):
                out.append({**after[key], "deleted": False})
        self._forget(watermark)
        return out

    def joined(self) -> Table:
        """The joined table as it is, by left key."""
        found = {}
        for key, row in self.tables[0].items():
            if self._is_deleted(0, row):
                continue
            partner = self._partner(row)
            if partner is None and self.how == "inner":
                continue
            found[key] = {
                **{out: row[name] for name, out in self.out[0]},
                **{out: None if partner is None else partner[name] for name, out in self.out[1]},
            }
        return found

    def _partner(self, row: Row) -> Row | None:
        for candidate in self.tables[1].values():
            equal = all(row[a] is not None and row[a] == candidate[b] for a, b in self.on)
            if equal and not self._is_deleted(1, candidate):
                return candidate
        return None

    def _is_deleted(self, side: int, row: Row) -> bool:
        name = self.deleted[side]
        return name is not None and row[name] is True

    def _apply(self, side: int, row: Row) -> None:
        key = tuple(row[name] for name in self.keys[side])
        stored = self.tables[side].get(key)
        if stored is None or self._rank(side, row) > self._rank(side, stored):
            self.tables[side][key] = row

    def _rank(self, side: int, row: Row) -> Any:
        def lifted(value: Any) -> tuple[bool, Any]:
            return (value is not None, 0 if value is None else value)

        version = lifted(row[self.version[side]])
        return (version, row["_time"], self._is_deleted(side, row), [lifted(row[name]) for name in self.content[side]])

    def _forget(self, watermark: int) -> None:
        if self.tombstones is None:
            return
        for side, table in enumerate(self.tables):
            for key, row in list(table.items()):
                if self._is_deleted(side, row) and row["_time"] + self.tombstones <= watermark:
                    del table[key]

    def _gone(self, key: tuple[Any, ...]) -> Row:
        values = dict(zip(self.keys[0], key, strict=True))
        return {
            **{out: values.get(name) for name, out in self.out[0]},
            **{out: None for _, out in self.out[1]},
            "deleted": True,
        }


def applied(changes: Sequence[Row], keys: Sequence[str]) -> Mapping[tuple[Any, ...], Row]:
    """The table that changes make, in their order."""
    table: Table = {}
    for row in changes:
        key = tuple(row[name] for name in keys)
        if row["deleted"]:
            table.pop(key, None)
        else:
            table[key] = {name: value for name, value in row.items() if name != "deleted"}
    return table


def chosen(number: int, *choices: Sequence[Any]) -> list[Any]:
    """One of each, as a number says: one draw for a whole row keeps cases cheap."""
    picks = []
    for options in choices:
        number, index = divmod(number, len(options))
        picks.append(options[index])
    return picks
