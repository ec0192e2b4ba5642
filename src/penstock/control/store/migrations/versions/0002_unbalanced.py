"""Unbalanced batches, and the newest of a pipeline, are found without reading the others."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_batches_pipeline_id", "batches", ["pipeline", "id"])
    op.create_index(
        "ix_batches_unbalanced",
        "batches",
        ["pipeline", "at", "balanced"],
        sqlite_where=sa.text("balanced IS 0"),
        postgresql_where=sa.text("balanced IS false"),
    )
