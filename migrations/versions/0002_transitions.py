"""Transitions: the moments at which a standing verdict changed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "transitions",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True)),
        sa.Column("cell_id", sa.BigInteger, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("from_status", sa.Text, nullable=False),
        sa.Column("from_reason", sa.Text),
        sa.Column("to_status", sa.Text, nullable=False),
        sa.Column("to_reason", sa.Text),
        sa.Column("from_verdict", sa.Uuid, nullable=False),
        sa.Column("to_verdict", sa.Uuid, nullable=False),
        sa.Column("changed", JSONB, nullable=False),
        sa.PrimaryKeyConstraint("id", name="transitions_pkey"),
    )
    op.create_index("transitions_cell_id_at_idx", "transitions", ["cell_id", sa.text("at DESC")])
    op.create_index("transitions_at_idx", "transitions", [sa.text("at DESC")])
