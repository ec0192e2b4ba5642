"""The tables of the server. Migrations make them; a test holds that both say the same."""

from __future__ import annotations

import datetime as dt
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)
from sqlalchemy.schema import SchemaItem


class UtcTime(TypeDecorator[dt.datetime]):
    """A moment: refused without a zone, stored in UTC, read back in UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: dt.datetime | None, dialect: Dialect) -> dt.datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a time without a zone")
        value = value.astimezone(dt.UTC)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: dt.datetime | None, dialect: Dialect) -> dt.datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value.astimezone(dt.UTC)


Big = BigInteger().with_variant(Integer, "sqlite")
"""Numbers that may outgrow 32 bits; SQLite's integers do not care, but only its INTEGER counts up by itself."""
COUNTS = ("rows_in", "rows_out", "late", "dead", "filtered")
"""What is counted of every batch; the sums are kept with the pipeline, for as long as it is there."""
NAME = String(63)
RUN = String(13)
metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _counted(name: str, *parts: SchemaItem) -> Table:
    """A table whose rows are numbered in the order they came; a number is never given twice."""
    number = Column("id", Big, primary_key=True, autoincrement=True)
    return Table(name, metadata, number, *parts, sqlite_autoincrement=True)


def _of_pipeline() -> Column[Any]:
    """Rows that go with their pipeline."""
    return Column("pipeline", NAME, ForeignKey("pipelines.name", ondelete="CASCADE"), nullable=False)


pipelines = Table(
    "pipelines",
    metadata,
    Column("name", NAME, primary_key=True),
    Column("labels", JSON, nullable=False),
    Column("scope", JSON),
    Column("desired", String(10), nullable=False),
    Column("generation", Integer, nullable=False),
    Column("observed_generation", Integer, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("version", Integer, nullable=False),
    Column("target", NAME),
    Column("state", String(20), nullable=False),
    Column("state_reason", Text, nullable=False),
    Column("state_since", UtcTime, nullable=False),
    *(Column(name, Big, nullable=False, server_default="0") for name in COUNTS),
    Column("deleting_at", UtcTime),
    Column("created_at", UtcTime, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
)

versions = Table(
    "versions",
    metadata,
    Column("pipeline", NAME, ForeignKey("pipelines.name", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("kind", String(4), nullable=False),
    Column("text", Text, nullable=False),
    Column("checksum", String(64), nullable=False),
    Column("document", JSON, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("created_by", Text, nullable=False),
)

runs = Table(
    "runs",
    metadata,
    Column("sequence", Big, primary_key=True, autoincrement=True),
    Column("id", RUN, nullable=False, unique=True),
    _of_pipeline(),
    Column("version", Integer, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("target", NAME, nullable=False),
    Column("started_at", UtcTime, nullable=False),
    Column("take_over", Boolean, nullable=False),
    Column("pid", Integer),
    Column("process_started", String(60)),
    Column("epoch", Integer),
    Column("stop_asked_at", UtcTime),
    Column("kill_asked_at", UtcTime),
    Column("stop_reason", Text),
    Column("lasted", Boolean, nullable=False),
    Column("restarts_per_hour", Integer),
    Column("ended_at", UtcTime),
    Column("outcome", String(20)),
    Column("exit_code", Integer),
    Column("reason", Text),
    Column("owner", String(10)),
    Column("code", String(60)),
    Index(None, "pipeline", "sequence"),
    Index(None, "started_at"),
    Index(None, "ended_at"),
    sqlite_autoincrement=True,
)

batches = _counted(
    "batches",
    _of_pipeline(),
    Column("run", RUN, nullable=False),
    Column("batch", Big, nullable=False),
    Column("at", UtcTime, nullable=False),
    Column("grain", Integer, nullable=False),
    Column("span", Integer, nullable=False),
    Column("duration_ms", Big, nullable=False),
    Column("longest_ms", Big, nullable=False),
    *(Column(name, Big, nullable=False) for name in COUNTS),
    Column("watermark", Big),
    Column("state_rows", Big),
    Column("state_bytes", Big),
    Column("checkpoint_bytes", Big),
    Column("checkpoint_ms", Big),
    Column("balanced", Boolean, nullable=False),
    Column("details", JSON, nullable=False),
    UniqueConstraint("pipeline", "run", "batch", "grain"),
    Index(None, "pipeline", "at"),
    Index(None, "pipeline", "id"),
    Index(None, "grain", "at"),
)
# Hardly any batch is unbalanced, and how many are is asked again and again.
_unbalanced = batches.c.balanced.is_(False)
Index(
    "ix_batches_unbalanced",
    batches.c.pipeline,
    batches.c.at,
    batches.c.balanced,
    sqlite_where=_unbalanced,
    postgresql_where=_unbalanced,
)

exceptions = _counted(
    "exceptions",
    _of_pipeline(),
    Column("run", RUN),
    Column("at", UtcTime, nullable=False),
    Column("code", String(60), nullable=False),
    Column("message", Text, nullable=False),
    Column("hint", Text, nullable=False),
    Column("owner", String(10), nullable=False),
    Column("detail", JSON, nullable=False),
    UniqueConstraint("pipeline", "run", "at", "code"),
    Index(None, "pipeline", "id"),
)

savepoints = _counted(
    "savepoints",
    _of_pipeline(),
    Column("name", String(100), nullable=False),
    Column("version", Integer),
    Column("at", UtcTime, nullable=False),
    Column("batch", Big),
    Column("bytes", Big),
    Column("state_bytes", Big),
    Column("watermark", Big),
    Column("partitions", Integer),
    Column("note", Text, nullable=False),
    Column("automatic", Boolean, nullable=False),
    UniqueConstraint("pipeline", "name"),
    Index(None, "pipeline", "id"),
)

operations = Table(
    "operations",
    metadata,
    Column("sequence", Big, primary_key=True, autoincrement=True),
    Column("id", RUN, nullable=False, unique=True),
    _of_pipeline(),
    Column("kind", String(20), nullable=False),
    Column("asked_at", UtcTime, nullable=False),
    Column("asked_by", Text, nullable=False),
    Column("asked", JSON, nullable=False),
    Column("back_to", Integer),
    Column("attempts", Integer, nullable=False),
    Column("begun_at", UtcTime),
    Column("run", RUN),
    Column("pid", Integer),
    Column("process_started", String(60)),
    Column("cancelled_by", Text),
    Column("ended_at", UtcTime),
    Column("outcome", String(20)),
    Column("reason", Text),
    Column("owner", String(10)),
    Column("code", String(60)),
    Column("result", JSON, nullable=False),
    Index(None, "pipeline", "sequence"),
    Index(None, "ended_at"),
    sqlite_autoincrement=True,
)

events = _counted(
    "events",
    Column("at", UtcTime, nullable=False),
    Column("pipeline", NAME, ForeignKey("pipelines.name", ondelete="CASCADE")),
    Column("run", RUN),
    Column("kind", String(40), nullable=False),
    Column("text", Text, nullable=False),
    Column("data", JSON, nullable=False),
    Index(None, "pipeline", "id"),
)

alerts = _counted(
    "alerts",
    _of_pipeline(),
    Column("rule", String(100), nullable=False),
    Column("severity", String(10), nullable=False),
    Column("state", String(10), nullable=False),
    Column("since", UtcTime, nullable=False),
    Column("fired_at", UtcTime),
    Column("resolved_at", UtcTime),
    Column("calm_since", UtcTime),
    Column("evidence", Text, nullable=False),
    Index(None, "pipeline", "id"),
    Index(None, "state"),
)

silences = _counted(
    "silences",
    Column("pipeline", NAME, ForeignKey("pipelines.name", ondelete="CASCADE")),
    Column("rule", String(100)),
    Column("until", UtcTime, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("why", Text, nullable=False),
)

notifications = _counted(
    "notifications",
    Column("alert", Big, ForeignKey("alerts.id", ondelete="CASCADE"), nullable=False),
    Column("channel", NAME, nullable=False),
    Column("transition", String(10), nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("next_at", UtcTime),
    Column("sent_at", UtcTime),
    Column("last_error", Text),
    Column("content", JSON, nullable=False),
    UniqueConstraint("alert", "channel", "transition"),
    Index(None, "next_at"),
)

notices = _counted(
    "notices",
    Column("target", NAME, nullable=False),
    Column("heard_from", String(60), nullable=False),
    Column("at", UtcTime, nullable=False),
    Column("deadline", UtcTime),
    Column("withdrawn_at", UtcTime),
    UniqueConstraint("target", "at"),
)

failovers = _counted(
    "failovers",
    _of_pipeline(),
    Column("from_target", NAME, nullable=False),
    Column("to_target", NAME, nullable=False),
    Column("noticed_at", UtcTime, nullable=False),
    Column("stopped_at", UtcTime),
    Column("started_at", UtcTime),
    Column("caught_up_at", UtcTime),
    UniqueConstraint("pipeline", "noticed_at"),
)

audit = _counted(
    "audit",
    Column("at", UtcTime, nullable=False),
    Column("who", Text, nullable=False),
    Column("role", String(10), nullable=False),
    Column("action", String(60), nullable=False),
    Column("object", Text, nullable=False),
    Column("detail", JSON, nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", String(13), primary_key=True),
    Column("name", Text, nullable=False),
    Column("hash", String(64), nullable=False, unique=True),
    Column("role", String(10), nullable=False),
    Column("scope", JSON, nullable=False),
    Column("groups", JSON),
    Column("session", Boolean, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("expires_at", UtcTime),
    Column("revoked_at", UtcTime),
    Column("last_used_at", UtcTime),
)
