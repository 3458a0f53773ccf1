"""Sums by the day, for long looks back, and since when a cell rests, so that it can be forgotten in the end."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)
OUTCOMES = ("proven", "violated", "blocked", "unavailable", "unproven")


def upgrade() -> None:
    # The days are summed up by the first process of this release, one by one: a year of hours is too much for here.
    op.create_table(
        "daily",
        sa.Column("cell_id", sa.BigInteger),
        sa.Column("day", MOMENT),
        *(sa.Column(outcome, sa.Integer, nullable=False) for outcome in OUTCOMES),
        sa.Column("first_token", sa.ARRAY(sa.Integer), nullable=False),
        sa.Column("duration", sa.ARRAY(sa.Integer), nullable=False),
        sa.PrimaryKeyConstraint("cell_id", "day", name="daily_pkey"),
    )
    op.create_index("daily_day_idx", "daily", ["day"])
    op.add_column("hours", sa.Column("added_at", MOMENT))
    op.add_column("cells", sa.Column("rests_since", MOMENT))
