"""What a state knows of the pipeline that last ran on it, so that another version of it can be told from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Version:
    """A pipeline as its state knows it."""

    document: Mapping[str, Any]
    """As it was declared, in the shape of a pipeline file."""
    stateful: tuple[str, ...] = ()
    """The steps that keep state."""
    layouts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What the kept chunks of steps look like."""
    kernels: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """How steps with a kernel read their chunks, so that these can be shown without the pipeline."""
    sinks: Mapping[str, str] = field(default_factory=dict)
    """Sinks that were renamed, with the names by which what they have stored knows them."""
