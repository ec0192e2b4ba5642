"""What a run on a target takes, by the target's Spark options, and whether a project may take that much more. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.spec.units import Size

if TYPE_CHECKING:
    from penstock.control.config import Quotas, Target
    from penstock.control.projects import Project

_LOCAL = re.compile(r"local(?:\[(\*|\d+)(?:,\d+)?\])?")
_SIZE = re.compile(r"(\d+)([kmgt]?)b?", re.IGNORECASE)
_UNITS = {"": 1024**2, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
"""Spark takes a number of an executor's memory without a unit for mebibytes."""
_EXECUTOR_MEMORY = "1g"


@dataclass(frozen=True)
class Taken:
    """Cores and bytes; None where the options of the target do not limit them."""

    cores: int | None
    memory: int | None


def taken_by(target: Target) -> Taken:
    """What one run on it may take, driver and executors together."""
    local = _LOCAL.fullmatch(target.master)
    driver = _bytes(target.driver_memory or target.conf.get("spark.driver.memory"))
    if local is not None:
        return Taken((os.cpu_count() or 1) if local[1] == "*" else int(local[1] or 1), driver)
    conf = target.conf
    executors = _executors(conf)
    cores = _number(conf, "spark.cores.max")
    if cores is None and executors is not None:
        cores = executors * (_number(conf, "spark.executor.cores") or 1)
    if executors is None and cores is not None:
        executors = cores // (_number(conf, "spark.executor.cores") or 1)
    each = (_bytes(conf.get("spark.executor.memory", _EXECUTOR_MEMORY)) or 0) + (
        _bytes(conf.get("spark.executor.memoryOverhead")) or 0
    )
    memory = None if driver is None or executors is None else driver + executors * each
    return Taken(None if cores is None else cores + (_number(conf, "spark.driver.cores") or 1), memory)


def _executors(conf: Mapping[str, str]) -> int | None:
    if conf.get("spark.dynamicAllocation.enabled", "").lower() == "true":
        return _number(conf, "spark.dynamicAllocation.maxExecutors")
    return _number(conf, "spark.executor.instances")


def refuse_more(project: Project, taken: Sequence[Taken], more: Taken) -> None:
    """Raises QUOTA_EXCEEDED if a run that takes so much would be more than the project may take."""
    quotas = project.quotas
    if quotas.cores is not None:
        used, wanted = sum(each.cores or 0 for each in taken), more.cores or 0
        if used + wanted > quotas.cores:
            _raise(project, "cores", f"{quotas.cores} cores", f"{used} of them are in use and this takes {wanted}")
    if quotas.memory is not None:
        used, wanted = sum(each.memory or 0 for each in taken), more.memory or 0
        if used + wanted > quotas.memory.bytes:
            shown = f"{Size(used)} of it are in use and this takes {Size(wanted)}"
            _raise(project, "memory", f"{quotas.memory} of memory", shown)


def refuse_unlimited(project: str, quotas: Quotas, targets: Mapping[str, Target]) -> None:
    """Raises ValueError for a target of which it cannot be told how much of a quota a run on it takes."""
    for name, target in targets.items():
        found = taken_by(target)
        if quotas.cores is not None and found.cores is None:
            needed = "`spark.cores.max` or `spark.executor.instances` in its `conf`"
            raise ValueError(f"projects: '{project}' has a quota of cores, so target '{name}' needs {needed}")
        if quotas.memory is not None and found.memory is None:
            needed = "`driverMemory` and, on a cluster, `spark.cores.max` or `spark.executor.instances`"
            raise ValueError(f"projects: '{project}' has a quota of memory, so target '{name}' needs {needed}")


def _number(conf: Mapping[str, str], key: str) -> int | None:
    value = conf.get(key, "")
    return int(value) if value.isdecimal() else None


def _bytes(text: str | None) -> int | None:
    found = _SIZE.fullmatch(text.strip()) if text else None
    return int(found[1]) * _UNITS[found[2].lower()] if found else None


def _raise(project: Project, quota: str, limit: str, wanted: str) -> None:
    raise PenstockError.of("QUOTA_EXCEEDED", project=project, quota=quota, limit=limit, wanted=wanted)
