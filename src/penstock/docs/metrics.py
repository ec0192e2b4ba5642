"""The page of metrics."""

from __future__ import annotations

from penstock.control.metrics import CATALOGUE, SERVER_CATALOGUE
from penstock.docs.markdown import NOTE, table


def metrics_page() -> str:
    """The catalogue of metrics."""
    rows = [
        [f"`{metric.name}`", metric.kind, metric.unit, ", ".join(f"`{label}`" for label in metric.labels), metric.help]
        for metric in CATALOGUE
    ]
    server = [[f"`{metric.name}`", metric.unit, metric.help] for metric in SERVER_CATALOGUE]
    return f"""\
{NOTE}
# Metrics

The server gives these at `/metrics` in the form of Prometheus. [The guide](../guides/alerts-and-dashboards.md) says how
to collect and show them.

## Pipelines

All of these have the label `pipeline`; `node` is the name of a source, step or sink. Counters begin anew with each run,
as those of Prometheus do when a process is started again; `rate` and `increase` know that.

{table(["Metric", "Kind", "Unit", "Labels beside `pipeline`", "What it is"], rows)}
## The server

{table(["Metric", "Unit", "What it is"], server)}"""
