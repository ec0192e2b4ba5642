"""A scenario: what is asked of a pipeline, and the machines it is to run on."""

from __future__ import annotations

from typing import Literal

from pydantic import ValidationInfo, field_validator

from penstock.capacity.units import ByteSize, Count, DiskSpeed, NetworkSpeed, RowRate, Share
from penstock.spec.fields import Change, Config, field, unfit
from penstock.spec.units import Duration

HOURS = 24
SOURCE = "source"
"""What stands for the source where steps are named."""
_NOTHING = Change.NOTHING


def _positive(value: Duration | None) -> Duration | None:
    if value is not None and value.millis <= 0:
        raise unfit("must be more than 0", "Write for example '1 minute'.")
    return value


def _some(value: ByteSize | None) -> ByteSize | None:
    if value is not None and value.bytes == 0:
        raise unfit("must be more than 0", "Write for example '40 bytes' or '2 KB'.")
    return value


class Load(Config):
    """What comes in: rows of a size, at one rate or at rates that change over a day."""

    rate: RowRate | None = field(None, doc="Rows that come in, such as `1,000,000/s`.", change=_NOTHING)
    hours: tuple[RowRate, ...] | None = field(
        None, doc="Instead of `rate`: the rate of each hour of a day, from midnight on.", change=_NOTHING
    )
    profile: str | None = field(
        None,
        doc="Instead of `rate`: a CSV file with the columns `time` (`HH:MM` or `HH:MM:SS`) and `rate` (rows a second); "
        "each rate holds until the next time. The path is relative to the scenario.",
        change=_NOTHING,
    )
    record_size: ByteSize = field(doc="Bytes of a row as the source gives it.", change=_NOTHING)

    @field_validator("record_size")
    @classmethod
    def _has_bytes(cls, value: ByteSize) -> ByteSize:
        _some(value)
        return value

    @field_validator("rate")
    @classmethod
    def _is_some(cls, value: RowRate | None) -> RowRate | None:
        if value is not None and value.per_second == 0:
            raise unfit("must be more than 0", "Write for example `1,000,000/s`.")
        return value

    @field_validator("hours")
    @classmethod
    def _is_a_day(cls, value: tuple[RowRate, ...] | None) -> tuple[RowRate, ...] | None:
        if value is not None and len(value) != HOURS:
            raise unfit(f"needs {HOURS} rates, one for each hour of a day, and has {len(value)}", "")
        if value is not None and not any(rate.per_second for rate in value):
            raise unfit("is 0 in every hour", "")
        return value


class Windows(Config):
    """Windows of event time."""

    size: Duration = field(doc="How long a window is.", change=_NOTHING)
    slide: Duration | None = field(
        None, doc="How far apart windows start, if they overlap. Default: `size`.", change=_NOTHING
    )

    @field_validator("size")
    @classmethod
    def _has_length(cls, value: Duration) -> Duration:
        _positive(value)
        return value

    @field_validator("slide")
    @classmethod
    def _is_not_longer(cls, value: Duration | None, info: ValidationInfo) -> Duration | None:
        size = info.data.get("size")
        if _positive(value) is not None and isinstance(size, Duration) and value is not None and value > size:
            reason = f"must not be longer than `size`: {value} is longer than {size}"
            raise unfit(reason, "Rows between two windows would be in none.")
        return value

    @property
    def every(self) -> Duration:
        """How often a window ends."""
        return self.slide or self.size

    @property
    def overlap(self) -> int:
        """In how many windows a row is."""
        return -(-self.size.millis // self.every.millis)


class StatefulStep(Config):
    """A step that keeps something for each key."""

    keys: Count = field(doc="Different keys at a time.", change=_NOTHING)
    state: ByteSize = field(doc="Bytes of state for each key, and for each window if there are any.", change=_NOTHING)
    windows: Windows | None = field(
        None, doc="The windows it keeps. Without them a key has one entry, and each row gives a row.", change=_NOTHING
    )
    emit: ByteSize = field(doc="Bytes of a row that it gives out.", change=_NOTHING)
    emits: Literal["close", "update"] = field(
        "close",
        doc="With `windows`: when a row leaves, at the end of its window or in each batch in which it has changed.",
        change=_NOTHING,
    )
    reads: str | tuple[str, ...] = field(
        SOURCE, doc="The stateful steps whose rows it gets, or `source`; one, or a list.", change=_NOTHING
    )
    rows: Share = field(Share(1.0), doc="The share of those rows that it gets, after filters.", change=_NOTHING)
    fan_out: int = field(1, ge=1, doc="For how many keys a row counts, such as cells of a map.", change=_NOTHING)
    row_size: ByteSize | None = field(
        None, doc="Bytes of such a row when it is shuffled. Default: as it was read.", change=_NOTHING
    )
    sinks: int = field(1, ge=0, doc="How many sinks store what it gives out.", change=_NOTHING)

    @property
    def overlap(self) -> int:
        """In how many windows a row is."""
        return 1 if self.windows is None else self.windows.overlap

    @property
    def entries(self) -> int:
        """How many entries its state has."""
        return self.keys.value * self.overlap

    @property
    def closes(self) -> Windows | None:
        """The windows at whose ends its rows leave, if they do then."""
        return self.windows if self.emits == "close" else None

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.reads,) if isinstance(self.reads, str) else self.reads

    @field_validator("keys")
    @classmethod
    def _has_keys(cls, value: Count) -> Count:
        if value.value == 0:
            raise unfit("must be more than 0", "A step without `by` has 1 key.")
        return value

    @field_validator("state", "row_size")
    @classmethod
    def _has_bytes(cls, value: ByteSize | None) -> ByteSize | None:
        return _some(value)


class Stored(Config):
    """Rows that are stored without having been kept by a step: of a pipeline without state, or beside it."""

    row_size: ByteSize = field(doc="Bytes of a row as it is stored.", change=_NOTHING)
    rows: Share = field(Share(1.0), doc="The share of the source's rows that each sink stores.", change=_NOTHING)
    sinks: int = field(1, ge=1, doc="How many sinks store them.", change=_NOTHING)


class Checkpoints(Config):
    """How state is made durable."""

    every: Duration = field(doc="How often. With Spark this is the time between two batches.", change=_NOTHING)
    mode: Literal["full", "changes"] = field(
        doc="`full`: all state each time. `changes`: what has changed since the last one, as Spark writes it with "
        "changelog checkpoints, which Penstock turns on.",
        change=_NOTHING,
    )
    replication: int = field(1, ge=1, doc="How many copies the store of the checkpoints keeps.", change=_NOTHING)

    @field_validator("every")
    @classmethod
    def _has_length(cls, value: Duration) -> Duration:
        _positive(value)
        return value


class Machines(Config):
    """The machines, which are all alike."""

    count: int | None = field(None, ge=1, doc="How many there are. Default: as many as it takes.", change=_NOTHING)
    network: NetworkSpeed = field(
        doc="The speed of a machine's card in each direction, in bits: `10 Gbit/s`.", change=_NOTHING
    )
    cores: int | None = field(None, ge=1, doc="Cores of a machine.", change=_NOTHING)
    rows_per_core: RowRate | None = field(
        None, doc="Rows that a core can process, as measured; without it, nothing is said of cores.", change=_NOTHING
    )
    emitted_rows_per_core: RowRate | None = field(
        None, doc="Rows of closed windows that a core can give out, as measured.", change=_NOTHING
    )
    memory: ByteSize | None = field(None, doc="Memory of a machine that executors may take.", change=_NOTHING)

    @field_validator("network")
    @classmethod
    def _has_speed(cls, value: NetworkSpeed) -> NetworkSpeed:
        if value.bits == 0:
            raise unfit("must be more than 0", "Write for example `10 Gbit/s`.")
        return value

    @field_validator("rows_per_core", "emitted_rows_per_core")
    @classmethod
    def _is_some(cls, value: RowRate | None) -> RowRate | None:
        if value is not None and value.per_second == 0:
            raise unfit("must be more than 0", "Write for example `50,000/s`.")
        return value


class Disks(Config):
    """The disks that hold state while it is worked on."""

    attached: Literal["local", "network"] = field(
        doc="`network`: what is read and written goes through the machine's card as well.", change=_NOTHING
    )
    read: DiskSpeed | None = field(None, doc="What a machine's disks can read, such as `500 MB/s`.", change=_NOTHING)
    write: DiskSpeed | None = field(None, doc="What a machine's disks can write.", change=_NOTHING)
    size: ByteSize | None = field(None, doc="Space for state on a machine.", change=_NOTHING)
    shuffle: bool = field(
        False, doc="Whether shuffled rows pass a disk on their way, as they do with Spark.", change=_NOTHING
    )

    @field_validator("read", "write")
    @classmethod
    def _has_speed(cls, value: DiskSpeed | None) -> DiskSpeed | None:
        if value is not None and value.bytes == 0:
            raise unfit("must be more than 0", "Write for example `500 MB/s`.")
        return value

    @field_validator("size")
    @classmethod
    def _has_space(cls, value: ByteSize | None) -> ByteSize | None:
        return _some(value)


class Executor(Config):
    """The memory of one executor. What is not given is Spark's default."""

    heap: ByteSize | None = field(None, doc="`spark.executor.memory`; or else `container`.", change=_NOTHING)
    container: ByteSize | None = field(
        None, doc="Memory of the whole container, from which the heap is computed.", change=_NOTHING
    )
    cutoff: Share | None = field(
        None,
        doc="With `container`: the share of it that is kept free of the heap, instead of `overhead`.",
        change=_NOTHING,
    )
    overhead: ByteSize | None = field(
        None, doc="`spark.executor.memoryOverhead`. Default: by factor and minimum.", change=_NOTHING
    )
    overhead_factor: float = field(
        0.1,
        gt=0,
        le=10,
        doc="`spark.executor.memoryOverheadFactor`; on Kubernetes in cluster mode Spark takes 0.4 for Python.",
        change=_NOTHING,
    )
    overhead_minimum: ByteSize = field(
        ByteSize(384 * 1024**2), doc="`spark.executor.minMemoryOverhead`.", change=_NOTHING
    )
    off_heap: ByteSize = field(ByteSize(0), doc="`spark.memory.offHeap.size`.", change=_NOTHING)
    pyspark: ByteSize = field(
        ByteSize(0), doc="`spark.executor.pyspark.memory`; with 0, Python takes from the overhead.", change=_NOTHING
    )
    fraction: Share = field(Share(0.6), doc="`spark.memory.fraction`.", change=_NOTHING)
    storage_fraction: Share = field(Share(0.5), doc="`spark.memory.storageFraction`.", change=_NOTHING)
    python_workers: int = field(0, ge=0, doc="Python workers at a time: one for each core.", change=_NOTHING)
    python_worker: ByteSize = field(ByteSize(0), doc="Memory of one Python worker, as measured.", change=_NOTHING)
    rocksdb: ByteSize | None = field(
        None,
        doc="`spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB`, with `boundedMemoryUsage` on. Without it "
        "nothing bounds what RocksDB takes.",
        change=_NOTHING,
    )
    native: ByteSize = field(
        ByteSize(0), doc="What else is outside of the heap: network buffers, classes, stacks.", change=_NOTHING
    )
    per_machine: int = field(1, ge=1, doc="Executors on a machine.", change=_NOTHING)

    @field_validator("container")
    @classmethod
    def _is_alone(cls, value: ByteSize | None, info: ValidationInfo) -> ByteSize | None:
        if value is not None and info.data.get("heap") is not None:
            raise unfit("is computed from `heap`", "Give one of `heap` and `container`.")
        return _some(value)

    @field_validator("heap")
    @classmethod
    def _has_bytes(cls, value: ByteSize | None) -> ByteSize | None:
        return _some(value)

    @field_validator("cutoff")
    @classmethod
    def _is_of_a_container(cls, value: Share | None, info: ValidationInfo) -> Share | None:
        if value is not None and info.data.get("heap") is not None:
            raise unfit("is a share of `container`, which is not given", "Give `container`, or `overhead`.")
        if value is not None and value.value >= 1:
            raise unfit("leaves nothing for the heap", "Write for example `25%`.")
        return value


class Goals(Config):
    """What has to be kept."""

    margin: Share | None = field(
        None, doc="The share of each limit that is left free, to catch up with. Default: nothing.", change=_NOTHING
    )
    lag: Duration | None = field(None, doc="How long a row may wait at most.", change=_NOTHING)
    catch_up: Duration | None = field(
        None, doc="How long it may take after an outage until nothing waits any more.", change=_NOTHING
    )

    @field_validator("lag", "catch_up")
    @classmethod
    def _has_length(cls, value: Duration | None) -> Duration | None:
        return _positive(value)

    @field_validator("margin")
    @classmethod
    def _leaves_something(cls, value: Share | None) -> Share | None:
        if value is not None and value.value >= 1:
            raise unfit("leaves nothing to work with", "Write for example `30%`.")
        return value


class Scenario(Config):
    """All that the arithmetic needs to know."""

    source: Load = field(doc="What comes in.", change=_NOTHING)
    steps: dict[str, StatefulStep] = field({}, doc="Steps that keep state, by name.", change=_NOTHING)
    stored: Stored | None = field(
        None, doc="Rows that are stored without state; required if there are no `steps`.", change=_NOTHING
    )
    checkpoints: Checkpoints | None = field(
        None, doc="How state is made durable; required with `steps`.", change=_NOTHING
    )
    machines: Machines = field(doc="What it runs on.", change=_NOTHING)
    disks: Disks | None = field(None, doc="Where state is worked on; required with `steps`.", change=_NOTHING)
    executor: Executor | None = field(None, doc="The memory of an executor.", change=_NOTHING)
    goals: Goals = field(Goals(), doc="What has to be kept.", change=_NOTHING)
    outage: Duration | None = field(
        None, doc="How long nothing is processed while rows go on coming, to see how it catches up.", change=_NOTHING
    )
    round_to: DiskSpeed | None = field(
        None,
        doc="Each flow of a machine is rounded to this before flows are added. Default: nothing is rounded.",
        change=_NOTHING,
    )

    @field_validator("outage")
    @classmethod
    def _has_length(cls, value: Duration | None) -> Duration | None:
        return _positive(value)

    @field_validator("round_to")
    @classmethod
    def _is_some(cls, value: DiskSpeed | None) -> DiskSpeed | None:
        if value is not None and value.bytes == 0:
            raise unfit("must be more than 0", "Write for example `1 MB/s`.")
        return value
