"""`penstock packages`: the jars that targets of a server load beside Spark's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from penstock.cli.output import counted, err, out


def register(app: typer.Typer) -> None:
    verbs = typer.Typer(help="Lock the packages of a server's targets.", no_args_is_help=True)
    # With a callback it stays a group, though it has one verb.
    verbs.callback()(packages)
    verbs.command("lock")(lock)
    app.add_typer(verbs, name="packages")


def packages() -> None:
    """Lock the packages of a server's targets."""


def lock(
    config: Annotated[Path, typer.Option("--config", metavar="FILE", help="The configuration of the server.")],
) -> None:
    """Resolve the packages of all targets, and note each of their jars with its sha256 in `packages.lock`.

    The file is written beside the configuration. The server starts, and runs load a jar, only if it is as noted. A jar
    that is in the lock already and has changed is refused.
    """
    from penstock.control.config import read_server_config
    from penstock.control.packages import (
        LockedTarget,
        as_toml,
        differences,
        lock_beside,
        read_lock,
        refuse_changed,
    )
    from penstock.durable import write_durably
    from penstock.engine.packages import resolve

    path = lock_beside(config)
    targets = {name: target for name, target in read_server_config(config).targets.items() if target.packages}
    before = read_lock(path)
    now: dict[str, LockedTarget] = {}
    for name, target in targets.items():
        err.print(Text(f"resolving {counted(len(target.packages), 'package')} of target '{name}' …", "dim"))
        jars = resolve(name, target.packages, target.conf)
        refuse_changed({**before, **now}, jars)
        now[name] = LockedTarget(target.packages, jars)
    write_durably(path, as_toml(now))
    changed = differences(before, now)
    for sign, jar, sha256 in changed:
        said = "trusted for the first time" if sign == "+" else "no longer used"
        out.print(Text.assemble((f"{sign} {jar}", "green" if sign == "+" else "red"), (f"  {sha256}  {said}", "dim")))
    held = counted(len({jar for target in now.values() for jar in target.jars}), "jar")
    new = sum(sign == "+" for sign, *_ in changed)
    out.print(Text(f"{path}: {held} of {counted(len(now), 'target')}, {new} new, {len(changed) - new} removed"))
