"""Lets a new version read what the pipeline has read: the same rows up to the same batch, at the same watermark.

The pipeline's log of offsets says how far each of its batches read, and at which watermark. A batch of the new version
is planned by writing that into the new version's own log; Spark runs a batch that is planned there and not committed
just as it stands. What sources have noted and spooled for the pipeline is linked: an offset means the same rows.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from penstock.durable import write_durably
from penstock.engine.checkpoint_paths import with_place, without_place
from penstock.engine.evolution.spools import carry_paths, carry_spool, new_places
from penstock.engine.evolution.streams import carry_notes, positions
from penstock.engine.evolution.working_copy import replace_text
from penstock.engine.savepoints.trees import files_below, link_all
from penstock.errors import PenstockError

_WORK = ".bring"
_TRIES = 10
APART = 3
"""Up to how many batches it is behind, the new version takes them one by one; beyond that, several at once."""


def next_stop(stands: int, committed: int, *, apart: bool) -> int | None:
    """The batch of the pipeline up to which to read next; None if nothing is to be read.

    `apart` says that each batch must be read by itself. What is late depends on where batches are cut, so they are cut
    as the pipeline did while the new version keeps up.
    """
    if committed <= stands:
        return None
    return stands + 1 if apart or committed - stands <= APART else committed - APART


def bring(old: Path, new: Path, origins: Mapping[str, Collection[str]], renamed: Mapping[str, str]) -> None:
    """Lets the new state folder have what sources have noted and spooled in the old one, which may be in use."""
    work = new / _WORK
    for attempt in range(_TRIES):
        shutil.rmtree(work, ignore_errors=True)
        try:
            _gather(old, new, work, origins, renamed)
            break
        except FileNotFoundError:
            # A source has put its notes together, or done with what it spooled.
            if attempt == _TRIES - 1:
                raise PenstockError.of("CUTOVER_FAILED", reason=f"the files in {old} keep changing") from None
    for part, place in ((work / "sources", new / "checkpoint" / "sources"), (work / "spool", new / "spool")):
        shutil.rmtree(place, ignore_errors=True)
        if part.is_dir():
            part.rename(place)
        elif place.name == "spool":
            place.mkdir()
    shutil.rmtree(work, ignore_errors=True)


def _gather(
    old: Path, new: Path, work: Path, origins: Mapping[str, Collection[str]], renamed: Mapping[str, str]
) -> None:
    sources = old / "checkpoint" / "sources"
    (work / "sources").mkdir(parents=True)
    link_all(sources, lambda: files_below(sources), work / "sources")
    carry_notes(work / "sources", origins, renamed)
    for name in files_below(work / "sources"):
        if not name.endswith(".crc"):
            replace_text(work / "sources" / name, lambda text: with_place(without_place(text, old), new))
    places = new_places(old / "spool", origins, renamed)
    carry_spool(old / "spool", work / "spool", places)
    carry_paths(work, new / "spool", places)


def plan(new: Path, batch: int, log: str, origins: Mapping[str, Collection[str]], renamed: Mapping[str, str]) -> None:
    """Plans a batch of the new version; `log` is what the pipeline's log of offsets says of the batch it ends with."""
    offsets = new / "checkpoint" / "offsets"
    write_durably(offsets / str(batch), planned((offsets / str(batch - 1)).read_text("utf-8"), log, origins, renamed))
    with suppress(FileNotFoundError):
        (offsets / f".{batch}.crc").unlink()


def planned(before: str, log: str, origins: Mapping[str, Collection[str]], renamed: Mapping[str, str]) -> str:
    """The log of a batch: positions, watermark and clock of the pipeline, settings of the new version's last batch."""
    carried = positions(log, origins, renamed).splitlines()
    head, settings = before.splitlines()[:2]
    own, theirs = json.loads(settings), json.loads(carried[1])
    for name in ("batchWatermarkMs", "batchTimestampMs"):
        own[name] = theirs[name]
    return "\n".join([head, json.dumps(own, separators=(",", ":")), *carried[2:]])


def stands_at(new_log: str, log: str, origins: Mapping[str, Collection[str]], renamed: Mapping[str, str]) -> bool:
    """Whether a batch of the new version read up to where a batch of the pipeline did, and at its watermark."""
    return planned(new_log, log, origins, renamed) == new_log
