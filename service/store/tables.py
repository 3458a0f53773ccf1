"""The tables. `schedule` stands apart from everything wide because it is written at every claim; `latest` is one
row a cell and what every page, scrape and gate reads; `verdicts` is history, append-only, one partition a day;
`transitions` are the moments at which a state changed, and outlive the verdicts that they name; `hourly` sums verdicts
up and `daily` the hours of days that are over, and `hours` says which hours are done.

`limits` are what is configured, `debits` what each probe takes of them; `waits` are what providers asked for; `spends`
is what a route used up on a UTC day. `configurations` names the active one of each location, `probers` the processes.

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
    Date,
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
    false,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

PARTITIONS = "partitions"
"""The schema of the daily partitions of `verdicts`; apart, so that Alembic doesn't take them for stray tables."""

OUTCOMES = ("proven", "violated", "blocked", "unavailable", "unproven")

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
    Column("tokens_per_day", BigInteger),
    Column("requests_per_day", BigInteger),
    Column("input_per_million", Double),
    Column("output_per_million", Double),
    Column("currency", Text),
    Column("status_url", Text),
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
    Column("provider", Text, nullable=False, server_default=""),
    Column("host", Text, nullable=False, server_default=""),
    Column("credential", Text, nullable=False, server_default=""),
    Column("max_requests", Integer, nullable=False, server_default=text("1")),
    Column("route_interval_s", Double, nullable=False, server_default=text("0")),
    Column("rests_since", Moment),  # when it was taken out of the configuration; null while it is active
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
    Column("quick", Boolean, nullable=False, server_default=false()),  # asked ahead of the grid, to confirm
    Column("blocked_run", Integer, nullable=False, server_default=text("0")),  # verdicts in a row
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
    *(Column(outcome, BigInteger, nullable=False, server_default=text("0")) for outcome in OUTCOMES),
    Column("confirmed", JSONB(none_as_null=True)),
    Column("last_transition_at", Moment),
    Column("tokens_in", BigInteger, nullable=False, server_default=text("0")),
    Column("tokens_out", BigInteger, nullable=False, server_default=text("0")),
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
    Column("tokens_estimated", Boolean, nullable=False, server_default=false()),
    Column("version", Text),
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
    Column("from_status", Text),
    Column("from_reason", Text),
    Column("to_status", Text, nullable=False),
    Column("to_reason", Text),
    Column("from_verdict", Uuid),
    Column("to_verdict", Uuid, nullable=False),
    Column("changed", JSONB, nullable=False),
    Column("announced", Boolean, nullable=False, server_default=false()),
    UniqueConstraint("to_verdict", "kind"),
)
Index(None, transitions.c.cell_id, transitions.c.at.desc())
Index(None, transitions.c.at.desc())

hourly = Table(
    "hourly",
    metadata,
    Column("cell_id", BigInteger, primary_key=True, autoincrement=False),
    Column("hour", Moment, primary_key=True),
    *(Column(outcome, Integer, nullable=False) for outcome in OUTCOMES),
    Column("statuses", JSONB, nullable=False),  # how many verdicts of each
    Column("requests", Integer, nullable=False),
    Column("tokens_in", BigInteger, nullable=False),
    Column("tokens_out", BigInteger, nullable=False),
    Column("first_token", ARRAY(Integer), nullable=False),  # how many in each bucket, the last one without a bound
    Column("duration", ARRAY(Integer), nullable=False),
)
Index(None, hourly.c.hour)

hours = Table(
    "hours",
    metadata,
    Column("hour", Moment, primary_key=True),
    Column("rolled_at", Moment),  # null: to be summed up, or once more
    Column("added_at", Moment),  # the `rolled_at` with which it went into its day
)

daily = Table(
    "daily",
    metadata,
    Column("cell_id", BigInteger, primary_key=True, autoincrement=False),
    Column("day", Moment, primary_key=True),
    *(Column(outcome, Integer, nullable=False) for outcome in OUTCOMES),
    Column("first_token", ARRAY(Integer), nullable=False),
    Column("duration", ARRAY(Integer), nullable=False),
)
Index(None, daily.c.day)

limits = Table(
    "limits",
    metadata,
    Column("location", Text, primary_key=True),
    Column("scope", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("max_concurrency", Integer),
    Column("max_requests_per_minute", Integer),
)

debits = Table(
    "debits",
    metadata,
    Column("lease_id", Uuid, primary_key=True),
    Column("scope", Text, primary_key=True),
    Column("location", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("requests", Integer, nullable=False),  # the most that may be sent; when settled, how many were
    Column("running_until", Moment, nullable=False),
    Column("settled_at", Moment),
)
Index(None, debits.c.location, debits.c.running_until)

waits = Table(
    "waits",
    metadata,
    Column("provider", Text, primary_key=True),
    Column("host", Text, primary_key=True),
    Column("credential", Text, primary_key=True),
    Column("until", Moment, nullable=False),
)

spends = Table(
    "spends",
    metadata,
    Column("route_id", Text, primary_key=True),
    Column("day", Date, primary_key=True),
    Column("tokens_in", BigInteger, nullable=False),
    Column("tokens_out", BigInteger, nullable=False),
    Column("requests", BigInteger, nullable=False),
    Column("estimated", Boolean, nullable=False),
)

pauses = Table(
    "pauses",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("scope", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("since", Moment, nullable=False),
    Column("until", Moment, nullable=False),
    Column("stops", Boolean, nullable=False),
    Column("reason", Text, nullable=False),
    Column("by", Text, nullable=False),
)
Index(None, pauses.c.until)

configurations = Table(
    "configurations",
    metadata,
    Column("location", Text, primary_key=True),
    Column("hash", Text, nullable=False),
    Column("loaded_at", Moment, nullable=False),
)

probers = Table(
    "probers",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("location", Text, nullable=False),
    Column("probes", Boolean, nullable=False),
    Column("config_hash", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("started_at", Moment, nullable=False),
    Column("seen_at", Moment, nullable=False),
    Column("superseded", Boolean, nullable=False),
    Column("egress_up", Boolean),
    Column("spooled", Integer, nullable=False),
)
