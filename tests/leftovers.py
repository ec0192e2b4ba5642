"""Fails a run of the tests that leaves processes behind.

Whatever tests start works in a folder of theirs, or is told of one: so it is found by that, whatever it has inherited
and whoever its parent is by now.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock.testing.processes import at_work_below

_PATIENCE = 10.0
"""Seconds that processes have to end which have been told to."""
_LEFT = pytest.StashKey[list[str]]()


def left_behind(folder: Path, patience: float) -> list[psutil.Process]:
    """The processes that still work below a folder after a while."""
    deadline = time.monotonic() + patience
    while (found := at_work_below(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def _end(found: list[psutil.Process]) -> list[str]:
    """Kills them; which they were."""
    named = []
    for process in found:
        try:
            named.append(f"process {process.pid}: {' '.join(process.cmdline())[:300]}")
            process.kill()
        except psutil.NoSuchProcess:
            continue
    return named


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """All fixtures have ended by now. A worker of xdist tells its controller, which says it of all of them."""
    config: Any = session.config
    factory = getattr(config, "_tmp_path_factory", None)
    found = config.stash.setdefault(_LEFT, [])
    if factory is not None and getattr(factory, "_basetemp", None) is not None:
        found += _end(left_behind(factory.getbasetemp(), _PATIENCE))
    if hasattr(config, "workeroutput"):
        config.workeroutput["left"] = found
    if found and session.exitstatus == 0:
        session.exitstatus = 1


def pytest_testnodedown(node: Any) -> None:
    node.config.stash.setdefault(_LEFT, []).extend(getattr(node, "workeroutput", {}).get("left", ()))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for line in config.stash.get(_LEFT, []):
        terminalreporter.write_line(f"left behind by the tests: {line}", red=True)
