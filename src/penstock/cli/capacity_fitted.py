"""`penstock capacity NAME|FOLDER`: what a pipeline can take, fitted to the batches that it has run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from penstock.capacity.figures import length, number
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.capacity.fitted import Asked, Fitted, Limit
    from penstock.capacity.forecast import AtLoad
    from penstock.frontends.batch_history import PastBatches

MOST_BATCHES = 20_000
_NAME = 28
_CELL = 13
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
Line = Text | str

ALLOWED = ("--rate", "--cores", "--max-lag", "--outage", "--catch-up", "--margin")
"""The options that go with a history, beside `--factor`."""


def fitted_to(
    place: Path, options: Mapping[str, Any], factor: float | None, server_name: str | None = None
) -> tuple[Fitted, str]:
    """The answer for a pipeline on the server or a state folder, and where the history is from."""
    from penstock.capacity.fitted import Known, fitted, refuse_unusual
    from penstock.frontends.batch_history import read_state_folder

    asked = _asked(options, factor)
    refuse_unusual(asked)
    free = None
    if server_name is not None:
        past, free = _from_server(server_name)
        source = f"the history of '{server_name}' on the server"
    else:
        past, source = read_state_folder(place), f"the history in {place}"
    facts = past.facts
    cores = options.get("--cores")
    known = Known(facts.trigger, facts.batch_limit, cores, facts.partitions, free)
    return fitted(past.name, past.batches, known, asked), source


def _asked(options: Mapping[str, Any], factor: float | None) -> Asked:
    from penstock.capacity.fitted import Asked
    from penstock.capacity.units import RowRate, Share
    from penstock.spec.units import Duration

    given = {flag: value for flag, value in options.items() if value not in (None, [])}
    wrong = sorted(given.keys() - set(ALLOWED))
    if wrong:
        reason = f"{wrong[0]} does not go with the history of a pipeline, which says that itself"
        raise PenstockError.of("USAGE", reason=reason, advice=f"Only these do: {', '.join(ALLOWED)} and --factor.")

    def read(flag: str, kind: Any) -> Any:
        try:
            return kind.parse(given[flag])
        except ValueError as error:
            raise PenstockError.of("USAGE", reason=f"{flag}: {error}", advice="") from None

    if given.get("--cores", 1) < 1:
        raise PenstockError.of("USAGE", reason="--cores must be at least 1", advice="Leave it out if it is not known.")
    changes: dict[str, Any] = {} if factor is None else {"factor": factor}
    for flag, key in (("--max-lag", "freshness"), ("--outage", "outage"), ("--catch-up", "catch_up")):
        if flag in given:
            changes[key] = read(flag, Duration).millis / 1000
    if "--margin" in given:
        changes["busy"] = 1 - read("--margin", Share).value
    if "--rate" in given:
        changes["rate"] = float(read("--rate", RowRate).per_second)
    return Asked(**changes)


def _from_server(name: str) -> tuple[PastBatches, int | None]:
    """The batches of the newest runs, and the free space on the disk with the state."""
    from penstock.capacity.measured import of_answer
    from penstock.cli.client import connected, part
    from penstock.frontends.batch_history import PastBatches, facts_of

    client = connected()
    found = client.get(f"/pipelines/{part(name)}/description")
    pages = client.pages(f"/pipelines/{part(name)}/batches", limit=1000)
    batches = [batch for each in islice(pages, MOST_BATCHES) if (batch := of_answer(each)) is not None]
    free = (found["status"] or {}).get("disk_free")
    return PastBatches(name, batches[::-1], facts_of(found["document"])), free


# --- the answer for programs -----------------------------------------------------------------------------------


def as_dict(found: Fitted, source: str) -> dict[str, Any]:
    """Seconds, rows and bytes as plain numbers; what is infinite or unknown is null."""
    from penstock.reports.codec import plain

    keys = ("name", "model", "running", "cost", "shares", "cores", "state", "state_bytes", "commit_share", "advice",
            "warnings", "assumptions")  # fmt: skip
    return {
        **{_camel(key): _camelled(plain(getattr(found, key))) for key in keys},
        "source": source,
        "loads": [_camelled(plain(load)) for load in found.loads],
        "limits": [_camelled(plain(limit)) for limit in found.limits],
        "margin": plain(found.margin),
        "outage": {
            "seconds": found.asked.outage,
            "caughtUp": None if found.outage is None else found.outage.caught_up,
            "backlog": None if found.outage is None else found.outage.peak_backlog,
        },
    }


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _camelled(value: Any) -> Any:
    if isinstance(value, dict):
        return {_camel(key): _camelled(inner) for key, inner in value.items() if key != "covariance"}
    return [_camelled(inner) for inner in value] if isinstance(value, list) else value


# --- the answer for people -------------------------------------------------------------------------------------


def lines_of(found: Fitted, source: str) -> Iterator[Line]:
    model, now = found.model, found.running
    cores = "" if now.cores is None else f" on {now.cores} core{'' if now.cores == 1 else 's'}"
    yield Text.assemble(
        (found.name, "bold"), f": {number(now.rate)} rows/s{cores}, a batch every {_exact(now.trigger)}"
    )
    yield Text(f"fitted to {model.batches:,} batches of {length(model.span)}, from {source}", "dim")
    yield ""
    yield from _costs(found)
    yield ""
    yield from _loads(found)
    yield ""
    yield from _limits(found)
    yield ""
    yield from _outage(found)
    if found.cores:
        yield ""
        yield from _cores(found)
    yield ""
    yield from _advice(found)
    yield from _listed("Warnings", found.warnings, "yellow")
    yield from _listed("Not told apart", [f"{each.term}: {each.reason}" for each in model.left_out], "dim")
    yield from _listed("Assumed", found.assumptions, "dim")


def _costs(found: Fitted) -> Iterator[Line]:
    yield _row("What it costs", "", "± 95 %", "share of batch", style="bold")
    shares = {each.what: each.share for each in found.shares}
    for cost in found.model.costs:
        part = shares.get(_SHARES[cost.term])
        yield _row(f"each {cost.term}", _short(cost.seconds), _short(cost.bar), "" if part is None else f"{part:.0%}")
    yield _row("  a batch differs by", f"{found.model.scatter:.0%}", style="dim")
    yield _row("  of differences explained", f"{found.model.explained:.0%}", style="dim")


_SHARES = {
    "batch": "each batch",
    "row": "rows",
    "row out": "rows given out",
    "row of state": "kept state",
    "checkpoint byte": "checkpoint bytes",
}


def _loads(found: Fitted) -> Iterator[Line]:
    yield _row("At a load of", "a batch takes", "± 95 %", "busy", "freshness", style="bold")
    for factor, load in zip((1.0, found.asked.factor), found.loads, strict=True):
        name = f"{number(load.rate)} rows/s{'' if factor == 1 else f' ({number(factor)} ×)'}"
        yield _load(name, load, found.asked.freshness)


def _load(name: str, load: AtLoad, freshness: float) -> Text:
    if not load.keeps_up:
        return _row(name, "never done", "", "100%", "grows", style="red")
    style = "yellow" if load.freshness > freshness else ""
    cells = (_exact(load.batch_seconds), _exact(load.bar), f"{load.busy:.0%}", _exact(load.freshness))
    return _row(name, *cells, style=style)


def _limits(found: Fitted) -> Iterator[Line]:
    yield Text.assemble(
        ("Margin: ", "bold"),
        (f"{number(found.margin)} times the load", "bold cyan"),
        f"; the first limit is {found.limits[0].resource}",
    )
    yield from (_limit(limit) for limit in found.limits)


def _limit(limit: Limit) -> Text:
    return _row(f"  {limit.resource}", f"{number(limit.rate)} rows/s").append(f"  {limit.why}", "dim")


def _outage(found: Fitted) -> Iterator[Line]:
    yield Text(f"After an outage of {length(found.asked.outage)}", "bold")
    course = found.outage
    if course is None or course.caught_up is None:
        yield Text("  never caught up", "bold red")
        return
    yield _row("  backlog", f"{number(course.peak_backlog)}").append(" rows")
    yield _row("  caught up after", length(course.caught_up), style="bold cyan")


def _cores(found: Fitted) -> Iterator[Line]:
    busy, fresh = found.asked.busy, length(found.asked.freshness)
    yield Text(f"Cores for a freshness of {fresh}, busy for {busy:.0%} of the time", "bold")
    for needed in found.cores:
        count = "no number" if needed.cores is None else f"{needed.cores:,}"
        yield _row(f"  at {needed.what}", count, style="bold cyan").append(f"  {needed.reason}", "dim")


def _advice(found: Fitted) -> Iterator[Line]:
    yield Text("Advice", "bold")
    for advice in found.advice:
        yield Text.assemble(f"  {advice.what}: {advice.now} → ", (advice.advice, "bold cyan"))
        yield Text(f"    {advice.why}", "dim")


def _listed(title: str, items: Sequence[str], style: str) -> Iterator[Line]:
    if items:
        yield ""
        yield Text(title, "bold")
        yield from (Text(f"  - {item}", style) for item in items)


def _row(name: str, *cells: str, style: str = "") -> Text:
    return Text(f"{name:<{_NAME}}{''.join(cell.rjust(_CELL + 2) for cell in cells)}".rstrip(), style)


def _short(seconds: float) -> str:
    """A small time in the unit that suits it: `18.4 µs`."""
    factor, unit = next(((factor, unit) for factor, unit in _UNITS if abs(seconds) >= factor), _UNITS[-1])
    return f"{number(seconds / factor)} {unit}"


def _exact(seconds: float) -> str:
    return _short(seconds) if seconds < 10 else length(seconds)
