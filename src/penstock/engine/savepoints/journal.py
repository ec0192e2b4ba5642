"""The way back to a savepoint, noted step by step, so that a state folder is found on the old side or the new one.

restore.json   what is being restored, and how far that has come
.restore/      the new parts, complete before the note is written
.before/       the old parts, until the sinks have gone back too

A run that dies in between is followed by one that goes on where it was: from `built` forward to `swapped`, and from
`swapped` on by the next run, whose sinks go back before its first batch. If a sink refuses and none has gone back, the
old parts are put in place again.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from penstock.components.shared.crashpoints import reach
from penstock.durable import make_folders, sync_folder, sync_tree, write_durably
from penstock.engine.on_disk import forget_begun
from penstock.errors import PenstockError
from penstock.reports.codec import plain, read
from penstock.reports.savepoints import SavedSink

PARTS = ("checkpoint", "spool", "dead", "late", "ledger.db", "pipeline.json")
"""What is put in place as a whole."""
_NOTE, NEW, OLD = "restore.json", ".restore", ".before"
_REWOUND = "rewound.json"


@dataclass(frozen=True)
class Restoration:
    """A savepoint on its way into a state folder."""

    savepoint: str
    pipeline: str
    batch: int
    stage: Literal["built", "swapped", "undoing"]
    had: tuple[str, ...]
    """The parts that were there before."""
    sinks: tuple[SavedSink, ...] = ()
    """Those that have to go back, and to what."""
    rewound: tuple[str, ...] = ()
    """Those that have."""
    keep_rows: bool = False
    """Whether a sink that cannot take rows back keeps them, and is given them again."""
    sinks_stay: bool = False
    """Whether sinks are where they have to be, so that it is over as soon as the new parts are in place."""


def pending(state: Path) -> Restoration | None:
    """The restoration that has not come to its end."""
    return _read(state / _NOTE)


def _read(file: Path) -> Restoration | None:
    try:
        return read(Restoration, file.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise PenstockError.of("STATE_UNREADABLE", path=file, reason=error) from None


def _write(state: Path, restoration: Restoration, name: str = _NOTE) -> None:
    write_durably(state / name, json.dumps(plain(restoration), indent=1) + "\n")


def settle(state: Path) -> None:
    """Brings a restoration that was interrupted to the next safe side. Only who holds the folder may do so."""
    found = pending(state)
    if found is None:
        for name in (NEW, OLD):
            shutil.rmtree(state / name, ignore_errors=True)
    elif found.stage == "built":
        _over(state, swap(state, found))
    elif found.stage == "swapped":
        _over(state, found)
    elif found.stage == "undoing":
        _put_back(state, found)


def begin(state: Path, restoration: Restoration) -> Restoration:
    """From here on the new parts, which lie ready, will be put in place whatever happens."""
    sync_tree(state / NEW)
    shutil.rmtree(state / OLD, ignore_errors=True)
    (state / _REWOUND).unlink(missing_ok=True)
    _write(state, restoration)
    reach("restore.built", 0)
    swapped = swap(state, restoration)
    _over(state, swapped)
    return swapped


def _over(state: Path, restoration: Restoration) -> None:
    """No sink has to go back: it is over at once."""
    if restoration.sinks_stay:
        (state / _NOTE).unlink()
        settle(state)


def swap(state: Path, restoration: Restoration) -> Restoration:
    """Puts the new parts in place of the old ones; a part that is no longer among the new ones is in place."""
    make_folders(state / OLD)
    forget_begun(state)
    for part in PARTS:
        new, now, old = (folder / part for folder in (state / NEW, state, state / OLD))
        if not new.exists():
            continue
        if now.exists():
            now.rename(old)
        new.rename(now)
    for folder in (state / OLD, state / NEW, state):
        sync_folder(folder)
    swapped = replace(restoration, stage="swapped")
    _write(state, swapped)
    reach("restore.swapped", 0)
    return swapped


def undo(state: Path) -> None:
    """Puts the old parts back, if no sink has gone back yet."""
    found = pending(state)
    if found is not None and found.stage == "swapped" and not found.rewound:
        _write(state, replace(found, stage="undoing"))
        _put_back(state, found)


def _put_back(state: Path, found: Restoration) -> None:
    for part in PARTS:
        now, old = state / part, state / OLD / part
        if part in found.had and not old.exists():
            continue
        if now.is_dir():
            shutil.rmtree(now)
        else:
            now.unlink(missing_ok=True)
        if part in found.had:
            old.rename(now)
    forget_begun(state)
    for folder in (state / OLD, state):
        sync_folder(folder)
    (state / _NOTE).unlink()
    settle(state)


def note_rewound(state: Path, sink: str) -> None:
    """A sink has gone back."""
    found = pending(state)
    assert found is not None
    _write(state, replace(found, rewound=(*found.rewound, sink)))


def finish(state: Path) -> None:
    """All sinks have gone back: the old side is given up.

    A note of it stays for sinks that are opened only when there is something for them.
    """
    found = pending(state)
    assert found is not None
    reach("restore.rewound", 0)
    _write(state, found, _REWOUND)
    (state / _NOTE).unlink()
    settle(state)


def last(state: Path) -> Restoration | None:
    """The restoration that the state stems from, if it does from one."""
    return _read(state / _REWOUND)


def note_rewound_later(state: Path, sink: str) -> None:
    """A sink has gone back that was not open when the others did."""
    found = last(state)
    assert found is not None
    _write(state, replace(found, rewound=(*found.rewound, sink)), _REWOUND)
