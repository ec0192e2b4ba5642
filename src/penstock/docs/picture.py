"""The picture of the terminal view."""

from __future__ import annotations

import datetime as dt
import io
import re

from rich.console import Console

from penstock.cli.live_view import panel
from penstock.components.base import Backlog
from penstock.engine.progress import BatchReport, Status

_COLUMNS = 100


def run_picture() -> str:
    """What `penstock run` shows, at a made-up moment of the demo, as SVG."""
    console = Console(record=True, width=_COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    now = dt.datetime(2024, 1, 1, 12, 4, 10, tzinfo=dt.UTC)
    console.print(panel(_demo_status(now), now, "local[*]", width=_COLUMNS))
    svg = console.export_svg(title="penstock run examples/demo.yaml", unique_id="penstock-run")
    # The picture must not fetch anything when it is looked at: a font that is installed will do.
    svg = re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    return re.sub(r"\s*<!-- Generated with .*? -->", "", svg) + "\n"


def _demo_status(now: dt.datetime) -> Status:
    rates = (5210, 6480, 7030, 6920, 7410, 7380, 6870, 7550, 7620, 7190, 7480, 7700, 6950, 7340, 7510, 7660, 7280, 7430)
    last = BatchReport(
        batch=241,
        at=now - dt.timedelta(milliseconds=400),
        duration_ms=292,
        rows=2000,
        rows_per_second=6849.0,
        watermark=now - dt.timedelta(seconds=6.4),
        phases_ms={"latestOffset": 2, "queryPlanning": 14, "addBatch": 214, "commitOffsets": 19},
        state_rows=2131,
        state_bytes=812_400,
        late_rows=0,
        sources={},
    )
    return Status(
        pipeline="demo",
        phase="running",
        started=now - dt.timedelta(minutes=4, seconds=10),
        batches=242,
        rows_in={"views": 499_812},
        rows_dead={"views": 247},
        rows_out={"top_articles": 23_907},
        late={"per_minute": 231},
        last=last,
        backlog={"views": Backlog(0, "rows")},
        recent_rates=tuple(float(rate) for rate in rates),
    )
