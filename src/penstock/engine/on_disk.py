"""What Spark notes in its checkpoint, on the disk before anything rests on it; and what a power failure leaves of it.

Spark writes its files and never syncs them. So a batch goes these steps:

1. Spark notes in offsets/ and sources/ what the batch reads. Before a sink gets a row these files are synced, and with
   them the commit of the batch before; then the file `begun` names the batch.
2. Tasks write the state, sinks store their rows, the ledger gets its entry.
3. What is new in state/ and in the spool is synced before Spark writes the commit.

After a power failure only what Spark wrote last may be missing or cut short: the commit of the batch in `begun`,
and the plan of the one after it, which no sink has seen. Both can be made again. Damage anywhere else is no trace of a
power failure, and stays an error.
"""

from __future__ import annotations

import json
import os
import re
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

from penstock.durable import NewFiles, make_folders, sync_folder, write_durably
from penstock.engine.checkpoint import is_whole, last_committed, last_number
from penstock.engine.state.chunk_store import FOLDER
from penstock.errors import PenstockError

_BEGUN = "begun"
_LOG_OFFSET = re.compile(r'"logOffset":\s*(\d+)')
_CHECKSUM_HEAD = struct.Struct(">4si")


@dataclass(frozen=True)
class Begun:
    """The last batch of which a sink may have something."""

    batch: int
    ended: bool = False
    """Whether the run has ended after it in order, so that all of its checkpoint is on the disk."""

    def to_text(self) -> str:
        """Always as long, so that it is written over in one piece."""
        return f"{self.batch:012d} {'ended' if self.ended else 'begun'}\n"


def read_begun(state: Path) -> Begun | None:
    """None for a state that was last used by a Penstock that did not note it, or that was put in place since."""
    try:
        batch, word = (state / _BEGUN).read_text("ascii").split()
        return Begun(int(batch), word == "ended")
    except (FileNotFoundError, ValueError):
        return None


def forget_begun(state: Path) -> None:
    """Another checkpoint is put in place."""
    (state / _BEGUN).unlink(missing_ok=True)


class CheckpointOnDisk:
    """Syncs the checkpoint of a running pipeline as its batches go by."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.checkpoint = state / "checkpoint"
        self._spark = NewFiles(self.checkpoint)
        self._spool = NewFiles(state / "spool")

    def open(self) -> None:
        """Notes where the state stands, if it is not known."""
        if read_begun(self.state) is None:
            planned = max(last_number(self.checkpoint / "offsets"), last_committed(self.checkpoint))
            write_durably(self.state / _BEGUN, Begun(planned).to_text())

    def created(self) -> None:
        """Spark has made its checkpoint; nothing may name it before it is on the disk."""
        make_folders(self.checkpoint)
        self._spark.sync()
        sync_folder(self.state)

    def begin(self, batch: int) -> None:
        """A sink gets the first row of the batch when this has returned."""
        self._spark.sync(without=("state", FOLDER))
        self._note(Begun(batch))

    def end(self) -> None:
        """Spark may commit the batch when this has returned."""
        self._spark.sync(without=(FOLDER,))
        self._spool.sync()

    def close(self, finished: int) -> None:
        """No batch is at work any more; `finished` is the last one that all sinks have."""
        if finished >= 0 and last_committed(self.checkpoint) == finished == last_number(self.checkpoint / "offsets"):
            self.end()
            self._note(Begun(finished, ended=True))

    def _note(self, begun: Begun) -> None:
        """Writes the note over: as short as it is, a disk has the old one or the new one."""
        file = os.open(self.state / _BEGUN, os.O_WRONLY)
        try:
            os.pwrite(file, begun.to_text().encode("ascii"), 0)
            os.fdatasync(file)
        finally:
            os.close(file)


# --- after a power failure -------------------------------------------------------------------------------------


def mend_checkpoint(state: Path) -> list[str]:
    """Repairs what a power failure may have left of the newest notes of Spark; what was done. Needs the state's lock.

    Raises STATE_UNREADABLE if a batch was begun whose plan is gone.
    """
    begun = read_begun(state)
    checkpoint = state / "checkpoint"
    if begun is None or begun.ended:
        return []
    planned = last_number(checkpoint / "offsets")
    if planned < begun.batch:
        file = checkpoint / "offsets" / str(begun.batch)
        raise PenstockError.of(
            "STATE_UNREADABLE", path=file, reason=f"it is missing, and batch {begun.batch} has begun"
        )
    done = _mend_commit(checkpoint, begun.batch, planned) if begun.batch >= 0 else []
    again = bool(done) and not (checkpoint / "commits" / str(begun.batch)).exists()
    done += _mend_plan(checkpoint, begun.batch, planned, drop=again)
    _remove_lone_checksums(checkpoint)
    return done


def _mend_commit(checkpoint: Path, begun: int, planned: int) -> list[str]:
    """The commit of the last batch that has begun: written again, or taken away so that the batch comes again."""
    commit, plan = checkpoint / "commits" / str(begun), checkpoint / "offsets" / str(begun + 1)
    if commit.exists():
        _drop_wrong_checksum(commit)
    if is_whole(commit) or (planned <= begun and not commit.exists()):
        return []
    _remove(commit)
    text = _commit_before(plan, commit.with_name(str(begun - 1)))
    if text is None:
        return [f"batch {begun} comes again: its commit was not on the disk"]
    write_durably(commit, text)
    return [f"the commit of batch {begun} was written again: it was not on the disk"]


def _commit_before(plan: Path, older: Path) -> str | None:
    """A commit as Spark writes it, from the plan of the batch after it, which begins at the same watermark."""
    if not (is_whole(plan) and is_whole(older)):
        return None
    version, content, *more = older.read_text("utf-8").splitlines()
    if more or set(json.loads(content)) != {"nextBatchWatermarkMs"}:
        return None
    watermark = json.loads(plan.read_text("utf-8").splitlines()[1])["batchWatermarkMs"]
    return f"{version}\n{json.dumps({'nextBatchWatermarkMs': watermark}, separators=(',', ':'))}"


def _mend_plan(checkpoint: Path, begun: int, planned: int, *, drop: bool) -> list[str]:
    """Drops the plan of a batch that has not begun if it is not whole, or if the batch before it comes again."""
    plan = checkpoint / "offsets" / str(planned)
    read = _read_until(checkpoint / "offsets" / str(begun))
    newer = {log: _entries_after(log, read.get(log.name, -1)) for log in (checkpoint / "sources").glob("*/")}
    for file in (entry for entries in newer.values() for entry in entries.values()):
        _drop_wrong_checksum(file)
    broken = (drop and planned > begun) or any(
        not is_whole(file) for entries in newer.values() for file in entries.values()
    )
    if planned > begun:
        _drop_wrong_checksum(plan)
        wanted = _read_until(plan) if is_whole(plan) else {}
        missing = any(
            wanted.get(log.name, -1) > max(entries, default=read.get(log.name, -1)) for log, entries in newer.items()
        )
        broken = broken or missing or not is_whole(plan)
    if not broken:
        return []
    for number in range(begun + 1, planned + 1):
        _remove(checkpoint / "offsets" / str(number))
    for file in (entry for entries in newer.values() for entry in entries.values()):
        _remove(file)
    return [f"batch {begun + 1} is planned again: its plan was not on the disk"]


def _read_until(plan: Path) -> dict[str, int]:
    """The entries of the logs of file sources that a batch reads, by source."""
    if not is_whole(plan):
        return {}
    found = {}
    for line in plan.read_text("utf-8").splitlines()[2:]:
        name, _, position = line.partition(":")
        entry = _LOG_OFFSET.search(position)
        if entry is not None:
            found[name] = int(entry[1])
    return found


def _entries_after(log: Path, number: int) -> dict[int, Path]:
    """What a source has noted beyond an entry of its log."""
    numbered = {file: int(file.name.split(".")[0]) for file in log.iterdir() if file.name.split(".")[0].isdigit()}
    return {found: file for file, found in sorted(numbered.items(), key=lambda item: item[1]) if found > number}


def _drop_wrong_checksum(file: Path) -> None:
    """A checksum is a file of its own, and may be what is missing."""
    beside = file.with_name(f".{file.name}.crc")
    if beside.exists() and is_whole(file) and not _has_checksum(file.read_bytes(), beside.read_bytes()):
        beside.unlink()


def _remove_lone_checksums(checkpoint: Path) -> None:
    """Spark would take one for a file that another query has written."""
    for folder in (checkpoint / "offsets", checkpoint / "commits", *(checkpoint / "sources").glob("*/")):
        for file in folder.glob(".*.crc"):
            if not (folder / file.name[1:].removesuffix(".crc")).exists():
                file.unlink()


def _has_checksum(content: bytes, checksum: bytes) -> bool:
    """Whether a checksum as Hadoop writes it beside a local file fits the content."""
    if len(checksum) < _CHECKSUM_HEAD.size:
        return False
    magic, size = _CHECKSUM_HEAD.unpack_from(checksum)
    if magic != b"crc\0" or size <= 0:
        return False
    sums = [zlib.crc32(content[start : start + size]) for start in range(0, len(content), size)]
    return checksum[_CHECKSUM_HEAD.size :] == struct.pack(f">{len(sums)}I", *sums)


def _remove(file: Path) -> None:
    file.unlink(missing_ok=True)
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
