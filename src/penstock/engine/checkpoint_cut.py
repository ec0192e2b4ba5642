"""What of Spark's checkpoint belongs to the state after one batch: its files, and what they say of that moment.

offsets/N  commits/N             one file a batch; a batch is planned in the first and done in the second
sources/NAME/                    what a source has noted; it may be ahead of the batch, as it is after a crash
state/OPERATOR/PARTITION/        VERSION.zip, a snapshot that names files in SSTs/, and VERSION.changelog after it;
                                 batch N makes version N + 1. A join has a folder for each of its stores in between.
state/OPERATOR/_metadata/ …      what the operator is, and the schema of its state
chunks/                          state in chunk files, which are ours (see engine/state/chunk_store.py)
"""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.engine.checkpoint import last_number
from penstock.engine.state.chunk_store import FOLDER, INDEX, StateIndex, index_file, read_index
from penstock.errors import PenstockError

CHUNKS = "chunks"
"""What a step in chunk files is called, where Spark has names for its operators."""
_VERSION = re.compile(r"(\d+)(?:_[\w-]+)?\.(changelog|zip)")
_SNAPSHOTS = "SSTs"
_LOGS = ("offsets", "commits")


@dataclass(frozen=True)
class Operator:
    """A stateful operator of the query: its number, and what Spark calls it."""

    id: int
    kind: str


def files_until(checkpoint: Path, batch: int, *, planned: bool) -> list[str]:
    """The files that a run needs to go on after a batch, relative to the checkpoint.

    With `planned`, what is noted of the batch after it is among them, so that it comes again just as it was begun.
    """
    last = {"offsets": batch + 1 if planned else batch, "commits": batch}
    found: list[str] = []
    for root, folders, entries in os.walk(checkpoint):
        if root == str(checkpoint / FOLDER):
            found += _chunk_files(checkpoint / FOLDER, batch, planned=planned)
            folders.clear()
            continue
        folders[:] = [name for name in folders if not name.startswith(".")]
        inside = "" if root == str(checkpoint) else f"{os.path.relpath(root, checkpoint)}/"
        names = [name for name in entries if not _is_temporary(name)]
        if inside.startswith("state/"):
            names = list(_needed(Path(root), names, batch + 1))
        elif inside.rstrip("/") in _LOGS:
            names = [name for name in names if name.isdigit() and int(name) <= last[inside.rstrip("/")]]
        found += [f"{inside}{name}" for name in _with_checksums(names, set(entries))]
    return sorted(found)


def _chunk_files(folder: Path, batch: int, *, planned: bool) -> Iterator[str]:
    """The index of a batch and what it names; of a batch that has begun its index too, for the watermark in it."""
    for number in (batch, batch + 1) if planned else (batch,):
        path = index_file(folder, number)
        if path is not None:
            yield f"{FOLDER}/{INDEX}/{path.name}"
    yield from (f"{FOLDER}/{name}" for name in read_index(folder, batch).files())


def _is_temporary(name: str) -> bool:
    """Hidden files are those that are being written, and checksums, which go with what they are of."""
    return name.startswith(".") or name.endswith(".tmp")


def _with_checksums(names: list[str], there: set[str]) -> Iterator[str]:
    for name in names:
        yield name
        if f".{name}.crc" in there:
            yield f".{name}.crc"


def _needed(folder: Path, names: list[str], version: int) -> Iterator[str]:
    """Of a folder of state what it takes to load a version; everything, if the folder holds no versions."""
    if folder.name == _SNAPSHOTS:
        yield from _named_by_snapshot(folder, names, version)
        return
    first = _snapshot(names, version)
    for name in names:
        found = _VERSION.fullmatch(name)
        number = int(found[1]) if found else 0
        if found is None or (number == first if found[2] == "zip" else first < number <= version):
            yield name


def _snapshot(names: list[str], version: int) -> int:
    """The newest snapshot from which a version can be loaded; 0 if that starts from nothing."""
    found = [_VERSION.fullmatch(name) for name in names]
    return max((int(one[1]) for one in found if one and one[2] == "zip" and int(one[1]) <= version), default=0)


def _named_by_snapshot(folder: Path, names: list[str], version: int) -> Iterator[str]:
    around = [entry.name for entry in folder.parent.iterdir()]
    snapshot = _snapshot(around, version)
    zips = [name for name in around if (found := _VERSION.fullmatch(name)) and found[2] == "zip"]
    wanted: set[str] = set()
    for name in zips:
        if int(name.split(".")[0].split("_")[0]) == snapshot:
            wanted |= _sst_files(folder.parent / name)
    yield from (name for name in names if name in wanted)


def _sst_files(snapshot: Path) -> set[str]:
    """The files in SSTs/ that a snapshot consists of, with those of its log."""
    try:
        with zipfile.ZipFile(snapshot) as content:
            text = content.read("metadata").decode()
        listed = json.loads(text.split("\n", 1)[1])
        return {str(file["dfsSstFileName"]) for file in listed["sstFiles"]}
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, IndexError, zipfile.BadZipFile) as error:
        raise PenstockError.of("STATE_UNREADABLE", path=snapshot, reason=error) from None


# --- what the logs say of a batch ------------------------------------------------------------------------------


def offsets_of(checkpoint: Path, batch: int) -> dict[str, Any]:
    """The position in each stream after a batch, as Spark has it; null for one that has given nothing."""
    lines = _log(checkpoint / "offsets" / str(batch))[2:]
    named = [line.partition(":") for line in lines]
    return {name: None if position == "-" else _parsed(position) for name, _, position in named}


def _parsed(position: str) -> Any:
    try:
        return json.loads(position)
    except ValueError:
        return position


def watermark_after(checkpoint: Path, batch: int) -> int:
    """The watermark that a batch has left, in milliseconds."""
    lines = _log(checkpoint / "commits" / str(batch))
    return int(json.loads(lines[1]).get("nextBatchWatermarkMs", 0))


def watermark_of(checkpoint: Path, batch: int) -> int:
    """The watermark by which a batch has settled things, in milliseconds."""
    return int(json.loads(_log(checkpoint / "offsets" / str(batch))[1]).get("batchWatermarkMs", 0))


def settled_until(checkpoint: Path, batch: int) -> int:
    """Up to where a batch has settled everything, in milliseconds."""
    if (checkpoint / FOLDER).is_dir():
        return read_index(checkpoint / FOLDER, batch).watermark
    return watermark_of(checkpoint, batch)


def partitions_of(checkpoint: Path, batch: int) -> int | None:
    """Into how many partitions state was divided in a batch."""
    conf: Mapping[str, str] = json.loads(_log(checkpoint / "offsets" / str(batch))[1]).get("conf", {})
    found = conf.get("spark.sql.shuffle.partitions")
    return None if found is None else int(found)


def divided(text: str, partitions: int) -> str:
    """A log of offsets that says into how many partitions state is divided from then on."""
    head, metadata, *positions = text.splitlines()
    content = json.loads(metadata)
    content["conf"]["spark.sql.shuffle.partitions"] = str(partitions)
    return "\n".join([head, json.dumps(content, separators=(",", ":")), *positions])


def _log(file: Path) -> list[str]:
    try:
        return file.read_text("utf-8").splitlines()
    except OSError as error:
        raise PenstockError.of("STATE_UNREADABLE", path=file, reason=error.strerror or error) from None


def operators(checkpoint: Path) -> list[Operator]:
    """What keeps state, in the order of their numbers: operators of Spark, or steps in chunk files."""
    steps = steps_in_chunks(checkpoint)
    if steps:
        return [Operator(number, CHUNKS) for number in range(len(steps))]
    folders = [item for item in (checkpoint / "state").glob("[0-9]*/") if item.name.isdigit()]
    return [Operator(int(item.name), _kind(item)) for item in sorted(folders, key=lambda item: int(item.name))]


def steps_in_chunks(checkpoint: Path) -> list[str]:
    """The steps whose state is in chunk files; none if it is in Spark's state store, or if there is nothing yet."""
    index = newest_index(checkpoint)
    return [] if index is None else list(index.steps)


def newest_index(checkpoint: Path) -> StateIndex | None:
    """What is in chunk files after the last committed batch; None if there are none."""
    batch = last_number(checkpoint / "commits")
    if batch < 0 or not (checkpoint / FOLDER).is_dir():
        return None
    return read_index(checkpoint / FOLDER, batch)


def _kind(operator: Path) -> str:
    newest = operator / "_metadata" / "v2"
    file = newest / str(last_number(newest)) if newest.is_dir() else operator / "_metadata" / "metadata"
    try:
        return str(json.loads(file.read_text("utf-8").splitlines()[1])["operatorInfo"]["operatorName"])
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return "unknown"


def operator_of(path: str) -> int | None:
    """The operator whose state a file of the checkpoint belongs to; `path` is relative to the checkpoint."""
    found = re.match(r"state/(\d+)/", path)
    return int(found[1]) if found else None
