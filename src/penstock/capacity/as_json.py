"""An estimate for programs: bytes and rows in a second, seconds, and shares from 0 to 1."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from penstock.capacity.estimate import Estimate
from penstock.capacity.load import Course
from penstock.capacity.memory import ExecutorMemory
from penstock.capacity.traffic import STAGES, stage


def as_json(found: Estimate) -> dict[str, Any]:
    scenario, traffic, overall = found.scenario, found.traffic, found.overall
    flows = [
        {
            "flow": str(flow.kind),
            "step": flow.step,
            "in": flow.into,
            "out": flow.out,
            "network": flow.network,
            "disk": flow.disk,
        }
        for flow in traffic.flows
    ]
    stages = {name: dict(zip(("in", "out"), stage(traffic, name), strict=True)) for name in STAGES}
    return {
        "rate": {"peak": found.profile.peak, "mean": found.profile.mean},
        "machines": {
            "count": found.machines,
            "given": scenario.machines.count is not None,
            "needed": found.need.machines,
            "neededFor": found.need.reason,
            "enough": found.enough,
        },
        "cores": found.cores,
        "perMachine": {
            "flows": flows,
            "totals": stages,
            "network": {"in": traffic.network_in, "out": traffic.network_out},
            "disk": {"read": traffic.disk_read, "write": traffic.disk_write},
            "stateBytes": traffic.state_bytes,
        },
        "overall": {**asdict(overall), "total": overall.total, "gigabitsPerSecond": overall.gigabits}
        | {"stateBytes": found.state_bytes},
        "limits": [{**asdict(use), "share": use.share, "headroom": use.headroom} for use in found.uses],
        "sustained": asdict(found.sustained),
        "executor": None if found.memory is None else _memory(found.memory),
        "day": None if found.day is None else _course(found.day),
        "outage": None
        if found.recovery is None
        else {
            "start": found.recovery.outage.start,
            "length": found.recovery.outage.length,
            **(_course(found.recovery.course) if found.recovery.course is not None else {"caughtUpAfter": None}),
        },
        "windowEnds": [asdict(end) for end in found.window_ends],
        "warnings": list(found.warnings),
        "assumptions": list(found.assumptions),
    }


def _course(course: Course) -> dict[str, Any]:
    return {
        "peakBacklog": course.peak_backlog,
        "peakLag": course.peak_lag,
        "peakAt": course.peak_at,
        "longestWait": course.longest_wait,
        "longestOverLimit": course.over_limit,
        "caughtUpAfter": course.caught_up,
    }


def _memory(memory: ExecutorMemory) -> dict[str, Any]:
    return {
        "container": memory.container,
        "heap": memory.heap,
        "overhead": memory.overhead,
        "offHeap": memory.off_heap,
        "pyspark": memory.pyspark,
        "reserved": memory.reserved,
        "unified": memory.unified,
        "storage": memory.storage,
        "execution": memory.execution,
        "user": memory.user,
        "rocksdb": memory.rocksdb,
        "python": memory.python,
        "native": memory.native,
        "overheadLeft": memory.overhead_left,
    }
