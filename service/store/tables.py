"""The tables. `schedule` stands apart from everything wide because it is written at every claim; `latest` is one
row a cell and what every page, scrape and gate reads; `verdicts` is history, append-only, one partition a day;
`transitions` are the moments at which a standing verdict changed, and outlive the verdicts that they name.

Durations are seconds. Times are `timestamptz` and come back in UTC. Words (status, outcome, reason) are text
without an enum, so that a new word needs no migration.
"""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

PARTITIONS = "partitions"
"""The schema of the daily partitions of `verdicts`; apart, so that Alembic doesn't take them for stray tables."""

metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
        "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
    }
)


class Moment(TypeDecorator[datetime]):
    """An aware time, in UTC whatever the server's time zone is; a naive one is refused."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is not None and value.tzinfo is None:
            raise ValueError("a time without time zone")
        return value

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return value.astimezone(UTC) if value is not None else None


routes = Table(
    "routes",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("provider", Text, nullable=False),
    Column("dialect", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("url", Text, nullable=False),
    Column("tags", ARRAY(Text), nullable=False),
)

cells = Table(
    "cells",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("route_id", Text, ForeignKey("routes.id"), nullable=False),
    Column("contract", Text, nullable=False),
    Column("location", Text, nullable=False),
    Column("required", Boolean, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("interval_s", Double, nullable=False),
    Column("fresh_for_s", Double, nullable=False),
    Column("expires_after_s", Double, nullable=False),
    Column("deadline_s", Double, nullable=False),
    Column("active", Boolean, nullable=False),
    UniqueConstraint("route_id", "contract", "location"),
)

schedule = Table(
    "schedule",
    metadata,
    Column("cell_id", BigInteger, ForeignKey("cells.id"), primary_key=True, autoincrement=False),
    Column("grid_at", Moment, nullable=False),  # the point of the cell's grid that next_due_at belongs to
    Column("next_due_at", Moment, nullable=False),
    Column("lease_id", Uuid),
    Column("leased_until", Moment),
    postgresql_with={"fillfactor": "50"},
)

latest = Table(
    "latest",
    metadata,
    Column("cell_id", BigInteger, ForeignKey("cells.id"), primary_key=True, autoincrement=False),
    Column("standing", JSONB(none_as_null=True)),
    Column("standing_observed_at", Moment),
    Column("state_since", Moment),
    Column("last", JSONB(none_as_null=True)),
    Column("last_observed_at", Moment),
    Column("last_proven_at", Moment),
    *(
        Column(outcome, BigInteger, nullable=False, server_default=text("0"))
        for outcome in ("proven", "violated", "blocked", "unavailable", "unproven")
    ),
)

verdicts = Table(
    "verdicts",
    metadata,
    Column("id", Uuid, nullable=False),
    Column("cell_id", BigInteger, nullable=False),  # no foreign key into or out of history
    Column("route_id", Text, nullable=False),
    Column("contract", Text, nullable=False),
    Column("location", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("rule_id", Text, nullable=False),
    Column("reason", Text),
    Column("quirks", ARRAY(Text), nullable=False),
    Column("served_model", Text),
    Column("detail", Text, nullable=False),
    Column("requests", Integer, nullable=False),
    Column("retry_after_s", Double),
    Column("started_at", Moment, nullable=False),
    Column("observed_at", Moment, nullable=False),
    Column("duration_s", Double, nullable=False),
    Column("time_to_first_token_s", Double),
    Column("tokens_in", BigInteger),
    Column("tokens_out", BigInteger),
    Column("rungs", JSONB, nullable=False),
    Column("facts", JSONB, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("ruleset", Integer, nullable=False),
    PrimaryKeyConstraint("observed_at", "id"),
    postgresql_partition_by="RANGE (observed_at)",
)
Index(None, verdicts.c.cell_id, verdicts.c.observed_at.desc())

transitions = Table(
    "transitions",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("cell_id", BigInteger, nullable=False),
    Column("at", Moment, nullable=False),
    Column("kind", Text, nullable=False),
    Column("from_status", Text, nullable=False),
    Column("from_reason", Text),
    Column("to_status", Text, nullable=False),
    Column("to_reason", Text),
    Column("from_verdict", Uuid, nullable=False),
    Column("to_verdict", Uuid, nullable=False),
    Column("changed", JSONB, nullable=False),
)
Index(None, transitions.c.cell_id, transitions.c.at.desc())
Index(None, transitions.c.at.desc())
