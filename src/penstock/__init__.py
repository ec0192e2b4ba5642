"""Penstock: declare a streaming pipeline in YAML, SQL or Python, and run it on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from penstock.components.sinks.files import read_files
    from penstock.frontends.catalog import formats, sinks, sources, steps
    from penstock.frontends.python import (
        Bootstrap,
        EventTime,
        Late,
        Ledger,
        Node,
        Pipeline,
        Savepoints,
        Scale,
        Throttle,
    )

__all__ = [
    "Bootstrap",
    "EventTime",
    "Late",
    "Ledger",
    "Node",
    "Pipeline",
    "Savepoints",
    "Scale",
    "Throttle",
    "__version__",
    "formats",
    "read_files",
    "sinks",
    "sources",
    "steps",
]

_PLACES = {
    "Bootstrap": "penstock.frontends.python",
    "EventTime": "penstock.frontends.python",
    "Late": "penstock.frontends.python",
    "Ledger": "penstock.frontends.python",
    "Node": "penstock.frontends.python",
    "Pipeline": "penstock.frontends.python",
    "Savepoints": "penstock.frontends.python",
    "Scale": "penstock.frontends.python",
    "Throttle": "penstock.frontends.python",
    "formats": "penstock.frontends.catalog",
    "read_files": "penstock.components.sinks.files",
    "sinks": "penstock.frontends.catalog",
    "sources": "penstock.frontends.catalog",
    "steps": "penstock.frontends.catalog",
}


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Loads a name when it is first used: Spark's workers import this package too, and need none of it."""
        if name not in _PLACES:
            raise AttributeError(f"module 'penstock' has no attribute '{name}'")
        from importlib import import_module

        return getattr(import_module(_PLACES[name]), name)
