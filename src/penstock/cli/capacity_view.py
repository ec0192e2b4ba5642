"""How an estimate is shown in a terminal: the picture of a machine, and tables of what it is made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.text import Text

from penstock.capacity.estimate import Estimate
from penstock.capacity.figures import binary_size, byte_rate, byte_size, length, number, row_rate, share, time_of_day
from penstock.capacity.limits import Use, usable
from penstock.capacity.load import MOST_DAYS
from penstock.capacity.picture import as_lines, name_of, picture_of
from penstock.capacity.traffic import STAGES, Flow, Kind, stage

_SUBTOTALS = {"rows": "rows", "with state": "with state access", "with checkpoints": "with checkpoints"}
_NAME = 28
_CELL = 13
Line = Text | str


def lines_of(found: Estimate, title: str, taken: Sequence[str] = ()) -> Iterator[Line]:
    """Everything, from the picture to what was assumed."""
    yield Text.assemble((title, "bold"), f": {_load(found)}")
    yield ""
    yield from as_lines(picture_of(found))
    yield ""
    yield from _traffic(found)
    yield ""
    yield from _limits(found)
    yield ""
    yield from _overall(found)
    if found.window_ends:
        yield ""
        yield from _window_ends(found)
    yield ""
    yield from _machines(found)
    if found.memory is not None:
        yield ""
        yield from _memory(found)
    if len(found.profile.rates) > 1 or found.scenario.goals.lag is not None or (found.day and found.day.peak_lag):
        yield ""
        yield from _day(found)
    if found.recovery is not None:
        yield ""
        yield from _outage(found)
    yield from _listed("Warnings", found.warnings, "yellow")
    yield from _listed("Taken from the pipeline", taken, "dim")
    yield from _listed("Assumed, as it was not given", found.assumptions, "dim")


def _load(found: Estimate) -> str:
    size = found.scenario.source.record_size
    if len(found.profile.rates) == 1:
        rows = row_rate(found.profile.peak)
    else:
        rows = f"up to {row_rate(found.profile.peak)} ({number(found.profile.mean)} on average)"
    return f"{rows} of {size} on {_counted(found.machines, 'machine')}"


def _traffic(found: Estimate) -> Iterator[Line]:
    """Each kind of flow, and what it comes to so far. A line for each step if there are several."""
    yield _row("Each machine", "in", "out", style="bold")
    several = len(found.scenario.steps) > 1
    shown = [name for name, kinds in STAGES.items() if found.traffic.of(*kinds) != (0.0, 0.0)]
    for name in shown:
        for kind in STAGES[name]:
            flows = [flow for flow in found.traffic.flows if flow.kind is kind and (flow.into or flow.out)]
            called = name_of(kind, found.scenario)
            if several and len(flows) > 1:
                for flow in flows:
                    yield _flow(f"{called}, {flow.step}", flow.into, flow.out, flow)
            elif flows:
                yield _flow(called, *found.traffic.of(kind), flows[0])
        if not any(flow.network for flow in found.traffic.flows if flow.kind in STAGES[name]):
            continue
        into, out = stage(found.traffic, name)
        yield _row(f"  {_SUBTOTALS[name]}", byte_rate(into), byte_rate(out), style="bold cyan")


def _flow(name: str, into: float, out: float, flow: Flow) -> Text:
    where = "" if flow.network else "  disk only"
    reads = flow.kind in (Kind.STATE, Kind.SHUFFLE_FILES)
    first, second = (byte_rate(value) if value or reads else "" for value in (into, out))
    return _row(name, first, second).append(where, "dim") if where else _row(name, first, second)


def _limits(found: Estimate) -> Iterator[Line]:
    yield _row("Limits of a machine", "used", "limit", "share", "free", style="bold")
    for use in found.uses:
        style = "red" if use.exceeds(1.0) else "yellow" if use.exceeds(usable(found.scenario)) else ""
        yield _row(use.resource, _amount(use, use.used), _amount(use, use.limit), share(use.share),
                   share(use.headroom), style=style)  # fmt: skip


def _amount(use: Use, value: float) -> str:
    if use.resource == "cores":
        return number(value)
    return byte_size(value) if use.resource == "disk space" else byte_rate(value)


def _window_ends(found: Estimate) -> Iterator[Line]:
    yield _row("When windows end", "each sends", "takes", "every", style="bold")
    for end in found.window_ends:
        takes = "for ever" if end.seconds is None else length(end.seconds)
        yield _row(end.step, byte_size(end.bytes), takes, length(end.every))


def _overall(found: Estimate) -> Iterator[Line]:
    overall = found.overall
    yield Text("At all network cards", "bold")
    yield _row("the machines", byte_rate(overall.machines))
    yield _row("sources and sinks", byte_rate(overall.sources_and_sinks))
    if overall.disks:
        yield _row("disks over the network", byte_rate(overall.disks))
    total = f"= {overall.gigabits:,.2f} Gbit/s".rjust(_CELL + 6)
    yield _row("  overall", byte_rate(overall.total), style="bold cyan").append(total, "bold cyan")
    if overall.checkpoint_store:
        store = _row("store of checkpoints", byte_rate(overall.checkpoint_store))
        yield store.append("  beside it, not counted", "dim")
    if found.scenario.steps:
        yield _row("state, on all machines", byte_size(found.state_bytes))
        yield _row("state, on each", byte_size(found.traffic.state_bytes))


def _machines(found: Estimate) -> Iterator[Line]:
    need = found.need.machines
    if need is None:
        yield Text(f"No number of machines is enough: {found.need.reason}", "bold red")
        return
    why = f"; with fewer, the limit is {found.need.reason}" if need > 1 else ""
    needed = Text.assemble(("Machines needed: ", "bold"), (f"{need:,}", "bold cyan"), why)
    yield needed
    if found.scenario.machines.count is not None:
        verdict = ("enough", "green") if found.enough else ("not enough", "bold red")
        yield Text.assemble(("Machines given:  ", "bold"), f"{found.machines:,}, ", verdict)
    if found.cores is not None:
        yield Text.assemble(("Cores needed:    ", "bold"), f"{found.cores:,}")
    times = found.sustained.rate / found.profile.peak
    most = f"{row_rate(found.sustained.rate)}, {number(times)} times the load, limited by {found.sustained.resource}"
    yield Text.assemble(("Most that goes through: ", "bold"), most)


def _memory(found: Estimate) -> Iterator[Line]:
    memory = found.memory
    assert memory is not None
    yield Text("Memory of an executor", "bold")
    rows = [
        ("container", memory.container),
        ("  heap", memory.heap),
        ("    reserved by Spark", memory.reserved),
        ("    execution", memory.execution),
        ("    storage", memory.storage),
        ("    user", memory.user),
        ("  overhead", memory.overhead),
        ("    RocksDB", memory.rocksdb),
        ("    Python workers", 0 if memory.pyspark else memory.python),
        ("    other native memory", memory.native),
        ("    left", memory.overhead_left),
        ("  off heap", memory.off_heap),
        ("  Python's own part", memory.pyspark),
    ]
    always = {"container", "  heap", "  overhead", "    left"}
    for name, size in rows:
        if size or name in always:
            style = "red" if size < 0 else "bold" if name == "container" else ""
            yield _row(name, byte_size(size) if size >= 0 else f"-{byte_size(-size)}", binary_size(size), style=style)


def _day(found: Estimate) -> Iterator[Line]:
    yield Text("A day", "bold")
    day, limit = found.day, found.scenario.goals.lag
    if day is None:
        yield Text("  the backlog grows from day to day", "bold red")
        return
    yield _row("  highest lag", length(day.peak_lag)).append(f"  at {time_of_day(day.peak_at)}" * bool(day.peak_lag))
    yield _row("  largest backlog", number(day.peak_backlog)).append(" rows")
    yield _row("  rows wait for up to", length(day.longest_wait)).append("  without a break", "dim")
    if limit is not None:
        yield _row(f"  over the limit of {limit}", length(day.over_limit), style="red" if day.over_limit else "green")


def _outage(found: Estimate) -> Iterator[Line]:
    recovery = found.recovery
    assert recovery is not None
    outage = recovery.outage
    at = f", begun at {time_of_day(outage.start)}, when it costs most" if len(found.profile.rates) > 1 else ""
    yield Text.assemble((f"After an outage of {length(outage.length)}", "bold"), at)
    course = recovery.course
    if course is None or course.caught_up is None:
        never = "never caught up" if course is None else f"not caught up within {MOST_DAYS} days"
        yield Text(f"  {never}", "bold red")
        return
    yield _row("  largest backlog", number(course.peak_backlog)).append(" rows")
    yield _row("  highest lag", length(course.peak_lag))
    yield _row("  caught up after", length(course.caught_up), style="bold cyan")


def _listed(title: str, items: Iterable[str], style: str) -> Iterator[Line]:
    listed = list(items)
    if listed:
        yield ""
        yield Text(title, "bold")
        yield from (Text(f"  - {item}", style) for item in listed)


def _row(name: str, *cells: str, style: str = "") -> Text:
    return Text(f"{name:<{_NAME}}{''.join(cell.rjust(_CELL) for cell in cells)}".rstrip(), style)


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
