"""What a component is: one class in one file with its fields, docs, example and implementation.

`pyspark` is imported inside methods only, so that every spec can be read, checked and documented without a JVM.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from penstock.access.limits import checked_path
from penstock.errors import PenstockError, Problem
from penstock.spec.fields import Change, Config, change_of
from penstock.spec.pipeline import LatePolicy

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.components.shared.checksum import Change as ContentChange
    from penstock.components.shared.checksum import Content
    from penstock.kernels.base import Kernel

ComponentKind = Literal["source", "format", "step", "sink"]

RAW = "_penstock_raw"
"""Column in which a source hands over the text of a row it could not read; null for good rows."""
ERROR = "_penstock_error"
"""Column in which a step tells why it could not use a row, whose text is in `RAW`; null for good rows."""
HEARTBEAT = "_penstock_heartbeat"
"""Column that marks a row which only carries time: it moves the watermark and goes no further."""
PLACE = "_penstock_place"
"""Column in which a source tells where a row was read, if the row itself does not."""


_DROP = LatePolicy()


@dataclass(frozen=True)
class Batch:
    """What makes a batch unique for a sink: the state it comes from and its number; the epoch fences older runs."""

    pipeline: str
    lineage: str
    epoch: int
    id: int


@dataclass(frozen=True)
class CheckContext:
    """What a component knows when what is written of it is checked: nothing of the machine or the network."""

    node: str


@dataclass(frozen=True)
class LookContext:
    """What a component may look at before anything is started, on the machine that will run it."""

    node: str
    folder: Path


@dataclass(frozen=True)
class Backlog:
    """What waits to be read, in the source's own unit: messages, rows, files."""

    amount: int
    unit: str

    def __str__(self) -> str:
        return f"{self.amount:,} {self.unit}"


def stream_name(*nodes: str) -> str:
    """A name for a stream that rows take this way; Spark takes letters, digits and underscores."""
    return "_VIA_".join(nodes).replace(".", "_DOT_")


@dataclass(frozen=True)
class ReadContext:
    spark: SparkSession
    node: str
    folder: Path
    spool: Path
    """A folder of the run's own where a source may keep rows it was handed in the process."""
    format: Format | None = None
    via: tuple[str, ...] = ()
    """The steps through which a further copy of the source is read; a query reads each copy once."""

    @property
    def stream(self) -> str:
        """The name under which Spark keeps the position in the source: unique in a query, even if a node is not."""
        return stream_name(self.node, *self.via)


@dataclass(frozen=True)
class StepContext:
    spark: SparkSession
    node: str
    folder: Path
    event_time: str | None = None
    """Name of the event time column of the first input that has one."""
    late: LatePolicy = _DROP
    """What is to happen with rows that come too late."""
    times: Mapping[str, str] = field(default_factory=dict)
    """Name of the event time column of each input that has one."""
    buckets: int = 16
    """Into how many buckets keys are divided."""


@dataclass(frozen=True)
class SinkContext:
    spark: SparkSession
    node: str
    folder: Path
    pipeline: str
    lineage: str
    epoch: int
    schema: Mapping[str, str]
    """Columns of the rows to store, with Spark's type names."""
    spool: Path | None = None
    """A folder that tasks and the driver share, for rows on their way; None: the driver's temporary folder."""
    refuse_overtaken: Callable[[], None] = lambda: None
    """Raises if a newer run has taken over the state of this one."""
    checksum: tuple[str, ...] = ()
    """The columns of which the ledger keeps checksums."""


class Component(Config):
    """Base of sources, formats, steps and sinks. The class docstring is the component's documentation."""

    kind: ClassVar[ComponentKind]
    name: ClassVar[str]
    example: ClassVar[str]
    """YAML of one source, step or sink that uses the component, as it stands in a pipeline file."""
    own_s3: ClassVar[bool] = False
    """Whether it reaches `s3a://` by a client of its own, so that Spark needs no jars for it."""

    def check(self, context: CheckContext) -> Iterator[Problem]:
        """Problems of what is written, found by reading it alone: no file, no server and no secret is looked at.

        A server asks this of files it was sent. Where the value of a field matters, the problem is told `at` that
        field: it is left out while the field holds a reference to a secret, whose value is not known here.
        """
        yield from ()

    def look(self, context: LookContext) -> Iterator[Problem]:
        """Problems of what it names, such as a path that does not exist. Asked where it runs, once `check` is content,
        and with the values of its secrets."""
        yield from ()


class Source(Component, ABC):
    kind: ClassVar[ComponentKind] = "source"
    takes_format: ClassVar[bool] = False
    takes_messages: ClassVar[bool] = False
    """Whether its rows are single messages, so that only formats with `decode` go with it."""
    bounded: ClassVar[bool] = False
    """Whether all it holds can be read at once, so that it can be the history of another source."""
    in_python: ClassVar[bool] = False
    """Whether rows travel to Python, whatever the format."""
    repeatable: ClassVar[bool] = False
    """Whether what was read can be read again from the beginning to the same position, as long as it is kept."""
    batch_limit: ClassVar[Literal["max_rows_per_batch", "max_files_per_batch"] | None] = None
    """The field that says how much one batch reads; a source without one cannot be throttled."""

    lists_files: ClassVar[bool] = False
    """Whether Spark lists the files it reads, so that each is checked before it is read."""
    reads_ranges: ClassVar[bool] = False
    """Whether the rows of several batches can be read as those of one: all that lies between two of its offsets."""

    @property
    def read_through(self) -> Source:
        """The source whose `batch_limit` counts: itself, unless it reads through another."""
        return self

    def limited_to(self, amount: int) -> Self:
        """The same with this much in one batch."""
        assert self.batch_limit is not None
        return self.model_copy(update={self.batch_limit: amount})

    @abstractmethod
    def read(self, context: ReadContext) -> DataFrame:
        """A named streaming frame of the source's columns, with `RAW` added where rows can be malformed."""

    def read_all(self, context: ReadContext) -> DataFrame:
        """What there is now, as a frame that is not streaming; for sources that are bounded."""
        raise NotImplementedError(f"{self.name} has no end")

    def written_since(self, time: dt.datetime | None) -> Self:
        """The same, of which `read_all` may leave out what was written before a time; None: leave nothing out."""
        return self

    def place(self) -> Column | None:
        """An expression over the frame that tells where a row was read, for dead letters."""
        return None

    def explain_malformed(self, context: ReadContext) -> Column | None:
        """An expression over the frame that tells why a row with `RAW` could not be read."""
        return None

    def backlog(self, context: ReadContext, progress: Mapping[str, object]) -> Backlog | None:
        """What waits to be read, if it can be told; `progress` is Spark's report of this source."""
        return None


class Format(Component, ABC):
    kind: ClassVar[ComponentKind] = "format"
    spark_format: ClassVar[str] = "binaryFile"
    """The reader of Spark for files; by default the one that gives their bytes, which `unpack` turns into rows."""
    malformed: ClassVar[bool] = False
    """Whether single rows can be malformed; such formats are read whole and checked against the schema."""
    files: ClassVar[bool] = True
    """Whether it can read files; then it has `reader_schema`."""
    messages: ClassVar[bool] = False
    """Whether it can also read single messages, of which a source has only the bytes; then it has `decode`."""
    in_python: ClassVar[bool] = False
    """Whether it is read by Python, to which rows then travel."""

    def reader_schema(self, context: ReadContext, path: str) -> str:
        """The schema of what Spark's reader gives, as Spark DDL, without `RAW`."""
        raise NotImplementedError(f"{self.name} does not read files")

    def reader_options(self) -> dict[str, str]:
        return {}

    def unpack(self, found: DataFrame, context: ReadContext, path: str) -> DataFrame:
        """The rows of what Spark's reader gives."""
        return found

    def row_names(self, context: ReadContext) -> list[str]:
        """The columns of a message."""
        raise NotImplementedError(f"{self.name} does not read messages")

    def decode(self, value: Column, context: ReadContext) -> Column:
        """The row of a message, from its bytes: a struct of its columns and `RAW`."""
        raise NotImplementedError(f"{self.name} does not read messages")

    def explain_malformed(self, raw: Column, context: ReadContext) -> Column | None:
        """Why a raw text could not be read, as an expression."""
        return None


@dataclass(frozen=True)
class KernelInput:
    """One input of a kernel, as it wants it."""

    rows: DataFrame
    """The columns the kernel reads, `penstock.kernels.base.TIME` among them."""
    keys: tuple[str, ...]
    """The columns by which rows meet in a bucket."""
    where: str | None = None
    """Which rows of the step's input are among them, as a condition; default: all."""


@dataclass(frozen=True)
class Carried:
    """A stateful step as the engine carries it: a kernel, what it reads, and what becomes of its rows."""

    kernel: Kernel
    inputs: tuple[KernelInput, ...]
    finish: Callable[[DataFrame], DataFrame] = lambda rows: rows
    """Stateless work on what the kernel gives, such as a filter on results."""
    event_time: str | None = None
    """The timestamp column of the result by which later steps tell time."""
    shift: int = 0
    """What is added to that column for it, in microseconds: a window's time is just before its end."""
    hold: int = 0
    """By how much rows may be older than the watermark when they leave, in microseconds."""
    changes: bool = False
    """Whether a later row may replace an earlier one."""
    timed: bool = True
    """Whether the kernel needs a watermark."""
    keys: tuple[str, ...] = ()
    """What state is kept by, in words for people; default: what the step says."""
    labels: Mapping[str, str | None] = field(default_factory=dict)
    """What columns of its state are called when they are shown; None for those that say nothing new."""


class Step(Component, ABC):
    kind: ClassVar[ComponentKind] = "step"
    inputs_expected: ClassVar[tuple[int, int]] = (1, 1)
    """The least and the largest number of inputs."""
    needs_event_time: ClassVar[bool] = False
    passes: ClassVar[Literal["all", "some", "other"]] = "other"
    """Whether each row of its inputs gives one row, or is dropped (the ledger counts those that are), or neither."""
    late_policies: ClassVar[tuple[str, ...]] = ()
    """What the step can do with rows that come too late: `drop`, `side`, `correct`."""

    @property
    def takes_replays(self) -> bool:
        """Whether rows that were late can be fed to it again, and correct what it has given out."""
        return False

    @abstractmethod
    def apply(self, inputs: Mapping[str, DataFrame], context: StepContext) -> DataFrame:
        """The rows of the step, from its inputs by name. Must not run any job."""

    def rules(self) -> Mapping[str, str]:
        """SQL conditions by name which every row must meet; those that do not are dead letters."""
        return {}

    def careful(self, inputs: Mapping[str, DataFrame], context: StepContext) -> DataFrame | None:
        """Like `apply`, for a step that runs Python: rows it fails on come with `RAW` and `ERROR`, and nothing else."""
        return None

    def outputs(self) -> Mapping[str, Step]:
        """Parts of its rows that can be read by themselves, as `step.output`."""
        return {}

    def further_inputs(self) -> tuple[str, ...]:
        """Sources and steps it reads beside those under `from`."""
        return ()

    def carried(self, inputs: Mapping[str, DataFrame], context: StepContext) -> Carried | None:
        """The kernel that computes the step over these inputs, if it has one; then `apply` is not asked."""
        return None

    def state_key(self) -> tuple[str, ...]:
        """The columns by which state is kept, if the step keeps any."""
        return ()

    def state_after(self, before: Self) -> tuple[Change, str] | None:
        """What becomes of the state that the step kept as it was before, in words; None if its fields tell that."""
        return None


class KernelStep(Step):
    """A step that keeps state: it always names a kernel, and the engine carries it."""

    @abstractmethod
    def carried(self, inputs: Mapping[str, DataFrame], context: StepContext) -> Carried:
        """The kernel for these inputs. Must not run any job."""

    def apply(self, inputs: Mapping[str, DataFrame], context: StepContext) -> DataFrame:
        raise NotImplementedError("a step with a kernel is carried by the engine")


@dataclass(frozen=True)
class Refused:
    """A row that a sink does not take, as JSON, and why."""

    row: str
    error: str


@dataclass(frozen=True)
class Noted:
    """How far the ledger of a pipeline says that a sink is."""

    batch: int
    """The last batch that the sink itself has noted."""
    place: str = ""
    """Tells a place from another, see `Sink.place`."""
    ends: Mapping[str, int] = field(default_factory=dict)
    """Where what was stored ends, by part of the sink, if it has parts that can lose their end."""


class SinkWriter(ABC):
    """An open sink. It applies each batch once: a batch it has applied before changes nothing."""

    node: str = ""
    retried: int = 0
    """How often it had to try again so far: a deadlock, a lost connection, a server that had too much to do."""
    noted: int | None = None
    """The last batch that it is known to hold, -1 for none; None if it is not known, or it keeps no such number."""
    ends: Mapping[str, int] = {}
    """See `Noted.ends`."""

    def last_batch(self) -> int | None:
        """The last batch that the sink says it has stored, -1 for none; None if it keeps no such number."""
        return None

    def expect(self, noted: Noted) -> None:
        """Raises SINK_BEHIND if the sink holds less than the ledger says. Called once, before anything is written."""
        found = self.last_batch()
        if found is not None:
            self.noted = noted.batch
            self.refuse_behind(found)
            self.noted = found

    def refuse_behind(self, found: int) -> None:
        """Raises SINK_BEHIND if the sink says that it holds less than it is known to have stored.

        To be asked in the transaction that stores a batch: a server may fail over to a replica in between.
        """
        if self.noted is not None and found < self.noted:
            raise is_behind(self.node, found, self.noted)

    @abstractmethod
    def write(self, batch: Batch, rows: DataFrame) -> bool:
        """Stores the rows all or nothing. False if this batch had been stored before and the rows were not read.

        Read the rows with one action: rows are counted as they pass, and a second pass would count them again.
        """

    lane: str = ""
    """Writers of one lane store one after the other; default: each has its own."""

    def as_table(self, rows: DataFrame) -> DataFrame | None:
        """The rows as `write_table` takes them; None for a writer that only takes frames. Must not run any job."""
        return None

    def write_table(self, batch: Batch, rows: pa.Table) -> bool:
        """Like `write`, for a batch whose rows are few: they are in this process, as `as_table` wanted them."""
        raise NotImplementedError("a writer that has `as_table` has this too")

    def refused(self, batch: Batch) -> Sequence[Refused]:
        """The rows of the batch last written that were left out; they become dead letters.

        The answer is the same after a crash: a batch that had been stored before has the same rows left out.
        """
        return ()

    measured_from: int | None = None
    """The first batch of which the ledger has a `Change`."""

    def changed(self, batch: Batch) -> ContentChange | None:
        """By how much the batch last written has changed what it holds; None if it does not compute it.

        Only asked of sinks with `replaces_rows`, where checksums are wanted. It sums up all columns, as they
        are stored. The answer is the same after a crash.
        """
        return None

    # --- going back to a savepoint ------------------------------------------------------------------------

    def position(self) -> dict[str, Any]:
        """What is stored now, as JSON values, small enough for a savepoint; asked for between two batches."""
        return {}

    def rewind(self, batch: int, position: Mapping[str, Any]) -> None:
        """Puts the sink back to what it held after `batch`, when `position` was what it said, or said a batch later.

        Later batches can then be stored again, with other rows. Once begun, it may be asked for again, also by another
        run after a crash; what is half done is finished then. Raises SINK_CANNOT_REWIND before anything is changed.
        """
        reason = "it has no way to take rows back"
        raise cannot_rewind(type(self).__name__.strip("_"), batch, reason, "Fork the savepoint, into another place.")

    def forget(self, batch: int) -> None:
        """Sets back only the number of the last batch, so that later ones are stored again; their rows stay as well.

        For those who take rows twice over no way back. Raises SINK_CANNOT_REWIND if the number cannot be told from
        the rows.
        """
        self.rewind(batch, {})

    def pin(self, name: str, position: Mapping[str, Any]) -> None:  # noqa: B027
        """Keeps what going back to `position` takes from being tidied up, until `name` is released."""

    def release(self, name: str) -> None:  # noqa: B027
        """Ends what `pin` began; a name that is not known is fine."""

    def close(self) -> None:  # noqa: B027
        """Gives back what the sink holds."""


def is_behind(node: str, found: int, noted: int, reason: str = "") -> PenstockError:
    """The engine adds what it knows of the batches that are missing."""
    holds = reason or ("it holds no batch" if found < 0 else f"its last batch is {found}")
    return PenstockError.of("SINK_BEHIND", node=node, position=found, holds=holds, noted=noted, missing="", way="")


def cannot_rewind(node: str, batch: int, reason: str, advice: str) -> PenstockError:
    return PenstockError.of("SINK_CANNOT_REWIND", node=node, batch=batch, reason=reason, advice=advice)


@dataclass(frozen=True)
class Part:
    """Batches after one, up to and with another."""

    after: int
    until: int
    position: Mapping[str, Any]
    """What the sink said that it held after the first."""


@dataclass(frozen=True)
class Times:
    """Times after one, up to and with another, in a column."""

    column: str
    after: Any
    until: Any
    """Both as the sink stores them."""


class Sink(Component, ABC):
    kind: ClassVar[ComponentKind] = "sink"
    guarantee: ClassVar[str] = "Not stated."
    """What holds for the rows of a batch when a run dies, in a sentence or two."""

    @property
    def accepts_updates(self) -> bool:
        """Whether a later row may replace an earlier one, so that results need not be final when written."""
        return False

    def check_columns(self, node: str, columns: Mapping[str, str]) -> Iterator[Problem]:
        """Problems with the rows it would get, by column name and Spark type."""
        yield from ()

    def place(self) -> str:
        """Tells the place it writes to from others; the same for a server at another address, such as a replica."""
        named = [name for name in type(self).model_fields if change_of(type(self), name) is Change.LOSES_STATE]
        values = self.model_dump(mode="json", include=set(named) - {"url"})
        if "url" in named:
            values["database"] = str(getattr(self, "url", "")).partition("?")[0].rpartition("/")[2]
        text = json.dumps([self.name, values], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    read_with_spark: ClassVar[bool] = False
    """Whether it takes Spark to look what is in it."""

    @property
    def largest_batch(self) -> int | None:
        """The most rows that it stores as one batch; None if there is no such number."""
        return None

    @property
    def replaces_rows(self) -> bool:
        """Whether it takes away what a later row replaces, so that it does not hold all that was written to it."""
        return self.accepts_updates

    def content(self, context: SinkContext, columns: Sequence[str]) -> Content | None:
        """What it holds now, with checksums over these columns; None if it cannot be read back.

        Raises NotSummed if it can, but says nothing about these columns or about all that was written.
        """
        return None

    # --- reading back what two versions of a pipeline store ------------------------------------------------

    def as_stored(self, rows: DataFrame, context: SinkContext) -> DataFrame:
        """Rows with their values as they would come back."""
        return rows

    def rows_between(self, context: SinkContext, columns: Sequence[str], part: Part) -> Iterable[Sequence[Any]] | None:
        """The rows that these batches have stored, as values of these columns; None if it cannot tell that apart."""
        return None

    def rows_within(
        self, context: SinkContext, columns: Sequence[str], times: Times | None
    ) -> Iterable[Sequence[Any]] | None:
        """The rows of a span of time, or all, as values of these columns; None if it cannot be read back."""
        return None

    @abstractmethod
    def open(self, context: SinkContext) -> SinkWriter:
        """Makes ready to write; refuses here when what is stored does not belong to this pipeline's state."""


def resolve_path(folder: Path, path: str) -> str:
    """An absolute path or URI: paths in a pipeline file are relative to the file's folder.

    Whatever is opened is resolved here first, as it is refused here if this process may not open it.
    """
    return checked_path(folder, path)
