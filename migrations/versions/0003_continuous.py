"""What running for a year takes: confirmed states, limits, waits, budgets, pauses, roll-ups, and who is at work."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)
OUTCOMES = ("proven", "violated", "blocked", "unavailable", "unproven")


def upgrade() -> None:
    _widen()
    _sum_up()
    _hold_back()
    _know_who()


def _widen() -> None:
    for name, kind in (
        ("tokens_per_day", sa.BigInteger),
        ("requests_per_day", sa.BigInteger),
        ("input_per_million", sa.Double),
        ("output_per_million", sa.Double),
        ("currency", sa.Text),
        ("status_url", sa.Text),
    ):
        op.add_column("routes", sa.Column(name, kind))
    for name in ("provider", "host", "credential"):
        op.add_column("cells", sa.Column(name, sa.Text, nullable=False, server_default=""))
    op.add_column("cells", sa.Column("max_requests", sa.Integer, nullable=False, server_default=sa.text("1")))
    op.add_column("cells", sa.Column("route_interval_s", sa.Double, nullable=False, server_default=sa.text("0")))
    op.add_column("schedule", sa.Column("quick", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column("schedule", sa.Column("blocked_run", sa.Integer, nullable=False, server_default=sa.text("0")))
    op.add_column("latest", sa.Column("confirmed", JSONB))
    op.add_column("latest", sa.Column("last_transition_at", MOMENT))
    for name in ("tokens_in", "tokens_out"):
        op.add_column("latest", sa.Column(name, sa.BigInteger, nullable=False, server_default=sa.text("0")))
    op.add_column("verdicts", sa.Column("tokens_estimated", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column("verdicts", sa.Column("version", sa.Text))
    op.add_column("transitions", sa.Column("announced", sa.Boolean, nullable=False, server_default=sa.false()))
    for name in ("from_status", "from_verdict"):
        op.alter_column("transitions", name, nullable=True)
    op.create_unique_constraint("transitions_to_verdict_kind_key", "transitions", ["to_verdict", "kind"])


def _sum_up() -> None:
    op.create_table(
        "hourly",
        sa.Column("cell_id", sa.BigInteger),
        sa.Column("hour", MOMENT),
        *(sa.Column(outcome, sa.Integer, nullable=False) for outcome in OUTCOMES),
        sa.Column("statuses", JSONB, nullable=False),
        sa.Column("requests", sa.Integer, nullable=False),
        sa.Column("tokens_in", sa.BigInteger, nullable=False),
        sa.Column("tokens_out", sa.BigInteger, nullable=False),
        sa.Column("first_token", sa.ARRAY(sa.Integer), nullable=False),
        sa.Column("duration", sa.ARRAY(sa.Integer), nullable=False),
        sa.PrimaryKeyConstraint("cell_id", "hour", name="hourly_pkey"),
    )
    op.create_index("hourly_hour_idx", "hourly", ["hour"])
    op.create_table(
        "hours",
        sa.Column("hour", MOMENT),
        sa.Column("rolled_at", MOMENT),
        sa.PrimaryKeyConstraint("hour", name="hours_pkey"),
    )


def _hold_back() -> None:
    op.create_table(
        "limits",
        sa.Column("location", sa.Text),
        sa.Column("scope", sa.Text),
        sa.Column("name", sa.Text),
        sa.Column("max_concurrency", sa.Integer),
        sa.Column("max_requests_per_minute", sa.Integer),
        sa.PrimaryKeyConstraint("location", "scope", "name", name="limits_pkey"),
    )
    op.create_table(
        "debits",
        sa.Column("lease_id", sa.Uuid),
        sa.Column("scope", sa.Text),
        sa.Column("location", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("requests", sa.Integer, nullable=False),
        sa.Column("running_until", MOMENT, nullable=False),
        sa.Column("settled_at", MOMENT),
        sa.PrimaryKeyConstraint("lease_id", "scope", name="debits_pkey"),
    )
    op.create_index("debits_location_running_until_idx", "debits", ["location", "running_until"])
    op.create_table(
        "waits",
        sa.Column("provider", sa.Text),
        sa.Column("host", sa.Text),
        sa.Column("credential", sa.Text),
        sa.Column("until", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("provider", "host", "credential", name="waits_pkey"),
    )
    op.create_table(
        "spends",
        sa.Column("route_id", sa.Text),
        sa.Column("day", sa.Date),
        sa.Column("tokens_in", sa.BigInteger, nullable=False),
        sa.Column("tokens_out", sa.BigInteger, nullable=False),
        sa.Column("requests", sa.BigInteger, nullable=False),
        sa.Column("estimated", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("route_id", "day", name="spends_pkey"),
    )
    op.create_table(
        "pauses",
        sa.Column("id", sa.Uuid),
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("since", MOMENT, nullable=False),
        sa.Column("until", MOMENT, nullable=False),
        sa.Column("stops", sa.Boolean, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("by", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pauses_pkey"),
    )
    op.create_index("pauses_until_idx", "pauses", ["until"])


def _know_who() -> None:
    op.create_table(
        "configurations",
        sa.Column("location", sa.Text),
        sa.Column("hash", sa.Text, nullable=False),
        sa.Column("loaded_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("location", name="configurations_pkey"),
    )
    op.create_table(
        "probers",
        sa.Column("id", sa.Uuid),
        sa.Column("location", sa.Text, nullable=False),
        sa.Column("probes", sa.Boolean, nullable=False),
        sa.Column("config_hash", sa.Text, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("started_at", MOMENT, nullable=False),
        sa.Column("seen_at", MOMENT, nullable=False),
        sa.Column("superseded", sa.Boolean, nullable=False),
        sa.Column("egress_up", sa.Boolean),
        sa.Column("spooled", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("id", name="probers_pkey"),
    )
