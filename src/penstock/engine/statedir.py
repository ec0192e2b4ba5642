"""The folder in which a pipeline keeps its state: who owns it, which run this is, and that only one runs at a time.

pipeline.json   name, lineage (made once, the identity sinks know batches by), epoch (counts the runs)
checkpoint/     Spark's
ledger.db       row counts of every batch
logs/  dead/  late/  spool/  scratch/  lock
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import uuid
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from penstock.errors import PenstockError

_IDENTITY = "pipeline.json"


@dataclass(frozen=True)
class Identity:
    """Whose state this is. A new lineage starts from nothing; an epoch is one run of it."""

    name: str
    lineage: str
    epoch: int
    query_id: str | None = None
    buckets: int | None = None
    """Into how many buckets the keys of stateful steps are divided."""


class StateDir:
    """An open, locked state folder. Opening it starts a new epoch."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self._lock: IO[str] | None = None
        refuse_foreign(path, name)
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = self._take_lock()
            found = read_identity(path)
            self.identity = replace(found, epoch=found.epoch + 1) if found else Identity(name, uuid.uuid4().hex, 1)
            self._save()
        except OSError as error:
            self.close()
            raise storage_error(error, path) from error
        except BaseException:
            self.close()
            raise

    def _take_lock(self) -> IO[str]:
        lock = (self.path / "lock").open("a+", encoding="utf-8")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            pid = lock.read().strip() or "unknown"
            lock.close()
            raise PenstockError.of("STATE_IN_USE", path=self.path, pid=pid) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        return lock

    def _save(self) -> None:
        hidden = self.path / f".{_IDENTITY}.tmp"
        hidden.write_text(json.dumps(asdict(self.identity), indent=1) + "\n", "utf-8")
        hidden.replace(self.path / _IDENTITY)

    def bind(self, query_id: str) -> None:
        """Notes the identity of Spark's checkpoint, so that a swapped one is noticed."""
        if self.identity.query_id not in (None, query_id):
            raise PenstockError.of(
                "STATE_OF_ANOTHER_PIPELINE", path=self.checkpoint, found="(unknown)", expected=self.identity.name
            )
        self.identity = replace(self.identity, query_id=query_id)
        self._save()

    def settle_buckets(self, wanted: int) -> int:
        """The number of buckets of this state: the one it was made with, or the one wanted if it is new."""
        if self.identity.buckets is None:
            self.identity = replace(self.identity, buckets=wanted)
            self._save()
        assert self.identity.buckets is not None
        return self.identity.buckets

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    @property
    def ledger(self) -> Path:
        return self.path / "ledger.db"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def dead(self) -> Path:
        return self.path / "dead"

    @property
    def late(self) -> Path:
        return self.path / "late"

    @property
    def spool(self) -> Path:
        return self.path / "spool"

    @property
    def scratch(self) -> Path:
        return self.path / "scratch"

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def in_use(path: Path) -> bool:
    """Whether a run holds the folder now."""
    try:
        with (path / "lock").open("r", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def refuse_foreign(path: Path, name: str) -> None:
    """Raises if the folder holds another pipeline's state, or something that is no state; changes nothing."""
    found = read_identity(path)
    if found is not None:
        if found.name != name:
            raise PenstockError.of("STATE_OF_ANOTHER_PIPELINE", path=path, found=found.name, expected=name)
        _refuse_swapped(path, found)
    elif (path / "checkpoint" / "metadata").exists():
        raise PenstockError.of("STATE_OF_ANOTHER_PIPELINE", path=path, found="(not a Penstock state)", expected=name)


def _refuse_swapped(path: Path, found: Identity) -> None:
    metadata = path / "checkpoint" / "metadata"
    if found.query_id is None:
        return
    if not metadata.exists():
        # Sinks would take the batches of a new checkpoint for ones they have, and skip them.
        raise PenstockError.of("STATE_UNREADABLE", path=metadata, reason="the file is missing")
    try:
        query_id = json.loads(metadata.read_text("utf-8"))["id"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PenstockError.of("STATE_UNREADABLE", path=metadata, reason=error) from None
    if query_id != found.query_id:
        raise PenstockError.of(
            "STATE_OF_ANOTHER_PIPELINE", path=path / "checkpoint", found="(another checkpoint)", expected=found.name
        )


def read_identity(path: Path) -> Identity | None:
    file = path / _IDENTITY
    try:
        return Identity(**json.loads(file.read_text("utf-8")))
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise PenstockError.of("PATH_NOT_WRITABLE", path=path, reason="it is not a folder") from None
    except (OSError, ValueError, TypeError) as error:
        raise PenstockError.of("STATE_UNREADABLE", path=file, reason=error) from None


def storage_error(error: OSError, path: Path) -> PenstockError:
    """A full or unwritable disk in words."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return PenstockError.of("DISK_FULL", path=path)
    return PenstockError.of("PATH_NOT_WRITABLE", path=path, reason=error.strerror or error)
