"""What sources and steps keep in the spool, by their names: carried over when they are called otherwise."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from penstock.components.base import stream_name
from penstock.engine.evolution.streams import link_tree
from penstock.engine.evolution.working_copy import replace_text
from penstock.engine.savepoints.trees import files_below, put

_BY_STREAM = "sql_poll"
"""The one folder whose parts are called as streams are."""


def new_places(spool: Path, origins: Mapping[str, Collection[str]], renamed: Mapping[str, str]) -> dict[str, list[str]]:
    """For each folder of the spool, of one source or step, what it is to be called, perhaps more than once."""
    found: dict[str, list[str]] = {}
    new_names = {stream_name(old): stream_name(new) for new, old in renamed.items()}
    for kind in (item for item in spool.iterdir() if item.is_dir()) if spool.is_dir() else ():
        if kind.name in new_names:
            found[kind.name] = [new_names[kind.name]]
            continue
        for place in (item for item in kind.iterdir() if item.is_dir()):
            if kind.name == _BY_STREAM:
                names = [name for name, old in origins.items() if place.name in old]
            else:
                names = [new_names.get(place.name, place.name)]
            found[f"{kind.name}/{place.name}"] = [f"{kind.name}/{name}" for name in names]
    return found


def carry_spool(spool: Path, new: Path, places: Mapping[str, list[str]]) -> None:
    """Links the spool, with its folders called as they are to be."""
    moved = {f"{place}/" for place in places}
    for name in files_below(spool):
        if not any(name.startswith(place) for place in moved):
            put(spool / name, new / name, (spool / name).stat().st_mtime_ns)
    for place, names in places.items():
        for name in names:
            link_tree(spool / place, new / name)


def carry_paths(checkpoint: Path, spool: Path, places: Mapping[str, list[str]]) -> None:
    """Lets sources that have noted files of the spool find them under the new names."""
    changes = {
        f"{spool}/{place}/": f"{spool}/{names[0]}/" for place, names in places.items() if names != [place] and names
    }
    sources = checkpoint / "sources"
    for name in files_below(sources) if changes else ():
        if not name.endswith(".crc"):
            replace_text(sources / name, lambda text: _replaced(text, changes))


def _replaced(text: str, changes: Mapping[str, str]) -> str:
    for old, new in changes.items():
        text = text.replace(old, new)
    return text
