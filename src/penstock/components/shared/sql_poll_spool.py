"""What a polled table has given, in files of the run's own: a batch that is run again reads the same rows.

A table does not keep what a batch has read of it: rows change, go, and appear late. So the rows of a batch, and the
position after it, are written down before Spark notes the batch; ranges of a large backlog are written by the task
that reads them first. An offset names only the plan.

NUMBER-TOKEN.json   the position after a batch, and the files with its rows
NUMBER-TOKEN.N      rows, as Arrow
"""

from __future__ import annotations

import base64
import json
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.components.shared.sql_poll_plan import Range
from penstock.components.shared.sql_poll_position import DIGEST, Position
from penstock.components.shared.sql_poll_query import Bound, Place, Value
from penstock.durable import create_durably, make_folders

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS_AT_ONCE = 10_000
FOLLOWED = "cutover"
"""The folder in that of the state, three above a stream's own, that is there while another version follows."""


class Missing(Exception):
    """A file is not there, or is damaged."""

    def __init__(self, path: Path, reason: str = "the file is missing") -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


@dataclass(frozen=True)
class Piece:
    """A file with rows of a batch, and the range that goes into it if it was not written with the plan."""

    file: str
    range: Range | None = None


@dataclass(frozen=True)
class Spool:
    """The folder of one stream."""

    folder: Path

    # --- plans --------------------------------------------------------------------------------------------

    def write(self, number: int, position: Position, rows: Sequence[pa.Table], ranges: Sequence[Range]) -> str:
        """Writes a plan down and gives its name; the plan is there when all its parts are."""
        make_folders(self.folder)
        name = f"{number:012d}-{uuid.uuid4().hex[:12]}"
        files = [f"{name}.{place}" for place in range(len(rows) + len(ranges))]
        for file, table in zip(files, rows, strict=False):
            self._put(file, _as_bytes(table))
        read_later = [*(None for _ in rows), *map(_range_out, ranges)]
        pieces = list(zip(files, read_later, strict=True))
        plan = {"position": _position_out(position), "pieces": pieces}
        self._put(f"{name}.json", json.dumps(plan).encode())
        return name

    def position(self, name: str) -> Position:
        """The position after a plan."""
        return _position_in(self._plan(name)["position"])

    def pieces(self, name: str) -> list[Piece]:
        return [Piece(file, None if found is None else _range_in(found)) for file, found in self._plan(name)["pieces"]]

    def first(self) -> str | None:
        """The plan with which the stream began, if it is still there."""
        return next((file.stem for file in sorted(self.folder.glob(f"{0:012d}-*.json"))), None)

    def forget(self, number: int) -> None:
        """Removes all plans before this one, unless another version of the pipeline has still to read them."""
        if (self.folder.parents[2] / FOLLOWED).is_dir():
            return
        for file in self.folder.iterdir() if self.folder.exists() else ():
            written = file.name.lstrip(".").partition("-")[0]
            if written.isdecimal() and int(written) < number:
                file.unlink(missing_ok=True)

    def _plan(self, name: str) -> dict[str, Any]:
        path = self.folder / f"{name}.json"
        try:
            return dict(json.loads(path.read_bytes()))
        except FileNotFoundError:
            raise Missing(path) from None
        except ValueError:
            raise Missing(path, "the file is damaged") from None

    # --- rows ---------------------------------------------------------------------------------------------

    def has(self, piece: Piece) -> bool:
        return (self.folder / piece.file).exists()

    def keep(self, piece: Piece, rows: pa.Table) -> None:
        """Writes the rows of a piece, unless another task was faster: then its rows are the ones that count."""
        self._put(piece.file, _as_bytes(rows))

    def rows(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        path = self.folder / piece.file
        try:
            with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as file:
                for number in range(file.num_record_batches):
                    yield file.get_batch(number)
        except FileNotFoundError:
            raise Missing(path) from None
        except pa.ArrowInvalid as error:
            raise Missing(path, str(error)) from None

    # --- files --------------------------------------------------------------------------------------------

    def _put(self, name: str, content: bytes) -> None:
        """Writes a file whole or not at all; one that is there stays."""
        create_durably(self.folder / name, content)


def _as_bytes(table: pa.Table) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table, _ROWS_AT_ONCE)
    return bytes(sink.getvalue())


# --- as JSON ----------------------------------------------------------------------------------------------


def _value_out(value: Value) -> Any:
    return {"hex": value.hex()} if isinstance(value, bytes) else value


def _value_in(value: Any) -> Value:
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else value


def _place_out(place: Place | None) -> Any:
    return None if place is None else [_value_out(value) for value in place]


def _place_in(place: Any) -> Place | None:
    return None if place is None else tuple(_value_in(value) for value in place)


def _bound_out(bound: Bound | None) -> Any:
    return None if bound is None else {"values": _place_out(bound.values), "after": bound.after}


def _bound_in(bound: Any) -> Bound | None:
    return None if bound is None else Bound(_place_in(bound["values"]) or (), bound["after"])


def _range_out(found: Range) -> dict[str, Any]:
    return {"start": _bound_out(found.start), "up_to": _place_out(found.up_to)}


def _range_in(found: Mapping[str, Any]) -> Range:
    return Range(_bound_in(found["start"]), _place_in(found["up_to"]) or ())


def _position_out(position: Position) -> dict[str, Any]:
    return {
        "order": position.order,
        "identity": position.identity,
        "low": _bound_out(position.low),
        "at": _place_out(position.at),
        "looks": [(when, _value_out(value)) for when, value in position.looks],
        "seen": base64.b64encode(b"".join(position.seen.elements())).decode(),
    }


def _position_in(found: Mapping[str, Any]) -> Position:
    digests = base64.b64decode(found["seen"])
    return Position(
        order=tuple(found["order"]),
        identity=tuple(found["identity"]),
        low=_bound_in(found["low"]),
        at=_place_in(found["at"]),
        looks=tuple((when, _value_in(value)) for when, value in found["looks"]),
        seen=Counter(digests[start : start + DIGEST] for start in range(0, len(digests), DIGEST)),
    )
