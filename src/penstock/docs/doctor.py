"""The page of the doctor's rules."""

from __future__ import annotations

from penstock.docs.errors import template
from penstock.docs.markdown import NOTE, table
from penstock.doctor.registry import rules
from penstock.doctor.rule import Rule
from penstock.doctor.running import RULES, RunningRule


def doctor_page() -> str:
    """Every rule, in alphabetical order."""
    head = ["Rule", "Severity", "For", "What is found", "Why it matters", "What to do", "`--fix`"]
    running = ["Rule", "Severity", "What is found", "Why it matters", "What to do"]
    return f"""\
{NOTE}
# Rules of the doctor

What `penstock doctor` looks for; [the guide](../guides/production-readiness.md) shows how to use it. Ids are stable:
scripts can switch on them (`penstock doctor -o json`, key `code`). Words in ‹angle quotes› are filled in. Rules for
*production* say nothing about trials: pipelines whose sources are only made up (`generator`, `memory`) or files beside
the pipeline file.

{table(head, map(_row, rules().values()))}

## Pipelines that run

Rules for `penstock doctor NAME` and `--all`, on what a server knows of a pipeline. `--fix` does nothing about them.

{table(running, map(_running_row, sorted(RULES, key=lambda rule: rule.id)))}"""


def _running_row(rule: RunningRule) -> list[str]:
    return [f"`{rule.id}`", str(rule.severity), template(rule.message), rule.why, rule.fix]


def _row(rule: Rule) -> list[str]:
    applies = "production" if rule.production_only else "all"
    fixes = "yes" if rule.fixable else ""
    # What is only known in the case, such as an advice of its own, is described by the guide.
    fix = "It is said with the finding." if rule.fix == "{advice}" else template(rule.fix)
    return [f"`{rule.id}`", str(rule.severity), applies, template(rule.message), rule.why, fix, fixes]
