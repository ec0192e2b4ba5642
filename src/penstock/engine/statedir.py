"""The folder in which a pipeline keeps its state: who owns it, which run this is, and that only one runs at a time.

pipeline.json   name, lineage (made once, the identity sinks know batches by), epoch (counts the runs)
checkpoint/     Spark's
savepoints/     what can be returned to; restore.json while that is being done
cutover/        a new version that is to take over, while that is being prepared
ledger.db       row counts of every batch
begun           the last batch of which a sink may have something
lock            held by the run that owns the state: its process and its epoch
logs/  dead/  late/  spool/  scratch/

The lock is a lease. A run that no longer answers but still holds it can be overtaken: the newer one puts a lock file
of its own in its place. The older one finds another file under that name when it wakes, and goes no further; what it
holds itself nobody looks at any more.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from penstock.durable import make_folders, write_durably
from penstock.engine.cutover.note import sweep
from penstock.engine.on_disk import mend_checkpoint
from penstock.engine.savepoints.journal import pending, settle
from penstock.errors import PenstockError
from penstock.reports.codec import plain, read
from penstock.reports.version import Version

_IDENTITY = "pipeline.json"
_LOCK = "lock"
_OPENING_SECONDS = 10.0


@dataclass(frozen=True)
class Identity:
    """Whose state this is. A new lineage starts from nothing; an epoch is one run of it."""

    name: str
    lineage: str
    epoch: int
    query_id: str | None = None
    buckets: int | None = None
    """Into how many buckets the keys of stateful steps are divided."""
    version: Version | None = None
    """What it was when it last ran; None if that was with a Penstock that did not note it."""
    operators: Mapping[str, str] = field(default_factory=dict)
    """The steps whose state is kept, by Spark's number of the operator."""


class StateDir:
    """An open, locked state folder. Opening it starts a new epoch.

    With `take_over` it is opened even if another run holds it, which then may not go on; with `mend` even if the
    checkpoint in it is damaged, as it will be replaced.
    """

    def __init__(self, path: Path, name: str, *, take_over: bool = False, mend: bool = False) -> None:
        self.path = path
        self._lock: IO[str] | None = None
        refuse_foreign(path, name, mend=mend)
        try:
            make_folders(path)
            with _one_at_a_time(path):
                self._lock, newest = self._take_lock(take_over=take_over)
                settle(path)
                self.mended = mend_checkpoint(path)
                found = read_identity(path) or Identity(name, uuid.uuid4().hex, 0)
                sweep(path, found.query_id)
                self.identity = replace(found, epoch=max(found.epoch, newest) + 1)
                self._sign()
                self._save()
        except OSError as error:
            self.close()
            raise storage_error(error, path) from error
        except BaseException:
            self.close()
            raise

    def _take_lock(self, *, take_over: bool) -> tuple[IO[str], int]:
        """The lock, and the epoch of who had it before."""
        lock = (self.path / _LOCK).open("a+", encoding="utf-8")
        pid, epoch = _signature(lock)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock, epoch
        except BlockingIOError:
            lock.close()
        if not take_over:
            raise PenstockError.of("STATE_IN_USE", path=self.path, pid=pid or "unknown")
        return self._replace_lock(), epoch

    def _replace_lock(self) -> IO[str]:
        """Puts a lock file of its own in the place of one that another run holds."""
        hidden = self.path / f".{_LOCK}.{os.getpid()}"
        hidden.unlink(missing_ok=True)
        lock = hidden.open("a+", encoding="utf-8")
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        hidden.replace(self.path / _LOCK)
        return lock

    def _sign(self) -> None:
        """Writes process and epoch into the lock file, where no older run can change it any more."""
        assert self._lock is not None
        # Without a buffer, which a full disk would keep from being closed.
        os.ftruncate(self._lock.fileno(), 0)
        os.write(self._lock.fileno(), f"{os.getpid()} {self.identity.epoch}".encode())

    @property
    def overtaken(self) -> bool:
        """Whether a newer run has taken the state over."""
        return self._lock is not None and not _is_file(self._lock, self.path / _LOCK)

    def refuse_overtaken(self) -> None:
        """Raises FENCED if a newer run has taken the state over: then nothing may be stored any more."""
        if self.overtaken:
            newer = _newest_epoch(self.path)
            raise PenstockError.of("FENCED", path=self.path, newer=newer, epoch=self.identity.epoch)

    def _save(self) -> None:
        self.refuse_overtaken()
        write_durably(self.path / _IDENTITY, identity_text(self.identity))

    def adopt(self) -> None:
        """Takes over what was put into the folder while it was open, as a new epoch of it."""
        found = read_identity(self.path)
        assert found is not None
        self.identity = replace(found, epoch=max(found.epoch, self.identity.epoch) + 1)
        self._sign()
        self._save()

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
    def is_new(self) -> bool:
        """Whether nothing has run on it yet."""
        return self.identity.query_id is None

    def note_version(self, version: Version) -> None:
        """Notes what runs on this state from now on."""
        if self.identity.version != version:
            self.identity = replace(self.identity, version=version)
            self._save()

    def note_operators(self, steps: Mapping[int, str]) -> None:
        """Notes where the state of which step is kept."""
        operators = {str(number): step for number, step in sorted(steps.items())}
        if self.identity.operators != operators:
            self.identity = replace(self.identity, operators=operators)
            self._save()

    def known_as(self, sink: str) -> str:
        """The name by which what a sink has stored knows it."""
        version = self.identity.version
        return sink if version is None else version.sinks.get(sink, sink)

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


@contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    """Opening a state folder is a matter of milliseconds, and for one run at a time."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    deadline = time.monotonic() + _OPENING_SECONDS
    try:
        while True:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise PenstockError.of("STATE_IN_USE", path=path, pid="unknown") from None
                time.sleep(0.01)
        yield
    finally:
        os.close(folder)


def _signature(lock: IO[str]) -> tuple[str, int]:
    """Process and epoch in a lock file; an empty one is nobody's."""
    lock.seek(0)
    pid, _, epoch = lock.read().strip().partition(" ")
    return pid, int(epoch) if epoch.isdigit() else 0


def _newest_epoch(path: Path) -> int:
    try:
        with (path / _LOCK).open(encoding="utf-8") as lock:
            return _signature(lock)[1]
    except FileNotFoundError:
        return 0


def _is_file(opened: IO[str], path: Path) -> bool:
    """Whether an open file is the one that has this name now."""
    try:
        return os.path.samestat(os.fstat(opened.fileno()), path.stat())
    except FileNotFoundError:
        return False


def in_use(path: Path) -> bool:
    """Whether a run holds the folder now."""
    try:
        with (path / _LOCK).open("r", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def refuse_foreign(path: Path, name: str, *, mend: bool = False) -> None:
    """Raises if the folder holds another pipeline's state, or something that is no state; changes nothing."""
    restoration = pending(path)
    if restoration is not None and restoration.stage != "swapped":
        # Parts of two states lie there, until the folder is opened.
        if restoration.pipeline != name:
            raise PenstockError.of("STATE_OF_ANOTHER_PIPELINE", path=path, found=restoration.pipeline, expected=name)
        return
    found = read_identity(path)
    if found is not None:
        if found.name != name:
            raise PenstockError.of("STATE_OF_ANOTHER_PIPELINE", path=path, found=found.name, expected=name)
        if not mend:
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
        return read(Identity, file.read_bytes())
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise PenstockError.of("PATH_NOT_WRITABLE", path=path, reason="it is not a folder") from None
    except (OSError, ValueError, TypeError) as error:
        raise PenstockError.of("STATE_UNREADABLE", path=file, reason=error) from None


def identity_text(identity: Identity) -> str:
    """What stands in the file."""
    return json.dumps(plain(identity), indent=1) + "\n"


def storage_error(error: OSError, path: Path) -> PenstockError:
    """A full or unwritable disk in words."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return PenstockError.of("DISK_FULL", path=path)
    return PenstockError.of("PATH_NOT_WRITABLE", path=path, reason=error.strerror or error)
