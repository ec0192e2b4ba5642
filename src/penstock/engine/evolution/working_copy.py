"""A copy of a state's checkpoint to work on: what is there stays as it is until the copy takes its place.

The copy shares its files with the checkpoint by links, so nothing in it may be written to, only replaced.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.engine.checkpoint_cut import files_until
from penstock.engine.checkpoint_paths import may_hold_paths
from penstock.engine.ledger import BatchEntry, Ledger
from penstock.engine.savepoints.journal import NEW, PARTS, Restoration, begin
from penstock.engine.savepoints.standing import forget_standing
from penstock.engine.savepoints.trees import files_below, link_all
from penstock.engine.statedir import StateDir, storage_error


@contextmanager
def working_copy(state: StateDir, batch: int) -> Iterator[Path]:
    """The folder of the new parts, with the checkpoint as it was after a batch; it is gone if anything fails."""
    new = state.path / NEW
    shutil.rmtree(new, ignore_errors=True)
    try:
        new.mkdir()
        link_all(state.checkpoint, lambda: files_until(state.checkpoint, batch, planned=False), new / "checkpoint")
        yield new
    except OSError as error:
        raise storage_error(error, Path(error.filename or state.path)) from error
    finally:
        shutil.rmtree(new, ignore_errors=True)


def use_up(state: StateDir, new: Path, batch: int) -> None:
    """Gives the ledger an entry without rows for a batch that the work has used up."""
    Ledger(state.ledger).copy_until(new / "ledger.db", batch)
    Ledger(new / "ledger.db").record(BatchEntry(batch, state.identity.epoch))


def put_in_place(state: StateDir, new: Path, batch: int, savepoint: str) -> None:
    """Lets the new parts take the place of the old ones."""
    settle_paths(new, state.path)
    forget_standing(state.path)
    had = tuple(part for part in PARTS if (state.path / part).exists())
    begin(state.path, Restoration(savepoint, state.identity.name, batch, "built", had, sinks_stay=True))


def settle_paths(new: Path, state: Path) -> None:
    """Lets files that were written in the copy name the place where it will be."""
    for name in files_below(new / "checkpoint"):
        if may_hold_paths(name):
            replace_text(new / "checkpoint" / name, lambda text: text.replace(f"{new}/", f"{state}/"))


def replace_text(path: Path, change: Callable[[str], str]) -> None:
    """Writes a text anew if it changes; what shares its file keeps the old one."""
    text = path.read_text("utf-8")
    changed = change(text)
    if changed != text:
        path.unlink()
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        path.write_text(changed, "utf-8")
