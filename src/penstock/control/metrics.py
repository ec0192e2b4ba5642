"""What Prometheus is told: one catalogue of metrics with name, unit and help, each with how it is read."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family

from penstock.control.alerts.measure import Sample
from penstock.control.clock import Clock
from penstock.control.samples import Seen, seen, seen_by_supervisor
from penstock.control.store.alerting import AlertingStore
from penstock.control.store.database import Store
from penstock.control.store.pipelines import Labels
from penstock.control.supervisor.watched import Live
from penstock.errors import PenstockError
from penstock.reports.values import RunStatus
from penstock.spec.conditions import HEALTH

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_COMMIT_PHASES = ("walCommit", "commitOffsets")
"""The parts of a batch in which Spark writes its checkpoint."""

Values = Iterable[tuple[tuple[str, ...], float]]
"""Values of the labels after `pipeline`, each with the value of the metric."""


@dataclass(frozen=True)
class PipelineNow:
    """A pipeline as it is at the moment that is asked for."""

    name: str
    version: int
    target: str
    sample: Sample
    restarts: int = 0
    """Since the pipeline was made."""
    firing: Sequence[tuple[str, str]] = ()
    """Name and severity of the alerts that fire."""


@dataclass(frozen=True)
class ServerNow:
    """The server itself."""

    store_up: bool
    tick_seconds: float
    notifications_waiting: int | None = None
    """None if the store cannot say."""


@dataclass(frozen=True)
class Metric:
    """One metric. `labels` are those beside `pipeline`, which all but those of the server have."""

    name: str
    kind: Literal["counter", "gauge"]
    unit: str
    help: str
    labels: tuple[str, ...]
    read: Callable[[PipelineNow], Values]


@dataclass(frozen=True)
class ServerMetric:
    """A metric of the server, without labels."""

    name: str
    unit: str
    help: str
    read: Callable[[ServerNow], float | None]


def _of_status(pick: Callable[[RunStatus], float | None]) -> Callable[[PipelineNow], Values]:
    """A single value of the run."""

    def read(now: PipelineNow) -> Values:
        value = None if now.sample.status is None else pick(now.sample.status)
        return [] if value is None else [((), float(value))]

    return read


def _by_node(pick: Callable[[RunStatus], Mapping[str, float]]) -> Callable[[PipelineNow], Values]:
    """A value for each source, step or sink of the run."""

    def read(now: PipelineNow) -> Values:
        return [] if now.sample.status is None else [((name,), float(v)) for name, v in pick(now.sample.status).items()]

    return read


def _age(at: dt.datetime | None, now: PipelineNow) -> float | None:
    return None if at is None else max(0.0, (now.sample.now - at).total_seconds())


def _one(value: float | None) -> Values:
    return [] if value is None else [((), value)]


def _backlog(now: PipelineNow) -> Values:
    status = now.sample.status
    return [] if status is None else [((name, at.unit), float(at.amount)) for name, at in status.backlog.items()]


def _watermarks(status: RunStatus) -> dict[str, float]:
    return {name: millis / 1000 for name, millis in status.watermarks.items() if millis > 0}


def _catch_up(status: RunStatus) -> dict[str, float]:
    return {name: math.inf if left is None else left for name, left in status.caught_up_in.items()}


def _watermark_lag(now: PipelineNow) -> Values:
    status, clock = now.sample.status, now.sample.now.timestamp()
    return [] if status is None else [((name,), clock - at) for name, at in _watermarks(status).items()]


def _phases(now: PipelineNow) -> Values:
    last = now.sample.last_batch
    return [] if last is None else [((phase,), ms / 1000) for phase, ms in sorted(last.phases_ms.items())]


def _checkpoint_seconds(now: PipelineNow) -> Values:
    last = now.sample.last_batch
    found = [last.phases_ms[phase] for phase in _COMMIT_PHASES if phase in last.phases_ms] if last else []
    return _one(sum(found) / 1000 if found else None)


def _sink_seconds(now: PipelineNow) -> Values:
    last = now.sample.last_batch
    return [] if last is None else [((name,), ms / 1000) for name, ms in last.sink_ms.items()]


def _history(status: RunStatus) -> float | None:
    return status.history.done / status.history.total if status.history and status.history.total else None


_NODE = ("node",)
CATALOGUE: tuple[Metric, ...] = (
    Metric("penstock_pipeline_info", "gauge", "1", "Always 1; says which version runs where.",
           ("version", "target"), lambda now: [((str(now.version), now.target), 1.0)]),
    Metric("penstock_pipeline_wanted", "gauge", "1", "1 if the pipeline is meant to run, else 0.",
           (), lambda now: _one(float(now.sample.wanted_since is not None))),
    Metric("penstock_health", "gauge", "1", "1 for the health that the pipeline has, 0 for all others.",
           ("state",), lambda now: [((state,), float(state == now.sample.health)) for state in HEALTH]),
    Metric("penstock_restarts_total", "counter", "restarts", "Starts after a failure, since the pipeline was made.",
           (), lambda now: _one(float(now.restarts))),
    Metric("penstock_alert_firing", "gauge", "1", "1 for each of Penstock's own alerts that fires.",
           ("rule", "severity"), lambda now: [(alert, 1.0) for alert in now.firing]),
    Metric("penstock_report_age_seconds", "gauge", "seconds", "Since the run last gave a sign of life.",
           (), lambda now: _one(_age(now.sample.status.at if now.sample.status else None, now))),
    Metric("penstock_rows_in_total", "counter", "rows", "Rows that a source gave in this run.",
           _NODE, _by_node(lambda status: status.rows_in)),
    Metric("penstock_rows_out_total", "counter", "rows", "Rows that a sink stored in this run.",
           _NODE, _by_node(lambda status: status.rows_out)),
    Metric("penstock_rows_late_total", "counter", "rows", "Rows that came too late for a step in this run.",
           _NODE, _by_node(lambda status: status.rows_late)),
    Metric("penstock_rows_dead_total", "counter", "rows", "Rows set aside as dead letters in this run, by where.",
           _NODE, _by_node(lambda status: status.rows_dead)),
    Metric("penstock_rows_filtered_total", "counter", "rows", "Rows that a step filtered out in this run.",
           _NODE, _by_node(lambda status: status.rows_filtered)),
    Metric("penstock_rows_per_second", "gauge", "rows per second", "How fast rows are read, over the last batches.",
           (), _of_status(lambda status: status.rows_per_second)),
    Metric("penstock_backlog", "gauge", "messages, rows or files", "What waits at a source, in the unit of the label.",
           ("node", "unit"), _backlog),
    Metric("penstock_catch_up_seconds", "gauge", "seconds",
           "Until nothing waits at a source any more; +Inf if ever more waits.",
           _NODE, _by_node(_catch_up)),
    Metric("penstock_history_ratio", "gauge", "0 to 1", "How much of the history is read, while it is.",
           (), _of_status(_history)),
    Metric("penstock_watermark_timestamp_seconds", "gauge", "seconds since 1970", "The watermark of a source.",
           _NODE, _by_node(_watermarks)),
    Metric("penstock_watermark_lag_seconds", "gauge", "seconds", "How far the watermark of a source is behind.",
           _NODE, _watermark_lag),
    Metric("penstock_batches_total", "counter", "batches", "Batches of this run.",
           (), _of_status(lambda status: status.batches)),
    Metric("penstock_batch_duration_seconds", "gauge", "seconds", "How long the last batch took.",
           (), _of_status(lambda status: status.last_batch.duration_ms / 1000 if status.last_batch else None)),
    Metric("penstock_batch_phase_seconds", "gauge", "seconds", "How long each phase of the last batch took.",
           ("phase",), _phases),
    Metric("penstock_commit_age_seconds", "gauge", "seconds", "Since a batch was last committed, by whichever run.",
           (), lambda now: _one(_age(now.sample.last_commit, now))),
    Metric("penstock_checkpoint_duration_seconds", "gauge", "seconds",
           "How long the last batch took to write the checkpoint's log.",
           (), _checkpoint_seconds),
    Metric("penstock_checkpoint_age_seconds", "gauge", "seconds", "Since the checkpoint last advanced, in this run.",
           (), lambda now: _one(_age(now.sample.status.checkpoint_at if now.sample.status else None, now))),
    Metric("penstock_checkpoint_bytes", "gauge", "bytes", "Size of the checkpoint.",
           (), _of_status(lambda status: status.checkpoint_bytes)),
    Metric("penstock_state_rows", "gauge", "rows", "Rows that stateful steps keep.",
           (), _of_status(lambda status: status.state_rows)),
    Metric("penstock_state_bytes", "gauge", "bytes", "Memory that the state of steps takes.",
           (), _of_status(lambda status: status.state_bytes)),
    Metric("penstock_sink_duration_seconds", "gauge", "seconds", "How long a sink took to store the last batch.",
           _NODE, _sink_seconds),
    Metric("penstock_sink_retries_total", "counter", "retries", "How often a sink had to try again in this run.",
           _NODE, _by_node(lambda status: status.sink_retries)),
    Metric("penstock_ledger_unbalanced_batches", "gauge", "batches",
           "Batches of the last hour whose counts do not add up.",
           (), lambda now: _one(float(now.sample.unbalanced))),
    Metric("penstock_disk_free_bytes", "gauge", "bytes", "Free space on the disk of the state folder.",
           (), _of_status(lambda status: status.disk_free)),
)  # fmt: skip
SERVER_CATALOGUE: tuple[ServerMetric, ...] = (
    ServerMetric("penstock_store_up", "1", "1 if the store of the server can be reached, else 0.",
                 lambda now: float(now.store_up)),
    ServerMetric("penstock_tick_duration_seconds", "seconds", "How long the supervisor's last tick took.",
                 lambda now: now.tick_seconds),
    ServerMetric("penstock_notifications_waiting", "notifications", "Notifications of alerts that are not sent yet.",
                 lambda now: now.notifications_waiting),
)  # fmt: skip


def scrape(
    store: Store, live: Mapping[str, Live], clock: Clock, *, tick_seconds: float, within: Labels | None = None
) -> bytes:
    """What `/metrics` answers; while the store is down, what the supervisor sees. `within` are labels of pipelines."""
    try:
        found = seen(store, live, clock)
        alerting = AlertingStore(store)
        firing: dict[str, list[tuple[str, str]]] = {}
        for alert in alerting.open():
            if alert.state.phase == "firing":
                firing.setdefault(alert.pipeline, []).append((alert.rule, alert.severity))
        server = ServerNow(store_up=True, tick_seconds=tick_seconds, notifications_waiting=alerting.waiting())
    except PenstockError:
        found, firing = seen_by_supervisor(live, clock.now()), {}
        server = ServerNow(store_up=False, tick_seconds=tick_seconds)
    shown = [each for each in found if (within or {}).items() <= each.labels.items()]
    return exposition([_now(each, firing.get(each.name, ())) for each in shown], server)


def _now(each: Seen, firing: Sequence[tuple[str, str]]) -> PipelineNow:
    return PipelineNow(each.name, each.version, each.target, each.sample, each.restarts, firing)


def exposition(pipelines: Sequence[PipelineNow], server: ServerNow) -> bytes:
    """All metrics in the text form of Prometheus; serve it as CONTENT_TYPE."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(pipelines, server))
    return generate_latest(registry)


class _Collected:
    """One answer; prometheus-client asks it for families of metrics."""

    def __init__(self, pipelines: Sequence[PipelineNow], server: ServerNow) -> None:
        self._pipelines = pipelines
        self._server = server

    def collect(self) -> Iterator[Family]:
        for metric in CATALOGUE:
            family = _family(metric)
            for pipeline in self._pipelines:
                for labels, value in metric.read(pipeline):
                    family.add_metric([pipeline.name, *labels], value)
            yield family
        for own in SERVER_CATALOGUE:
            read = own.read(self._server)
            single = GaugeMetricFamily(own.name, own.help)
            if read is not None:
                single.add_metric([], read)
            yield single


def _family(metric: Metric) -> CounterMetricFamily | GaugeMetricFamily:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    return kind(metric.name, metric.help, labels=["pipeline", *metric.labels])
