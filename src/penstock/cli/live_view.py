"""What `penstock run` shows while it runs: a live panel on a terminal, plain lines in a pipe, a summary at the end."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from penstock.engine.progress import Headway, Status

_BARS = "▁▂▃▄▅▆▇█"
_PLAIN_SECONDS = 5.0
_WIDEST = 100
_BAR_WIDTH = 20
_ECHO = 3
"""Columns left free at the right, where the terminal shows ^C; without them the panel would slip by a line."""
_COLOURS = {
    "running": "green",
    "waiting for data": "green",
    "stopping": "yellow",
    "starting Spark": "cyan",
    "sorting history": "cyan",
    "reading history": "cyan",
    "stopped": "blue",
    "done": "blue",
}


class View(Protocol):
    def show(self, status: Status) -> None: ...

    def summary(self, status: Status, now: dt.datetime) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def view_for(console: Console, master: str) -> View:
    return TerminalView(console, master) if console.is_terminal else PlainView(console)


class TerminalView:
    """A panel that stays in place and is redrawn; what sinks print scrolls by above it."""

    def __init__(self, console: Console, master: str) -> None:
        self.console = console
        self.master = master
        self.live = Live(console=console, auto_refresh=False, transient=True)

    def show(self, status: Status) -> None:
        now = dt.datetime.now(dt.UTC)
        self.live.update(panel(status, now, self.master, width=self.console.width), refresh=True)

    def summary(self, status: Status, now: dt.datetime) -> None:
        self.console.print(panel(status, now, self.master, width=self.console.width, hint=False))

    def __enter__(self) -> Self:
        self.live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.live.__exit__(kind, error, trace)


class PlainView:
    """One line when something has happened, at most every few seconds."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._last: tuple[str, int] = ("", -1)
        self._at: dt.datetime | None = None

    def show(self, status: Status) -> None:
        now = dt.datetime.now(dt.UTC)
        phase = "running" if status.phase == "waiting for data" else status.phase
        due = self._at is None or (now - self._at).total_seconds() >= _PLAIN_SECONDS
        news = phase != self._last[0] or (status.batches != self._last[1] and due)
        if not news:
            return
        self._last, self._at = (phase, status.batches), now
        self.console.print(plain_line(status, now), markup=False)

    def summary(self, status: Status, now: dt.datetime) -> None:
        self.console.print(f"{now.strftime('%H:%M:%SZ')} {status.pipeline} {status.phase}", markup=False)
        for name, value in _summary_rows(status, now):
            self.console.print(f"  {name:<10} {value}", markup=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


def panel(status: Status, now: dt.datetime, master: str, *, width: int, hint: bool = True) -> Panel:
    """The whole picture of a run."""
    colour = _COLOURS.get(status.phase, "white")
    head = Table.grid(expand=True)
    head.add_column()
    head.add_column(justify="right")
    name = Text.assemble((status.pipeline, "bold"), (f"  on {master}", "dim"))
    head.add_row(
        name, Text.assemble(("● ", colour), (status.phase, colour), (f"  {clock(now - status.started)}", "dim"))
    )
    figures = Table.grid(padding=(0, 2))
    figures.add_column(style="dim", no_wrap=True)
    figures.add_column()
    for label, value in _figures(status, now):
        figures.add_row(label, value)
    parts: list[object] = [head, Text(), figures]
    if hint and status.phase in ("running", "waiting for data"):
        parts += [Text(), Text("Ctrl-C finishes the batch and stops", "dim italic")]
    return Panel(Group(*parts), border_style=colour, padding=(0, 1), width=min(_WIDEST, width - _ECHO))  # type: ignore[arg-type]


def _figures(status: Status, now: dt.datetime) -> list[tuple[str, Text]]:
    last = status.last
    dead, late = sum(status.rows_dead.values()), sum(status.late.values())
    # While it waits the last rate would be a lie.
    current = last.rows_per_second if last and status.phase != "waiting for data" else 0.0
    rate = f"{current:>10,.0f} rows/s  " if last else ""
    rows = [("history", Text.assemble(*_headway(status.history)))] if status.history is not None else []
    rows += [
        (
            "rows in",
            Text.assemble(f"{sum(status.rows_in.values()):>14,}  ", rate, (sparkline(status.recent_rates), "cyan")),
        ),
        ("rows out", Text(_by_name(status.rows_out))),
        ("watermark", Text(_watermark(status, now))),
        *((f"  {name}", Text(text)) for name, text in _source_watermarks(status, now)),
    ]
    if last is not None:
        rows.append(
            ("batch", Text(f"{f'#{last.batch}':>14}  {last.duration_ms / 1000:.2f} s   {_phases(last.phases_ms)}"))
        )
        rows.append(("state", Text(f"{last.state_rows:>14,}  rows   {size(last.state_bytes)}")))
    rows.append(("late", Text(_by_name(status.late), "yellow" if late else "")))
    rows.append(("dead", Text(f"{dead:>14,}", "yellow" if dead else "")))
    if status.backlog:
        waiting = "   ".join(f"{name} {amount}{_caught_up(status, name)}" for name, amount in status.backlog.items())
        rows.append(("backlog", Text(f"{'':>14}  {waiting}")))
    return rows


def _caught_up(status: Status, source: str) -> str:
    seconds = status.caught_up_in.get(source)
    if seconds is None:
        return ""
    return ", ever more" if math.isinf(seconds) else f", caught up in about {duration(dt.timedelta(seconds=seconds))}"


def _headway(headway: Headway) -> tuple[str | tuple[str, str], ...]:
    """How far it is as a bar, a share and the time that is left."""
    share = headway.done / headway.total if headway.total else 1.0
    full = int(share * _BAR_WIDTH)
    left = f"   about {duration(dt.timedelta(seconds=headway.seconds_left))} left" if headway.seconds_left else ""
    figures = f"   {headway.done:,} of {headway.total:,} rows{left}"
    return (f"{share:>13.0%}  ", ("━" * full, "cyan"), ("━" * (_BAR_WIDTH - full), "dim"), figures)


def _summary_rows(status: Status, now: dt.datetime) -> list[tuple[str, str]]:
    rows, took = sum(status.rows_in.values()), now - status.started
    return [
        ("rows in", _by_name(status.rows_in).strip() + _earlier(status)),
        ("rows out", _by_name(status.rows_out).strip()),
        ("dead", f"{sum(status.rows_dead.values()):,}"),
        ("late", _by_name(status.late).strip()),
        ("batches", f"{status.batches:,}"),
        ("took", f"{clock(took)}, {rows / max(took.total_seconds(), 0.001):,.0f} rows/s with the start of Spark"),
    ]


def _earlier(status: Status) -> str:
    return f"   ({status.earlier_rows:,} in earlier runs)" if status.earlier_rows else ""


def plain_line(status: Status, now: dt.datetime) -> str:
    """One line for logs and pipes."""
    time = now.strftime("%H:%M:%SZ")
    if status.last is None:
        return f"{time} {status.pipeline} {status.phase}"
    lag = status.lag(now)
    history = f" history={status.history.done}/{status.history.total}" if status.history is not None else ""
    behind = f" lag={duration(lag)}" if lag is not None else ""
    dead = sum(status.rows_dead.values())
    return (
        f"{time} {status.pipeline} {status.phase} batch={status.last.batch} in={sum(status.rows_in.values())} "
        f"out={sum(status.rows_out.values())} dead={dead} late={sum(status.late.values())} "
        f"rate={status.last.rows_per_second:.0f}/s batch_ms={status.last.duration_ms}{behind}{history}"
    )


def _watermark(status: Status, now: dt.datetime) -> str:
    lag = status.lag(now)
    if status.last is None or status.last.watermark is None or lag is None:
        return f"{'none':>14}"
    return f"{duration(lag):>14}  behind   {status.last.watermark.strftime('%Y-%m-%d %H:%M:%S')}Z"


def _source_watermarks(status: Status, now: dt.datetime) -> list[tuple[str, str]]:
    """Which source holds the watermark back, where there are several."""
    if len(status.watermarks) < 2:
        return []
    lags = {
        name: now - dt.datetime.fromtimestamp(millis / 1000, dt.UTC) if millis else None
        for name, millis in status.watermarks.items()
    }
    return [
        (name, f"{duration(lag):>14}  behind" if lag is not None else f"{'no rows yet':>14}")
        for name, lag in lags.items()
    ]


def _phases(phases: Mapping[str, int]) -> str:
    shown = (("read", "latestOffset"), ("plan", "queryPlanning"), ("work", "addBatch"), ("commit", "commitOffsets"))
    return " · ".join(f"{label} {phases[name] / 1000:.2f}" for label, name in shown if name in phases)


def _by_name(counts: Mapping[str, int]) -> str:
    if not counts:
        return f"{0:>14,}"
    total = f"{sum(counts.values()):>14,}"
    return total + "  " + "   ".join(f"{name} {rows:,}" for name, rows in counts.items())


def sparkline(values: tuple[float, ...], width: int = 24) -> str:
    """The last values as small bars; their height is relative to the largest."""
    shown = values[-width:]
    largest = max(shown, default=0.0)
    if largest <= 0:
        return ""
    return "".join(_BARS[min(int(value / largest * (len(_BARS) - 1) + 0.5), len(_BARS) - 1)] for value in shown)


def duration(span: dt.timedelta) -> str:
    """A span as people say it: 0.8 s, 4 min 10 s, 3 h 2 min, 12 d 4 h."""
    seconds = max(span.total_seconds(), 0.0)
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def clock(span: dt.timedelta) -> str:
    seconds = max(int(span.total_seconds()), 0)
    return f"{seconds // 3600:02d}:{seconds % 3600 // 60:02d}:{seconds % 60:02d}"


def size(count: int) -> str:
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"
