"""Operations on the state of pipelines, and savepoints as they are found; no earlier Penstock has noted one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.drop_table("savepoints")
    op.create_table(
        "savepoints",
        sa.Column("id", _BIG, autoincrement=True, nullable=False),
        sa.Column("pipeline", sa.String(length=63), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("version", sa.Integer(), nullable=True),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("batch", _BIG, nullable=True),
        sa.Column("bytes", _BIG, nullable=True),
        sa.Column("state_bytes", _BIG, nullable=True),
        sa.Column("watermark", _BIG, nullable=True),
        sa.Column("partitions", sa.Integer(), nullable=True),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("automatic", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["pipeline"], ["pipelines.name"], name=op.f("fk_savepoints_pipeline"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_savepoints")),
        sa.UniqueConstraint("pipeline", "name", name=op.f("uq_savepoints_pipeline_name")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_savepoints_pipeline_id"), "savepoints", ["pipeline", "id"])
    op.create_table(
        "operations",
        sa.Column("sequence", _BIG, autoincrement=True, nullable=False),
        sa.Column("id", sa.String(length=13), nullable=False),
        sa.Column("pipeline", sa.String(length=63), nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("asked_at", _TIME, nullable=False),
        sa.Column("asked_by", sa.Text(), nullable=False),
        sa.Column("asked", sa.JSON(), nullable=False),
        sa.Column("back_to", sa.Integer(), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("begun_at", _TIME, nullable=True),
        sa.Column("run", sa.String(length=13), nullable=True),
        sa.Column("pid", sa.Integer(), nullable=True),
        sa.Column("process_started", sa.String(length=60), nullable=True),
        sa.Column("cancelled_by", sa.Text(), nullable=True),
        sa.Column("ended_at", _TIME, nullable=True),
        sa.Column("outcome", sa.String(length=20), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("owner", sa.String(length=10), nullable=True),
        sa.Column("code", sa.String(length=60), nullable=True),
        sa.Column("result", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["pipeline"], ["pipelines.name"], name=op.f("fk_operations_pipeline"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("sequence", name=op.f("pk_operations")),
        sa.UniqueConstraint("id", name=op.f("uq_operations_id")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_operations_pipeline_sequence"), "operations", ["pipeline", "sequence"])
    op.create_index(op.f("ix_operations_ended_at"), "operations", ["ended_at"])
