"""What is noted of a cut-over: which version is to take over from which, how far that is, and what it has followed.

cutover/note.json   the cut-over
cutover/new/        the state folder of the new version, until it takes over
cutover/shadow/     what the new version would have stored, by sink
cutover/followed    which batch of the pipeline each batch of the new version stands for

All of it lies in the state folder of the pipeline. Nothing of it counts for the pipeline itself, and it is gone from
one moment to the next: when the cut-over is given up, or when the new version has taken over.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from penstock.durable import make_folders, sync_folder, write_durably
from penstock.errors import PenstockError
from penstock.reports.codec import plain, read
from penstock.reports.version import Version

FOLDER = "cutover"
_GONE = ".cutover.gone"
_NOTE, _FOLLOWED = "note.json", "followed"


@dataclass(frozen=True)
class Cutover:
    """A new version on its way to take over."""

    pipeline: str
    file: str
    """The pipeline file of the new version."""
    fingerprint: str
    """Of the new version, as it was declared in that file."""
    before: str
    """The mark of the version that runs."""
    savepoint: str
    """Where both begin."""
    started_at: str
    stage: Literal["preparing", "following"] = "preparing"
    batch: int = -1
    """The batch of the savepoint."""
    query_id: str | None = None
    """The identity of the new version's checkpoint."""
    last: str | None = None
    """The savepoint of the pipeline as the new version is to take over from it, if one was begun."""
    lose: tuple[str, ...] = ()
    """Those whose state was given up."""
    kept: Mapping[str, int] = field(default_factory=dict)
    """Rows of state by step that went on."""
    begun: tuple[str, ...] = ()
    """Steps whose state began empty."""
    base: str | None = None
    """Where relative paths in the file start, if that is not beside it."""


@dataclass(frozen=True)
class Places:
    """Where the parts of a cut-over lie."""

    state: Path
    """The state folder of the pipeline."""

    @property
    def folder(self) -> Path:
        return self.state / FOLDER

    @property
    def new(self) -> Path:
        return self.folder / "new"

    @property
    def shadow(self) -> Path:
        return self.folder / "shadow"


def find(state: Path) -> Cutover | None:
    """The cut-over that is under way."""
    file = state / FOLDER / _NOTE
    try:
        return read(Cutover, file.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise PenstockError.of("STATE_UNREADABLE", path=file, reason=error) from None


def write(state: Path, cutover: Cutover) -> None:
    make_folders(state / FOLDER)
    write_durably(state / FOLDER / _NOTE, json.dumps(plain(cutover), indent=1) + "\n")


def remove(state: Path) -> None:
    """Takes all of a cut-over away: it is gone at once, its files after it."""
    gone = state / _GONE
    shutil.rmtree(gone, ignore_errors=True)
    if (state / FOLDER).exists():
        (state / FOLDER).rename(gone)
        sync_folder(state)
        shutil.rmtree(gone, ignore_errors=True)


def sweep(state: Path, query_id: str | None) -> None:
    """Removes what is left of a cut-over that has come to its end, given whose checkpoint is in place now."""
    shutil.rmtree(state / _GONE, ignore_errors=True)
    file = state / FOLDER / _NOTE
    if not file.is_file():
        return
    found = find(state)
    if found is not None and found.query_id is not None and found.query_id == query_id:
        remove(state)


def mark_of(version: Version) -> str:
    """The same for the same version of a pipeline."""
    return hashlib.sha256(json.dumps(plain(version), sort_keys=True).encode()).hexdigest()


# --- what was followed -----------------------------------------------------------------------------------------


def note_followed(state: Path, batch: int, original: int) -> None:
    """A batch of the new version is about to read what the pipeline had read after `original`."""
    with (state / FOLDER / _FOLLOWED).open("ab") as file:
        file.write(f"{batch} {original}\n".encode())
        file.flush()
        os.fsync(file.fileno())
    sync_folder(state / FOLDER)


def followed(state: Path) -> dict[int, int]:
    """Batches of the new version, with those of the pipeline after which they stand."""
    try:
        text = (state / FOLDER / _FOLLOWED).read_text("utf-8")
    except FileNotFoundError:
        return {}
    # The last line may be cut short by the end of a process; then nothing has followed it.
    lines = [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]
    return {int(line[0]): int(line[1]) for line in lines if len(line) == 2}
