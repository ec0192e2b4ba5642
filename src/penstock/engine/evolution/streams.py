"""How far streams were read, carried over to other streams: the logs of offsets, and what sources have noted."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

from penstock.engine.evolution.working_copy import replace_text
from penstock.engine.savepoints.trees import files_below, put
from penstock.errors import PenstockError

_EXTRA = ("_HISTORY", "_TICKS", "_REPLAY", "_AGAIN")
"""How names of streams end, or go on, that are read beside a source or step."""


def carry_positions(checkpoint: Path, origins: Mapping[str, Collection[str]], renamed: Mapping[str, str]) -> None:
    """Lets new streams go on where old ones were; `renamed` are new names of nodes, with those of before."""
    for file in (checkpoint / "offsets").iterdir():
        if file.name.isdigit():
            replace_text(file, lambda text: positions(text, origins, renamed))
    carry_notes(checkpoint / "sources", origins, renamed)


def positions(text: str, origins: Mapping[str, Collection[str]], renamed: Mapping[str, str]) -> str:
    """A log of offsets for the new streams, from one for the old ones."""
    lines = text.splitlines()
    old = {name: position for name, _, position in (line.partition(":") for line in lines[2:])}
    new: dict[str, str] = {}
    for name, sources in origins.items():
        known = {old[source] for source in sources if source in old}
        if len(known) > 1:
            reason = f"what '{name}' is to feed was read to different positions: {', '.join(sorted(sources))}"
            raise PenstockError.of("UPGRADE_FAILED", path="the checkpoint", reason=reason)
        if known:
            new[name] = known.pop()
    used = {source for sources in origins.values() for source in sources}
    for name, position in old.items():
        extra = _renamed_extra(name, renamed)
        if extra is not None and name not in used:
            new.setdefault(extra, position)
    return "\n".join([*lines[:2], *(f"{name}:{position}" for name, position in new.items())])


def is_beside(name: str) -> bool:
    """Whether a stream is read beside a source or step."""
    return any(part in name for part in _EXTRA)


def _renamed_extra(name: str, renamed: Mapping[str, str]) -> str | None:
    """The new name of a stream beside a source or step; None for a source itself."""
    if not is_beside(name):
        return None
    for new, old in renamed.items():
        if name == old or name.startswith((f"{old}_VIA_", *(f"{old}{part}" for part in _EXTRA))):
            return new + name[len(old) :]
    return name


def carry_notes(folder: Path, origins: Mapping[str, Collection[str]], renamed: Mapping[str, str]) -> None:
    """Gives what old streams have noted to the new ones; `folder` holds it by stream."""
    if not folder.is_dir():
        return
    old = folder.with_name("sources-before")
    folder.rename(old)
    wanted = {
        name: next((one for one in sorted(found) if (old / one).is_dir()), None) for name, found in origins.items()
    }
    used = {name for found in origins.values() for name in found}
    for place in old.iterdir():
        extra = _renamed_extra(place.name, renamed)
        if extra is not None and place.name not in used:
            wanted.setdefault(extra, place.name)
    folder.mkdir()
    for name, origin in wanted.items():
        if origin is not None:
            link_tree(old / origin, folder / name)
    shutil.rmtree(old)


def link_tree(origin: Path, target: Path) -> None:
    """The same files under another name of their folder."""
    target.mkdir(parents=True, exist_ok=True)
    for name in files_below(origin):
        put(origin / name, target / name, (origin / name).stat().st_mtime_ns)
