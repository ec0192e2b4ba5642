"""One Spark session for all tests of a process, started when first needed."""

from __future__ import annotations

import atexit
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.engine.jars import obtainable
from penstock.engine.session import Session, SessionOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_session: Session | None = None
_jars: tuple[str, ...] = ()
_welcome: tuple[str, ...] = ()


def shared_session(jars: Iterable[str] = ()) -> SparkSession:
    """A small, quickly started session: two cores, two partitions.

    `jars` names sets of jars it must have. A session without them is replaced, and frames of the old one end with it:
    where tests share frames, name all sets with `welcome_jars` first.
    """
    global _session, _jars
    needed = tuple(jars)
    if _session is None or not _session.usable or not {*needed} <= {*_jars}:
        wanted = tuple(dict.fromkeys((*_jars, *obtainable(_welcome), *needed)))
        if _session is not None and not _session.usable:
            warnings.warn(f"a new Spark is started, as {_obituary(_session)}", stacklevel=2)
        _end()
        conf = {"spark.sql.shuffle.partitions": "2", "spark.sql.streaming.noDataProgressEventInterval": "100"}
        _session = Session(SessionOptions(master="local[2]", conf=conf, driver_memory="3g", jars=wanted, quick=True))
        _jars = wanted
        atexit.register(_session.stop)
    return _session.spark


def welcome_jars(*names: str) -> None:
    """Sets of jars that the session gets when it starts, whoever starts it, as far as they can be had."""
    global _welcome
    _welcome = names


def _obituary(session: Session) -> str:
    """How a session came to its end, and the last that it said."""
    code = session.jvm.process.poll()
    how = "its context was stopped" if code is None else f"its Java ended with {code}"
    said = [*_tail(session.jvm.output), *_tail(session.log)]
    return "\n  ".join([f"{how}; its last words:", *(said or ["none"])])


def _tail(path: Path, lines: int = 20) -> list[str]:
    try:
        return path.read_text("utf-8", "replace").splitlines()[-lines:]
    except OSError:
        return []


def _end() -> None:
    global _session
    if _session is not None:
        atexit.unregister(_session.stop)
        (_session.stop if _session.jvm.alive else _session.kill)()
    _session = None


def shared_log() -> Path:
    """The log of the shared session."""
    shared_session()
    assert _session is not None
    return _session.log
