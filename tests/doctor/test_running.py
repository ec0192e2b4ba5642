"""Rules on pipelines that run: each finds what it is for, and a healthy one breaks none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.capacity.histories import TrueCosts, history

from penstock.doctor.findings import Finding, Severity
from penstock.doctor.running import RULES, Vitals, diagnose_running

HEALTHY = Vitals(
    "clicks", 2.0,
    [
        replace(batch, commit_seconds=0.05, sink_seconds={"store": batch.seconds / 4}, state_rows=500_000,
                state_bytes=50_000_000)
        for batch in history(TrueCosts(0.2, 40e-6), batches=2000, noise=0.0, outliers=0.0)
    ],
    rows_in=10_000_000, rows_dead=100, failed_runs=1, disk_free=10**9,
)  # fmt: skip
START = HEALTHY.batches[0].at


def each(change: Callable[[int], dict[str, object]]) -> Vitals:
    return replace(HEALTHY, batches=[replace(batch, **change(n)) for n, batch in enumerate(HEALTHY.batches)])  # type: ignore[arg-type]


BROKEN: dict[str, tuple[Vitals, str]] = {
    "lag-growing": (
        replace(HEALTHY, growing={"views": "3,200,000 messages"}),
        "ever more waits at source 'views': 3,200,000 messages",
    ),
    "rows-unbalanced": (
        replace(HEALTHY, unbalanced=(7, 9)), "the rows of 2 batches do not add up; the first is batch 7"
    ),
    "disk-filling": (
        each(lambda n: {"state_bytes": 50_000_000 + n * 20_000}),
        "the disk is full in 1.16 days: state grows by 864 MB a day, and 1 GB are free",
    ),
    "batches-late": (
        each(lambda n: {"seconds": 3.0, "sink_seconds": {}}),
        "100% of its batches take longer than the trigger of 2 s; half of them more than 3 s",
    ),
    "state-growing": (
        each(lambda n: {"state_rows": 500_000 + 10 * n}),
        "its state has 519,990 rows and grows by 432,000 a day, 83% of it",
    ),
    "checkpoint-slow": (
        each(lambda n: {"seconds": 1.0, "commit_seconds": 0.4, "sink_seconds": {}}),
        "40% of the time of its batches goes into logs of offsets and commits, 400 ms in each",
    ),
    "dead-letters-many": (
        replace(HEALTHY, rows_dead=200_000), "2.0% of its rows cannot be read: 200,000 of 10,000,000"
    ),
    "runs-failing": (replace(HEALTHY, failed_runs=4), "4 runs have failed in the last day"),
    "sink-slow": (
        each(lambda n: {"seconds": 1.0, "sink_seconds": {"store": 0.8, "other": 0.1}}),
        "80% of the time of its batches goes into sink 'store'",
    ),
}  # fmt: skip


def codes(found: list[Finding]) -> list[str]:
    return [finding.code for finding in found]


def test_a_healthy_pipeline_breaks_no_rule() -> None:
    assert diagnose_running(HEALTHY) == []


@pytest.mark.parametrize("rule", BROKEN)
def test_each_rule_finds_what_it_is_for_and_nothing_else(rule: str) -> None:
    vitals, message = BROKEN[rule]
    (found,) = diagnose_running(vitals)

    assert (found.code, found.message) == (rule, message)
    assert found.location.file == "clicks"
    assert found.why
    assert found.fix


def test_every_rule_is_tried() -> None:
    assert {rule.id for rule in RULES} == BROKEN.keys()


def test_the_worst_come_first() -> None:
    order = [list(Severity).index(rule.severity) for rule in RULES]

    assert order == sorted(order)


def test_a_pipeline_that_has_just_begun_is_not_judged_by_its_batches() -> None:
    few = [replace(batch, seconds=9.0, commit_seconds=8.0, sink_seconds={"a": 9.0}) for batch in HEALTHY.batches[:9]]

    assert diagnose_running(replace(HEALTHY, batches=few)) == []
    assert diagnose_running(Vitals("clicks", 2.0, [])) == []


def test_little_state_may_grow() -> None:
    assert diagnose_running(each(lambda n: {"state_rows": n})) == []
