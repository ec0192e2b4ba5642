"""`penstock plan NEW --against FILE|SAVEPOINT`: what a change costs, told without a server and without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from penstock.cli.changes import print_changes
from penstock.cli.listing import Shape, print_value
from penstock.cli.output import out
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.graph.changes import Facts, Plan
    from penstock.graph.nodes import Graph


def plan_against(new: Path, against: str, state_dir: Path | None, output: Shape) -> None:
    """Prints what it would take to go on with `new`, from a file and its state, or from a savepoint."""
    from penstock.frontends.load import load
    from penstock.graph.build import build
    from penstock.graph.changes import plan

    after = build(load(new))
    before, facts = _before(after, against, state_dir)
    found = plan(before, after, facts)
    told = as_json(found, before, after, new)
    if output is not Shape.table:
        print_value(told, output)
    else:
        _print(told)


def is_savepoint(new: Path, word: str, state_dir: Path | None) -> bool:
    """Whether a word is the name of a savepoint in the state folder of a pipeline file."""
    from penstock.frontends.load import load
    from penstock.reports.savepoints import SAVEPOINTS, is_name
    from penstock.runner.loop import RunOptions, state_path

    if not is_name(word):
        return False
    return (state_path(load(new), RunOptions(state_dir=state_dir)) / SAVEPOINTS / word).is_dir()


def _before(after: Graph, against: str, state_dir: Path | None) -> tuple[Graph, Facts]:
    """The version of before, and what is known of its state."""
    from penstock.engine.savepoints.shelf import is_remote
    from penstock.engine.statedir import read_identity
    from penstock.frontends.earlier import declared, facts_of
    from penstock.frontends.load import load
    from penstock.graph.build import build
    from penstock.reports.state_folder import state_partitions
    from penstock.runner.distant import look
    from penstock.runner.loop import RunOptions, state_path

    is_file = Path(against).is_file() or Path(against).suffix in (".yaml", ".yml", ".sql", ".py")
    if is_remote(against) or not is_file:
        saved, _ = look(against, state_path(after.file, RunOptions(state_dir=state_dir)))
        graph = declared(saved.document, after.file)
        if graph is None:
            reason = "the pipeline in it cannot be read any more"
            raise PenstockError.of("SAVEPOINT_DAMAGED", path=against, file="savepoint.json", reason=reason)
        return graph, facts_of(saved.version, saved.partitions)
    file = load(Path(against))
    state = state_path(file, RunOptions(state_dir=state_dir))
    identity = read_identity(state)
    partitions = state_partitions(state / "checkpoint")
    if identity is None or identity.version is None:
        return build(file), facts_of(None, partitions)
    # What ran last counts, whatever the file says by now.
    ran = declared(identity.version.document, file)
    return ran or build(file), facts_of(identity.version, partitions)


def as_json(found: Plan, before: Graph, after: Graph, file: Path) -> dict[str, Any]:
    from penstock.graph.flow_lines import flow_lines

    changes = [
        {
            "path": change.path, "before": change.before, "after": change.after, "cost": str(change.cost),
            "reason": change.reason, "node": change.node,
        }
        for change in found.changes
    ]  # fmt: skip
    return {
        "cost": str(found.cost),
        "changes": changes,
        "flow": flow_lines(before, after, found.renamed),
        "renamed": found.renamed,
        "loses": list(found.lost),
        "stages": [str(stage) for stage in found.stages],
        "command": command(found, file),
        "bootstrap": {step: {"command": told, "reason": why} for step, told, why in bootstraps(found, file, after)},
    }


def command(found: Plan, file: Path) -> str | None:
    """What carries it out; None if the next run does."""
    from penstock.graph.changes import Stage

    if Stage.GRAFT in found.stages or Stage.RESCALE in found.stages:
        return f"penstock upgrade {file}{''.join(f' --lose {name}' for name in found.lost)}"
    return None


def bootstraps(found: Plan, file: Path, after: Graph) -> list[tuple[str, str | None, str | None]]:
    """For each step whose state begins anew, what lets it see all that was read before, or why nothing does."""
    from penstock.graph.again import why_not_again

    reasons = {step: why_not_again(after, step) for step in found.begun}
    able = [step for step, reason in reasons.items() if reason is None]
    lost = "".join(f" --lose {name}" for name in found.lost if name not in {found.kept.get(step) for step in able})
    return [
        (step, None if reason is not None else f"penstock upgrade {file}{lost} --bootstrap {step}", reason)
        for step, reason in reasons.items()
    ]


def _print(found: Mapping[str, Any]) -> None:
    if not found["changes"]:
        out.print(Text("nothing has changed", "dim"))
        return
    print_changes(found)
    if found["command"] is not None:
        out.print(Text(found["command"], "bold"))
    for step, told in found["bootstrap"].items():
        if told["command"] is None:
            out.print(Text(f"'{step}' cannot be given what was read before: {told['reason']}", "dim"))
        else:
            out.print(Text.assemble(("or, with all that was read before: ", "dim"), (told["command"], "bold")))
