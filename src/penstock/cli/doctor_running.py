"""`penstock doctor NAME`: what the server knows of a pipeline that runs, and the rules for its file."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.cli.client import Client
    from penstock.doctor.diagnose import Diagnosis
    from penstock.doctor.running import Vitals

_MOST_BATCHES = 5000
_DAY = dt.timedelta(days=1)
_FAILED = ("failed", "died", "lost")


def names_of_all(client: Client) -> list[str]:
    """The pipelines that are meant to run."""
    return [each["name"] for each in client.pages("/pipelines") if each["desired"] == "running"]


def diagnose_on_server(client: Client, name: str, now: dt.datetime) -> Diagnosis:
    """Its file as the server has it, and how it runs."""
    from penstock.cli.client import part
    from penstock.doctor.diagnose import Diagnosis, diagnose_text
    from penstock.doctor.running import diagnose_running

    found = client.get(f"/pipelines/{part(name)}/description")
    version = client.get(f"/pipelines/{part(name)}/versions/{found['pipeline']['version']}")
    batches = list(islice(client.pages(f"/pipelines/{part(name)}/batches", limit=1000), _MOST_BATCHES))
    running = diagnose_running(vitals_of(found, batches, now))
    path = Path(name)
    if version["kind"] != "yaml":
        return Diagnosis(path, True, tuple(running))
    of_file = diagnose_text(version["text"], path)
    # There is no file here that a fix could be written into.
    findings = (*running, *(replace(finding, edit=None) for finding in of_file.findings))
    return Diagnosis(path, of_file.valid, findings, None, of_file.ignored)


def vitals_of(found: Mapping[str, Any], batches: Sequence[Mapping[str, Any]], now: dt.datetime) -> Vitals:
    """From the answers of the API; `batches` come newest first."""
    from penstock.capacity.measured import of_answer
    from penstock.doctor.running import Vitals
    from penstock.frontends.batch_history import facts_of

    status = found["status"] or {}
    pipeline = found["pipeline"]
    measured = [batch for each in batches if (batch := of_answer(each)) is not None][::-1]
    failed = [
        run for run in found["runs"]
        if run["outcome"] in _FAILED and run["endedAt"] and now - dt.datetime.fromisoformat(run["endedAt"]) < _DAY
    ]  # fmt: skip
    return Vitals(
        name=pipeline["name"],
        trigger=facts_of(found["document"]).trigger,
        batches=measured,
        growing=dict(_growing(status)),
        rows_in=sum(each["rowsIn"] for each in batches),
        rows_dead=sum(each["dead"] for each in batches),
        unbalanced=tuple(sorted(each["batch"] for each in batches if not each["balanced"])),
        failed_runs=len(failed),
        disk_free=status.get("disk_free"),
    )


def _growing(status: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Sources of which the run says that ever more waits."""
    for source, seconds in (status.get("caught_up_in") or {}).items():
        backlog = (status.get("backlog") or {}).get(source)
        if seconds is None and backlog:
            yield source, f"{backlog['amount']:,} {backlog['unit']}"
