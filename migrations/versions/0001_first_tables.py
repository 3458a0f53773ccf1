"""The first tables: routes, cells, their schedule, their latest state, and the history of verdicts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)
OUTCOMES = ("proven", "violated", "blocked", "unavailable", "unproven")


def upgrade() -> None:
    op.create_table(
        "routes",
        sa.Column("id", sa.Text),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("provider", sa.Text, nullable=False),
        sa.Column("dialect", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("tags", sa.ARRAY(sa.Text), nullable=False),
        sa.PrimaryKeyConstraint("id", name="routes_pkey"),
    )
    op.create_table(
        "cells",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True)),
        sa.Column("route_id", sa.Text, nullable=False),
        sa.Column("contract", sa.Text, nullable=False),
        sa.Column("location", sa.Text, nullable=False),
        sa.Column("required", sa.Boolean, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("interval_s", sa.Double, nullable=False),
        sa.Column("fresh_for_s", sa.Double, nullable=False),
        sa.Column("expires_after_s", sa.Double, nullable=False),
        sa.Column("deadline_s", sa.Double, nullable=False),
        sa.Column("active", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("id", name="cells_pkey"),
        sa.UniqueConstraint("route_id", "contract", "location", name="cells_route_id_contract_location_key"),
        sa.ForeignKeyConstraint(["route_id"], ["routes.id"], name="cells_route_id_fkey"),
    )
    op.create_table(
        "schedule",
        sa.Column("cell_id", sa.BigInteger),
        sa.Column("grid_at", MOMENT, nullable=False),
        sa.Column("next_due_at", MOMENT, nullable=False),
        sa.Column("lease_id", sa.Uuid),
        sa.Column("leased_until", MOMENT),
        sa.PrimaryKeyConstraint("cell_id", name="schedule_pkey"),
        sa.ForeignKeyConstraint(["cell_id"], ["cells.id"], name="schedule_cell_id_fkey"),
        postgresql_with={"fillfactor": "50"},
    )
    op.create_table(
        "latest",
        sa.Column("cell_id", sa.BigInteger),
        sa.Column("standing", JSONB),
        sa.Column("standing_observed_at", MOMENT),
        sa.Column("state_since", MOMENT),
        sa.Column("last", JSONB),
        sa.Column("last_observed_at", MOMENT),
        sa.Column("last_proven_at", MOMENT),
        *(sa.Column(outcome, sa.BigInteger, nullable=False, server_default=sa.text("0")) for outcome in OUTCOMES),
        sa.PrimaryKeyConstraint("cell_id", name="latest_pkey"),
        sa.ForeignKeyConstraint(["cell_id"], ["cells.id"], name="latest_cell_id_fkey"),
    )
    op.create_table(
        "verdicts",
        sa.Column("id", sa.Uuid, nullable=False),
        sa.Column("cell_id", sa.BigInteger, nullable=False),
        sa.Column("route_id", sa.Text, nullable=False),
        sa.Column("contract", sa.Text, nullable=False),
        sa.Column("location", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("rule_id", sa.Text, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("quirks", sa.ARRAY(sa.Text), nullable=False),
        sa.Column("served_model", sa.Text),
        sa.Column("detail", sa.Text, nullable=False),
        sa.Column("requests", sa.Integer, nullable=False),
        sa.Column("retry_after_s", sa.Double),
        sa.Column("started_at", MOMENT, nullable=False),
        sa.Column("observed_at", MOMENT, nullable=False),
        sa.Column("duration_s", sa.Double, nullable=False),
        sa.Column("time_to_first_token_s", sa.Double),
        sa.Column("tokens_in", sa.BigInteger),
        sa.Column("tokens_out", sa.BigInteger),
        sa.Column("rungs", JSONB, nullable=False),
        sa.Column("facts", JSONB, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("ruleset", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("observed_at", "id", name="verdicts_pkey"),
        postgresql_partition_by="RANGE (observed_at)",
    )
    op.create_index("verdicts_cell_id_observed_at_idx", "verdicts", ["cell_id", sa.text("observed_at DESC")])
    op.execute("CREATE SCHEMA partitions")
