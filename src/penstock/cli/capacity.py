"""`penstock capacity FILE`: how many machines a pipeline takes, by arithmetic alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from penstock.cli.listing import Shape, print_value
from penstock.cli.output import err, out

_OF_A_STEP = "VALUE, or STEP=VALUE if there are several steps."


def register(app: typer.Typer) -> None:
    app.command("capacity")(capacity)


def capacity(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="The scenario, a YAML file, whose place options can take; or a pipeline that runs: its name on the "
            "server, or its state folder."
        ),
    ] = None,
    pipeline: Annotated[
        Path | None,
        typer.Option("--pipeline", help="Take windows, steps and checkpoints from a pipeline instead of a scenario."),
    ] = None,
    rate: Annotated[str | None, typer.Option("--rate", help="Rows that come in, such as 1,000,000/s.")] = None,
    profile: Annotated[
        str | None, typer.Option("--profile", help="The rates of a day: a CSV file with `time,rate`.")
    ] = None,
    record_size: Annotated[
        str | None, typer.Option("--record-size", help="Bytes of a row as the source gives it, such as 2 KB.")
    ] = None,
    keys: Annotated[list[str] | None, typer.Option("--keys", help=f"Different keys. {_OF_A_STEP}")] = None,
    state_size: Annotated[
        list[str] | None,
        typer.Option("--state-size", help=f"State for each key and window, such as 40B. {_OF_A_STEP}"),
    ] = None,
    window: Annotated[list[str] | None, typer.Option("--window", help=f"How long a window is. {_OF_A_STEP}")] = None,
    slide: Annotated[
        list[str] | None, typer.Option("--slide", help=f"How far apart windows start. {_OF_A_STEP}")
    ] = None,
    emit_size: Annotated[
        list[str] | None, typer.Option("--emit-size", help=f"Bytes of a row that a step gives out. {_OF_A_STEP}")
    ] = None,
    rows: Annotated[
        list[str] | None, typer.Option("--rows", help=f"The share of rows that a step gets, such as 90%. {_OF_A_STEP}")
    ] = None,
    stored_size: Annotated[
        str | None, typer.Option("--stored-size", help="Bytes of a row that is stored without state.")
    ] = None,
    stored_rows: Annotated[
        str | None, typer.Option("--stored-rows", help="The share of the source's rows that each such sink stores.")
    ] = None,
    stateless: Annotated[
        list[str] | None,
        typer.Option("--stateless", help="With --pipeline: a step of SQL or Python that keeps no state."),
    ] = None,
    checkpoint_interval: Annotated[
        str | None, typer.Option("--checkpoint-interval", help="How often state is made durable.")
    ] = None,
    checkpoint_mode: Annotated[
        str | None, typer.Option("--checkpoint-mode", help="`full`, or `changes` since the last one.")
    ] = None,
    machines: Annotated[
        int | None, typer.Option("--machines", help="How many machines. Default: as many as it takes.")
    ] = None,
    network: Annotated[
        str | None, typer.Option("--network", help="Speed of a machine's card in bits: 10 Gbit/s.")
    ] = None,
    disks: Annotated[str | None, typer.Option("--disks", help="Where the disks are: `local` or `network`.")] = None,
    cores: Annotated[int | None, typer.Option("--cores", help="Cores of a machine.")] = None,
    rows_per_core: Annotated[
        str | None, typer.Option("--rows-per-core", help="Rows that a core can process, such as 50,000/s.")
    ] = None,
    emitted_rows_per_core: Annotated[
        str | None,
        typer.Option("--emitted-rows-per-core", help="Rows of closed windows that a core can give out."),
    ] = None,
    executor_memory: Annotated[
        str | None, typer.Option("--executor-memory", help="Heap of an executor, such as 8 GiB.")
    ] = None,
    container_memory: Annotated[
        str | None, typer.Option("--container-memory", help="Instead of it: memory of the whole container.")
    ] = None,
    margin: Annotated[str | None, typer.Option("--margin", help="The share of each limit to leave free.")] = None,
    max_lag: Annotated[str | None, typer.Option("--max-lag", help="How long a row may wait at most.")] = None,
    outage: Annotated[
        str | None, typer.Option("--outage", help="Show how an outage of this length is caught up.")
    ] = None,
    catch_up: Annotated[str | None, typer.Option("--catch-up", help="How long that may take.")] = None,
    factor: Annotated[
        float | None, typer.Option("--factor", help="For a pipeline that runs: also at so many times its load.")
    ] = None,
    svg: Annotated[Path | None, typer.Option("--svg", help="Write the picture of a machine to this file.")] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Exit with 1 if the machines given are not enough, or memory is not; for a "
            "pipeline that runs, if it cannot take so many times its load.",
        ),
    ] = False,
    output: Annotated[Shape, typer.Option("--output", "-o", help="How to print.")] = Shape.table,
) -> None:
    """Compute what a load takes: network, disks, state, checkpoints, memory, and how many machines.

    The load is described by a scenario, by options, or by a pipeline and options. Options take the place of what the
    scenario says. Nothing is run.

    For a pipeline that runs, costs are fitted to its batches: what each batch, row and byte takes, what the first limit
    is, and what it can take at another load, after an outage and with other cores.
    """
    from penstock.cli.client import name_of_a_server
    from penstock.errors import PenstockError

    given = {
        "--rate": rate,
        "--profile": profile,
        "--record-size": record_size,
        "--keys": keys,
        "--state-size": state_size,
        "--window": window,
        "--slide": slide,
        "--emit-size": emit_size,
        "--rows": rows,
        "--stored-size": stored_size,
        "--stored-rows": stored_rows,
        "--checkpoint-interval": checkpoint_interval,
        "--checkpoint-mode": checkpoint_mode,
        "--machines": machines,
        "--network": network,
        "--disks": disks,
        "--cores": cores,
        "--rows-per-core": rows_per_core,
        "--emitted-rows-per-core": emitted_rows_per_core,
        "--executor-memory": executor_memory,
        "--container-memory": container_memory,
        "--margin": margin,
        "--max-lag": max_lag,
        "--outage": outage,
        "--catch-up": catch_up,
    }
    if file is not None and pipeline is None:
        name = name_of_a_server(file)
        if name is not None or file.is_dir():
            if stateless or svg is not None:
                reason = "--stateless and --svg do not go with a pipeline that runs"
                raise PenstockError.of("USAGE", reason=reason, advice="Remove them.")
            _fitted(file, name, given, factor, check=check, output=output)
            return
    if factor is not None:
        raise PenstockError.of("USAGE", reason="--factor goes with a pipeline that runs", advice="Name one.")
    from penstock.capacity.as_json import as_json
    from penstock.capacity.estimate import estimate
    from penstock.capacity.picture import picture_of
    from penstock.capacity.svg import as_svg
    from penstock.frontends.pipeline_scenario import draft_of_pipeline
    from penstock.frontends.scenario import checked, draft_of

    options = _options(given)
    if pipeline is not None and file is not None:
        advice = "Give one of them; what the pipeline does not say is given by options."
        raise PenstockError.of("USAGE", reason="a scenario and --pipeline do not go together", advice=advice)
    if pipeline is None and stateless:
        raise PenstockError.of("USAGE", reason="--stateless goes with --pipeline", advice="Remove it.")
    if pipeline is not None:
        with_keys = {option.step for option in options if option.flag == "--keys" and option.step is not None}
        draft = draft_of_pipeline(pipeline, with_keys, stateless or ())
    else:
        draft = draft_of(file)
    read = checked(draft, options)
    found = estimate(read.scenario, read.profile)
    if svg is not None:
        _write(svg, as_svg(picture_of(found)))
    if output is Shape.table:
        from penstock.cli.capacity_view import lines_of

        for line in lines_of(found, _title(file or pipeline), read.taken):
            out.print(Text(line) if isinstance(line, str) else line)
    else:
        print_value({**as_json(found), "taken": list(read.taken)}, output)
    if svg is not None:
        err.print(Text(f"the picture is in {svg}", "dim"))
    if check and (not found.enough or not found.fits):
        raise typer.Exit(1)


def _fitted(
    place: Path, name: str | None, given: Mapping[str, Any], factor: float | None, *, check: bool, output: Shape
) -> None:
    from penstock.cli.capacity_fitted import as_dict, fitted_to, lines_of

    found, source = fitted_to(place, given, factor, name)
    if output is Shape.table:
        for line in lines_of(found, source):
            out.print(Text(line) if isinstance(line, str) else line)
    else:
        print_value(as_dict(found, source), output)
    if check and not found.keeps_goals:
        raise typer.Exit(1)


def _title(file: Path | None) -> str:
    return "load" if file is None else file.stem


def _options(given: dict[str, Any]) -> list[Any]:
    """What was given, each value by itself."""
    from penstock.frontends.scenario import OPTIONS, Option

    paths = {flag: path for path, flag in OPTIONS.items()}
    found = []
    for flag, value in given.items():
        path = paths[flag]
        for each in value if isinstance(value, list) else [value]:
            if each is None:
                continue
            step, equals, rest = each.partition("=") if path[0] == "steps" else ("", "", "")
            found.append(Option(path, rest.strip(), step.strip()) if equals else Option(path, each))
    return found


def _write(path: Path, text: str) -> None:
    from penstock.errors import PenstockError

    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        reason = f"cannot write {path}: {error.strerror or type(error).__name__}"
        raise PenstockError.of("USAGE", reason=reason, advice="Give a file in a folder that exists.") from None
