"""Sinks go back with the state: each once, before the first batch after a restore."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from penstock.components.base import SinkWriter
from penstock.components.shared.crashpoints import inside
from penstock.engine.savepoints.journal import Restoration, finish, last, note_rewound, note_rewound_later, pending
from penstock.errors import PenstockError


def go_back(state: Path, writers: Mapping[str, SinkWriter]) -> None:
    """Lets open sinks return to what they held, if the state was put back since they were last open."""
    found = pending(state)
    if found is None:
        return
    for name, writer in writers.items():
        if name not in found.rewound:
            _rewind(found, name, writer)
            note_rewound(state, name)
    finish(state)


def go_back_later(state: Path, name: str, writer: SinkWriter) -> None:
    """The same for a sink that is opened only when there is something for it."""
    found = last(state)
    if found is not None and name not in found.rewound:
        _rewind(found, name, writer)
        note_rewound_later(state, name)


def _rewind(found: Restoration, name: str, writer: SinkWriter) -> None:
    """One that the pipeline did not have then goes back as far as what it holds now can tell."""
    saved = next((sink.position for sink in found.sinks if sink.name == name), None)
    with inside(name):
        try:
            writer.rewind(found.batch, writer.position() if saved is None else saved)
        except PenstockError as error:
            if error.code != "SINK_CANNOT_REWIND" or not found.keep_rows:
                raise
            writer.forget(found.batch)
