"""Pipelines know the limit of the token that made them, and sessions the groups of the person."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("pipelines", sa.Column("scope", sa.JSON()))
    op.add_column("tokens", sa.Column("groups", sa.JSON()))
