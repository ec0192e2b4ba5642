"""The page of what pipelines have survived."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path

from penstock.components.base import Sink
from penstock.components.registry import components
from penstock.components.shared.crashpoints import MEANINGS
from penstock.docs.components import is_built_in
from penstock.docs.markdown import NOTE, table
from penstock.testing.crash import MOMENTS
from penstock.testing.kills import WRITING, Tally

KILLS = Path("docs/exactly-once-results.json")


def results_page(tally: Tally) -> str:
    """Every sink with its guarantee, and the kills that pipelines with it have survived."""
    sinks = [cls for cls in components("sink").values() if issubclass(cls, Sink) and is_built_in(cls)]
    moments = MEANINGS | MOMENTS
    unknown = {*tally.kills} - {cls.name for cls in sinks} | {*chain(*tally.kills.values())} - {*moments, WRITING}
    if unknown:
        raise ValueError(f"{KILLS} tells of what there is not: {', '.join(sorted(unknown))}")
    killed = [cls for cls in sinks if cls.name in tally.kills]
    found = {cls.name: tally.kills.get(cls.name, {}) for cls in sinks}
    summary = [[f"`{cls.name}`", cls.guarantee, *_survived(found[cls.name])] for cls in sinks]
    places = [
        [f"`{moment}`", words, *(f"{found[cls.name].get(moment, 0):,}" for cls in killed)]
        for moment, words in moments.items()
        if any(moment in found[cls.name] for cls in killed)
    ]
    head = [
        "Sink",
        "When a run dies",
        "Crash points",
        "Kills survived",
        "of them random",
        "while it stored a batch",
    ]
    return f"""\
{NOTE}
# Exactly once: the results

Pipelines are killed with SIGKILL, driver and JVM, and started again, until they come to their end. Then every row that
went in is looked for: it must be in the sink exactly once, or among the dead letters, and the ledger must add up. Right
after each kill no row may be in a sink twice. A kill is counted here only if all of that was found. What is promised,
and how to do the same with a sink of your own, is said in [the guide](guides/exactly-once.md).

{table(head, summary)}
## Where they were killed

{table(["Moment", "Where that is", *(f"`{cls.name}`" for cls in killed)], places)}
A kill at a point of one sink counts for that kind of sink; any other counts for each kind that the pipeline had. Seeds
of the random ones: {_ranges(tally.seeds) or "none"}. `files` was a folder and an object store, `kafka` one broker, and
`mysql` MariaDB; all servers ran on the machine of the pipeline and were not killed themselves. Of `console` and
`memory` nothing is left to compare.

`make kills` does it again and writes this page anew from `{KILLS.name}`.
"""


def _survived(kills: Mapping[str, int]) -> list[str]:
    if not kills:
        return ["–", "–", "–", "–"]
    total = sum(count for moment, count in kills.items() if moment != WRITING)
    return [str(len({*kills} - {WRITING})), *(f"{n:,}" for n in (total, kills.get("random", 0), kills.get(WRITING, 0)))]


def _ranges(numbers: Iterable[int]) -> str:
    """Numbers as people write them: 1, 100 to 119."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
