"""The pipeline as written: sources, steps, sinks and settings. Typed, frozen, without Spark and without I/O."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from pydantic import SerializeAsAny, ValidationInfo, field_validator

from penstock.spec.alerts import Alert
from penstock.spec.fields import Change, Config, field, unfit
from penstock.spec.scale import ScaleSettings
from penstock.spec.units import Duration

API_VERSION = "penstock/v1"
NODE_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
PIPELINE_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")

Kind = Literal["source", "step", "sink"]
LateChoice = Literal["drop", "side", "correct"]
Row = Mapping[str, Any]


RENAMED_FROM = (
    "What it was called before, so that the state goes on under the new name. It can be removed once the pipeline has "
    "run under that name."
)


class EventTime(Config):
    """Which column says when a row happened, and how late rows may come."""

    column: str = field(doc="The timestamp column that says when the row happened.", change=Change.LOSES_STATE)
    max_delay: Duration = field(
        Duration(10_000),
        doc="How far rows may lag behind the newest one; the watermark trails the newest event time by this much.",
    )
    idle_after: Duration | None = field(
        None, doc="After this long without rows the source no longer holds the watermark back."
    )
    max_ahead: Duration | None = field(
        Duration(86_400_000),
        doc="Rows whose event time is further ahead of the clock than this are set aside as dead letters, so that one "
        "wrong clock cannot make all other rows late; null turns it off.",
    )

    @field_validator("idle_after", "max_ahead")
    @classmethod
    def _is_some_time(cls, value: Duration | None, info: ValidationInfo) -> Duration | None:
        if value is not None and value.millis <= 0:
            off = "Leave it out" if info.field_name == "idle_after" else "Write null"
            raise unfit("must be more than 0", f"{off} to turn it off.")
        return value


class LatePolicy(Config):
    """What becomes of rows that come after the window they belong to has been given out."""

    shorthand: ClassVar[str] = "policy"

    policy: LateChoice = field(
        "drop",
        doc="drop: they are counted. side: they are kept in a sink of their own, with all columns, how late they were "
        "and for which window. correct: the window is opened again, and its corrected row replaces the earlier one.",
    )
    allowed: Duration = field(
        Duration(3_600_000),
        doc="How long after its end a window can still be corrected: by late rows themselves (`correct`), or by "
        "`penstock replay late` (`side`). It has no meaning with `drop`.",
    )
    sink: SerializeAsAny[Config] | None = field(
        None,
        doc="Where late rows are kept with `side`: a sink, or the name of an entry of `sinks` without `from`. "
        "Default: `late/` in the state folder.",
    )

    @field_validator("allowed")
    @classmethod
    def _leaves_time_to_correct(cls, value: Duration, info: ValidationInfo) -> Duration:
        if value.millis < 0:
            raise unfit("must not be less than 0", "Write for example `allowed: 1 hour`.")
        if value.millis == 0 and info.data.get("policy") == "correct":
            raise unfit("must be more than 0 with `correct`", "Write for example `allowed: 1 hour`, or `late: drop`.")
        return value

    @field_validator("sink")
    @classmethod
    def _is_used(cls, value: Config | None, info: ValidationInfo) -> Config | None:
        policy = info.data.get("policy")
        if value is not None and policy in ("drop", "correct"):
            raise unfit(f"with `{policy}` no late rows are kept", "Write `policy: side`, or remove `sink`.")
        return value


class Bootstrap(Config):
    """A history that is read before the source itself, in the order of event time."""

    component: SerializeAsAny[Config] = field(doc="A source of which all that is there now is read, once.")
    format: SerializeAsAny[Config] | None = field(
        None, doc="How its rows are encoded. Default: as those of the source."
    )
    until: dt.datetime | None = field(
        None,
        doc="The event time at which history ends: older rows are taken from the history, this one and later ones from "
        "the source. Default: all of the history, then the source from where it starts.",
    )

    @field_validator("until")
    @classmethod
    def _has_a_zone(cls, value: dt.datetime | None) -> dt.datetime | None:
        if value is not None and value.tzinfo is None:
            raise unfit("must name its time zone", "Write for example `2024-01-01T00:00:00Z`.")
        return value


class Throttle(Config):
    """How much of a source is let in."""

    rows_per_second: int | None = field(None, ge=1, doc="The most rows that are read in a second.")
    adaptive: bool = field(
        False,
        doc="Whether batches are cut so that one takes about as long as `run.trigger`, a second at least: after an "
        "outage they begin small and grow as far as the sinks keep up.",
    )


class Source(Config):
    """A named source: its component, the format of its rows, and their event time."""

    name: str = field(doc="Unique name; steps and sinks refer to it.", change=Change.LOSES_STATE)
    component: SerializeAsAny[Config] = field(doc="Where the rows come from.")
    format: SerializeAsAny[Config] | None = field(
        None, doc="How the rows are encoded, for sources that read bytes or files."
    )
    event_time: EventTime | None = field(
        None, doc="Event time and its tolerated delay; needed by windows and other steps that reason about time."
    )
    bootstrap: Bootstrap | None = field(
        None, change=Change.BOOTSTRAP, doc="History that a new pipeline reads before it reads the source."
    )
    throttle: Throttle = field(Throttle(), doc="How much of it is let in.", change=Change.RESTART)
    renamed_from: str | None = field(None, doc=RENAMED_FROM, change=Change.NOTHING)


class Step(Config):
    """A named step over the rows of its inputs."""

    name: str = field(doc="Unique name; in SQL it is the table's name.", change=Change.LOSES_STATE)
    inputs: tuple[str, ...] = field(alias="from", doc="The source or step it reads, or a list of them.")
    component: SerializeAsAny[Config] = field(doc="What the step does.")
    late: LatePolicy | None = field(
        None, doc="What becomes of rows that come too late for this step. Default: what the pipeline says."
    )
    renamed_from: str | None = field(None, doc=RENAMED_FROM, change=Change.NOTHING)


class Sink(Config):
    """A named sink and the source or step whose rows it stores."""

    name: str = field(doc="Unique name.", change=Change.LOSES_STATE)
    input: str = field(
        alias="from", doc="The source or step whose rows it stores; only a sink that `late` names has none."
    )
    component: SerializeAsAny[Config] = field(doc="Where the rows go.")
    renamed_from: str | None = field(None, doc=RENAMED_FROM, change=Change.NOTHING)


class StateSettings(Config):
    """How the state of stateful steps is kept."""

    partitions: int | None = field(
        None, ge=1, le=4096, change=Change.RESCALE,
        doc="Into how many partitions state is divided; fixed by the first run. Default: the number of cores.",
    )  # fmt: skip
    store: Literal["spark", "chunks"] | None = field(
        None, change=Change.LOSES_STATE,
        doc="Where the state of stateful steps is kept; fixed by the first run. `spark` (default): in Spark's state "
        "store. `chunks`: in files of columns, which makes small pipelines and pipelines of many steps much cheaper. "
        "It is new: cut-over, reprocessing and `upgrade --bootstrap` need `spark`, and so do SQL steps that Spark's "
        "own operators keep state for.",
    )  # fmt: skip


class LedgerSettings(Config):
    """What the ledger keeps beside the counts of each batch."""

    window: Duration | None = field(
        None,
        doc="Rows are also counted by windows of event time of this size, so that it can be told whether an hour or a "
        "day is complete. It costs about a tenth of the time of stateless pipelines.",
    )
    checksum: tuple[str, ...] = field(
        (),
        doc="Columns of which a checksum is kept for each sink, so that `penstock ledger --audit` can compare what the "
        "sink holds with what was written. They hold text, whole numbers or dates; name what identifies a row. "
        "Of tables with a `key` all columns are summed up.",
    )

    @field_validator("window")
    @classmethod
    def _is_some_time(cls, value: Duration | None) -> Duration | None:
        if value is not None and value.millis <= 0:
            raise unfit("must be more than 0", "Write for example `window: 1 hour`.")
        return value


class SavepointSettings(Config):
    """Savepoints that a running pipeline takes by itself."""

    every: Duration | None = field(
        None, change=Change.RESTART, doc="How often the pipeline takes a savepoint by itself. Default: never."
    )
    keep: int = field(
        5, ge=1, le=1000, change=Change.RESTART,
        doc="How many of those it keeps; older ones are removed. Savepoints that were asked for are never removed.",
    )  # fmt: skip

    @field_validator("every")
    @classmethod
    def _is_some_time(cls, value: Duration | None) -> Duration | None:
        if value is not None and value.millis < 1000:
            raise unfit("must be at least 1 second", "Write for example `every: 6 hours`.")
        return value


class RestartSettings(Config):
    """How often a pipeline that fails is started again; only `penstock serve` does that."""

    max_per_hour: int = field(
        6, ge=0, le=1000, change=Change.RESTART,
        doc="How many times in an hour a failed run is started again. When that is used up, it waits for the next hour "
        "if something outside failed, such as a database; otherwise the pipeline is given up as FAILED.",
    )  # fmt: skip


class RunSettings(Config):
    """How the pipeline is driven."""

    trigger: Duration = field(
        Duration(1000), doc="How often a batch is started; a batch that takes longer is followed at once by the next."
    )
    restart: RestartSettings = field(
        RestartSettings(), doc="How often a failed run is started again.", change=Change.RESTART
    )


class TestCase(Config):
    """Rows to feed and rows to expect; run by `penstock test`."""

    __test__ = False

    name: str = field(doc="What the test shows.", change=Change.NOTHING)
    given: dict[str, tuple[dict[str, Any], ...]] = field(doc="Rows for each source, as a list.", change=Change.NOTHING)
    expect: dict[str, tuple[dict[str, Any], ...]] = field(
        doc="Rows that must leave a step or reach a sink, in any order; only the columns named are compared.",
        change=Change.NOTHING,
    )


class Pipeline(Config):
    """A whole pipeline."""

    name: str = field(doc="The pipeline's name.", change=Change.LOSES_STATE)
    labels: dict[str, str] = field(default={}, doc="Labels for finding and grouping pipelines.", change=Change.NOTHING)
    sources: tuple[Source, ...] = field(doc="Where rows come from.")
    steps: tuple[Step, ...] = field((), doc="What is done with them.")
    sinks: tuple[Sink, ...] = field(doc="Where they go.")
    dead_letters: SerializeAsAny[Config] | None = field(
        None, doc="The sink for rows that cannot be read. Default: `dead/` in the state folder."
    )
    late: LatePolicy = field(
        LatePolicy(), doc="What becomes of rows that come too late, unless a step has a `late` of its own."
    )
    state: StateSettings = field(StateSettings(), doc="How state is kept.")
    run: RunSettings = field(RunSettings(), doc="How the pipeline is driven.", change=Change.RESTART)
    ledger: LedgerSettings = field(LedgerSettings(), doc="What the ledger keeps.", change=Change.RESTART)
    savepoints: SavepointSettings = field(
        SavepointSettings(), doc="Savepoints that the pipeline takes by itself.", change=Change.RESTART
    )
    scale: ScaleSettings | None = field(
        None, doc="Between how many cores it may be scaled, and by which rules.", change=Change.NOTHING
    )
    alerts: tuple[Alert, ...] = field(
        (),
        doc="When somebody is to be told, beside the alerts that every pipeline has; one of the same name replaces it.",
        change=Change.NOTHING,
    )
    tests: tuple[TestCase, ...] = field((), doc="Tests of this pipeline.", change=Change.NOTHING)

    def nodes(self) -> Iterator[Source | Step | Sink]:
        yield from self.sources
        yield from self.steps
        yield from self.sinks

    def source(self, name: str) -> Source:
        return next(source for source in self.sources if source.name == name)

    def sink(self, name: str) -> Sink:
        return next(sink for sink in self.sinks if sink.name == name)

    def late_policy(self, step: Step) -> LatePolicy:
        """What holds for the late rows of a step: its own policy, or else the pipeline's."""
        return self.late if step.late is None else step.late

    def late_sinks(self) -> Iterator[Config]:
        """The sinks that are declared for late rows, the pipeline's and those of steps."""
        for policy in (self.late, *(step.late for step in self.steps)):
            if policy is not None and policy.sink is not None:
                yield policy.sink
