"""Run by Alembic: one transaction for the whole upgrade, one upgrade at a time."""

from alembic import context
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from service.store.tables import metadata

UPGRADE_LOCK = 7_066_113_405  # any number, as long as it stays

if context.is_offline_mode():
    raise SystemExit("SQL scripts are not made: run the upgrade against the database.")

engine = create_engine(
    context.config.attributes["url"],
    poolclass=NullPool,
    connect_args={"prepare_threshold": None, "connect_timeout": 5},
)
with engine.begin() as connection:
    # Replicas start together; the revision is read only after the lock, so that the second finds the work done.
    connection.execute(text("SET LOCAL lock_timeout = '30s'"))
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": UPGRADE_LOCK})
    context.configure(connection=connection, target_metadata=metadata, compare_server_default=True)
    with context.begin_transaction():
        context.run_migrations()
