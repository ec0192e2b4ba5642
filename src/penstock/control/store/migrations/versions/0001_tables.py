"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("id", _BIG, autoincrement=True, nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("role", sa.String(length=10), nullable=False),
        sa.Column("action", sa.String(length=60), nullable=False),
        sa.Column("object", sa.Text(), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "notices",
        sa.Column("id", _BIG, autoincrement=True, nullable=False),
        sa.Column("target", sa.String(length=63), nullable=False),
        sa.Column("heard_from", sa.String(length=60), nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("deadline", _TIME, nullable=True),
        sa.Column("withdrawn_at", _TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notices")),
        sa.UniqueConstraint("target", "at", name=op.f("uq_notices_target_at")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "pipelines",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("desired", sa.String(length=10), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("observed_generation", sa.Integer(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("target", sa.String(length=63), nullable=True),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("state_reason", sa.Text(), nullable=False),
        sa.Column("state_since", _TIME, nullable=False),
        sa.Column("rows_in", _BIG, server_default="0", nullable=False),
        sa.Column("rows_out", _BIG, server_default="0", nullable=False),
        sa.Column("late", _BIG, server_default="0", nullable=False),
        sa.Column("dead", _BIG, server_default="0", nullable=False),
        sa.Column("filtered", _BIG, server_default="0", nullable=False),
        sa.Column("deleting_at", _TIME, nullable=True),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("updated_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_pipelines")),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(length=13), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("role", sa.String(length=10), nullable=False),
        sa.Column("scope", sa.JSON(), nullable=False),
        sa.Column("session", sa.Boolean(), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("expires_at", _TIME, nullable=True),
        sa.Column("revoked_at", _TIME, nullable=True),
        sa.Column("last_used_at", _TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("hash", name=op.f("uq_tokens_hash")),
    )
    op.create_table(
        "alerts",
        sa.Column("id", _BIG, autoincrement=True, nullable=False),
        sa.Column("pipeline", sa.String(length=63), nullable=False),
        sa.Column("rule", sa.String(length=100), nullable=False),
        sa.Column("severity", sa.String(length=10), nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("since", _TIME, nullable=False),
        sa.Column("fired_at", _TIME, nullable=True),
        sa.Column("resolved_at", _TIME, nullable=True),
        sa.Column("calm_since", _TIME, nullable=True),
        sa.Column("evidence", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["pipeline"], ["pipelines.name"], name=op.f("fk_alerts_pipeline"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alerts")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_alerts_pipeline_id"), "alerts", ["pipeline", "id"], unique=False)
    op.create_index(op.f("ix_alerts_state"), "alerts", ["state"], unique=False)
    op.create_table(
        "batches",
        sa.Column("id", _BIG, autoincrement=True, nullable=False),
        sa.Column("pipeline", sa.String(length=63), nullable=False),
        sa.Column("run", sa.String(length=13), nullable=False),
        sa.Column("batch", _BIG, nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("grain", sa.Integer(), nullable=False),
        sa.Column("span", sa.Integer(), nullable=False),
        sa.Column("duration_ms", _BIG, nullable=False),
        sa.Column("longest_ms", _BIG, nullable=False),
        sa.Column("rows_in", _BIG, nullable=False),
        sa.Column("rows_out", _BIG, nullable=False),
        sa.Column("late", _BIG, nullable=False),
        sa.Column("dead", _BIG, nullable=False),
        sa.Column("filtered", _BIG, nullable=False),
        sa.Column("watermark", _BIG, nullable=True),
        sa.Column("state_rows", _BIG, nullable=True),
        sa.Column("state_bytes", _BIG, nullable=True),
        sa.Column("checkpoint_bytes", _BIG, nullable=True),
        sa.Column("checkpoint_ms", _BIG, nullable=True),
        sa.Column("balanced", sa.Boolean(), nullable=False),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["pipeline"], ["pipelines.name"], name=op.f("fk_batches_pipeline"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_batches")),
        sa.UniqueConstraint("pipeline", "run", "batch", "grain", name=op.f("uq_batches_pipeline_run_batch_grain")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_batches_grain_at"), "batches", ["grain", "at"], unique=False)
    op.create_index(op.f("ix_batches_pipeline_at"), "batches", ["pipeline", "at"], unique=False)
    op.create_table(
        "events",
        sa.Column("id", _BIG, autoincrement=True, nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("pipeline", sa.String(length=63), nullable=True),
        sa.Column("run", sa.String(length=13), nullable=True),
        sa.Column("kind", sa.String(length=40), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["pipeline"], ["pipelines.name"], name=op.f("fk_events_pipeline"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_events_pipeline_id"), "events", ["pipeline", "id"], unique=False)
    op.create_table(
        "exceptions",
        sa.Column("id", _BIG, autoincrement=True, nullable=False),
        sa.Column("pipeline", sa.String(length=63), nullable=False),
        sa.Column("run", sa.String(length=13), nullable=True),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("code", sa.String(length=60), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("hint", sa.Text(), nullable=False),
        sa.Column("owner", sa.String(length=10), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["pipeline"], ["pipelines.name"], name=op.f("fk_exceptions_pipeline"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_exceptions")),
        sa.UniqueConstraint("pipeline", "run", "at", "code", name=op.f("uq_exceptions_pipeline_run_at_code")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_exceptions_pipeline_id"), "exceptions", ["pipeline", "id"], unique=False)
    op.create_table(
        "failovers",
        sa.Column("id", _BIG, autoincrement=True, nullable=False),
        sa.Column("pipeline", sa.String(length=63), nullable=False),
        sa.Column("from_target", sa.String(length=63), nullable=False),
        sa.Column("to_target", sa.String(length=63), nullable=False),
        sa.Column("noticed_at", _TIME, nullable=False),
        sa.Column("stopped_at", _TIME, nullable=True),
        sa.Column("started_at", _TIME, nullable=True),
        sa.Column("caught_up_at", _TIME, nullable=True),
        sa.ForeignKeyConstraint(
            ["pipeline"], ["pipelines.name"], name=op.f("fk_failovers_pipeline"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_failovers")),
        sa.UniqueConstraint("pipeline", "noticed_at", name=op.f("uq_failovers_pipeline_noticed_at")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "runs",
        sa.Column("sequence", _BIG, autoincrement=True, nullable=False),
        sa.Column("id", sa.String(length=13), nullable=False),
        sa.Column("pipeline", sa.String(length=63), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("target", sa.String(length=63), nullable=False),
        sa.Column("started_at", _TIME, nullable=False),
        sa.Column("take_over", sa.Boolean(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=True),
        sa.Column("process_started", sa.String(length=60), nullable=True),
        sa.Column("epoch", sa.Integer(), nullable=True),
        sa.Column("stop_asked_at", _TIME, nullable=True),
        sa.Column("kill_asked_at", _TIME, nullable=True),
        sa.Column("stop_reason", sa.Text(), nullable=True),
        sa.Column("lasted", sa.Boolean(), nullable=False),
        sa.Column("restarts_per_hour", sa.Integer(), nullable=True),
        sa.Column("ended_at", _TIME, nullable=True),
        sa.Column("outcome", sa.String(length=20), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("owner", sa.String(length=10), nullable=True),
        sa.Column("code", sa.String(length=60), nullable=True),
        sa.ForeignKeyConstraint(["pipeline"], ["pipelines.name"], name=op.f("fk_runs_pipeline"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("sequence", name=op.f("pk_runs")),
        sa.UniqueConstraint("id", name=op.f("uq_runs_id")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_runs_ended_at"), "runs", ["ended_at"], unique=False)
    op.create_index(op.f("ix_runs_pipeline_sequence"), "runs", ["pipeline", "sequence"], unique=False)
    op.create_index(op.f("ix_runs_started_at"), "runs", ["started_at"], unique=False)
    op.create_table(
        "savepoints",
        sa.Column("id", _BIG, autoincrement=True, nullable=False),
        sa.Column("pipeline", sa.String(length=63), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("bytes", _BIG, nullable=True),
        sa.Column("batch", _BIG, nullable=True),
        sa.Column("note", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["pipeline"], ["pipelines.name"], name=op.f("fk_savepoints_pipeline"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_savepoints")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_savepoints_pipeline_id"), "savepoints", ["pipeline", "id"], unique=False)
    op.create_table(
        "silences",
        sa.Column("id", _BIG, autoincrement=True, nullable=False),
        sa.Column("pipeline", sa.String(length=63), nullable=True),
        sa.Column("rule", sa.String(length=100), nullable=True),
        sa.Column("until", _TIME, nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["pipeline"], ["pipelines.name"], name=op.f("fk_silences_pipeline"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_silences")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "versions",
        sa.Column("pipeline", sa.String(length=63), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(length=4), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("checksum", sa.String(length=64), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["pipeline"], ["pipelines.name"], name=op.f("fk_versions_pipeline"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("pipeline", "number", name=op.f("pk_versions")),
    )
    op.create_table(
        "notifications",
        sa.Column("id", _BIG, autoincrement=True, nullable=False),
        sa.Column("alert", _BIG, nullable=False),
        sa.Column("channel", sa.String(length=63), nullable=False),
        sa.Column("transition", sa.String(length=10), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_at", _TIME, nullable=True),
        sa.Column("sent_at", _TIME, nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("content", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["alert"], ["alerts.id"], name=op.f("fk_notifications_alert"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notifications")),
        sa.UniqueConstraint("alert", "channel", "transition", name=op.f("uq_notifications_alert_channel_transition")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_notifications_next_at"), "notifications", ["next_at"], unique=False)
