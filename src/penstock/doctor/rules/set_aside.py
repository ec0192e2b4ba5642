"""Rules on rows that are set aside: dead letters and late rows are kept until somebody has looked at them."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.components import base
from penstock.components.sinks.console import Console
from penstock.components.sinks.memory import Memory
from penstock.doctor.checkup import Checkup
from penstock.doctor.findings import Severity
from penstock.doctor.rule import Found, rule


@rule(
    "dead-letters-in-state-folder",
    Severity.WARNING,
    message="dead letters stay in the state folder, as `deadLetters` is not set",
    why="There they share a disk with the checkpoint, which a bad day fills, and are removed together with the state.",
    fix='Give them a place of their own: `deadLetters: {{files: {{path: "s3a://bucket/dead", format: json}}}}`.',
    production_only=True,
)
def dead_letters_in_state_folder(checkup: Checkup) -> Iterator[Found]:
    if checkup.pipeline.dead_letters is None:
        yield Found(("spec", "deadLetters"), {"deadLetters": None}, key=True)


@rule(
    "dead-letters-not-kept",
    Severity.ERROR,
    message="dead letters go to `{sink}`, which keeps nothing",
    why="A dead letter is the only copy of a row that could not be read. It cannot be replayed when it is gone.",
    fix="Store them in files or in a table.",
)
def dead_letters_not_kept(checkup: Checkup) -> Iterator[Found]:
    sink = checkup.dead_letter_sink()
    if sink is not None and _keeps_nothing(sink.component):
        yield Found(sink.path, {"sink": sink.component.name}, key=True)


@rule(
    "late-rows-in-state-folder",
    Severity.INFO,
    message="late rows stay in the state folder, as `late` names no sink",
    why="There they share a disk with the checkpoint and are removed together with the state.",
    fix="Give them a place of their own: `late: {{policy: side, sink: late_rows}}`, with an entry of `sinks`.",
)
def late_rows_in_state_folder(checkup: Checkup) -> Iterator[Found]:
    for path, policy in checkup.late_policies():
        if policy.policy == "side" and policy.sink is None:
            yield Found(path, {"late": "side", "sink": None}, key=True)


@rule(
    "late-rows-not-kept",
    Severity.ERROR,
    message="late rows go to `{sink}`, which keeps nothing",
    why="With `side` late rows are in no result. When they are gone, `penstock replay late` has nothing to replay.",
    fix="Store them in files or in a table, or write `late: drop`.",
)
def late_rows_not_kept(checkup: Checkup) -> Iterator[Found]:
    for sink in checkup.late_sinks():
        if _keeps_nothing(sink.component):
            yield Found(sink.path, {"sink": sink.component.name}, key=True)


def _keeps_nothing(sink: base.Sink) -> bool:
    return isinstance(sink, Console | Memory)
