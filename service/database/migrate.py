"""Alembic, driven from code: no ini file, no logging set up, the same driver as everything else."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import create_engine
from sqlalchemy.engine import URL
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

import service
from service.database import CONNECT_TIMEOUT_S, DatabaseUnavailable


def alembic_config(url: URL) -> Config:
    """The configuration that every Alembic command here takes; `migrations/env.py` reads the address from it."""
    package = Path(service.__file__).parent
    inside_wheel = package / "migrations"
    scripts = inside_wheel if inside_wheel.is_dir() else package.parent / "migrations"
    config = Config()
    config.set_main_option("script_location", str(scripts).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["url"] = url
    return config


def upgrade(url: URL) -> None:
    """Bring the tables to this release's revision; blocks. Tables that are one revision ahead are left alone,
    because a release runs on its own revision and on the next. Raises `DatabaseUnavailable`."""
    config = alembic_config(url)
    try:
        present, ours = _revision(url), ScriptDirectory.from_config(config).get_current_head() or "0"
        if present is not None and present.isdecimal() and int(present) > int(ours):
            if int(present) > int(ours) + 1:
                raise DatabaseUnavailable(
                    f"The tables are at revision {present}, and this release knows {ours} and the one after: "
                    "install a newer Routeproof."
                )
            return
        command.upgrade(config, "head")
    except OperationalError as error:
        raise DatabaseUnavailable(
            f"The tables can't be upgraded: {str(error.orig).splitlines()[0]}. "
            "If another upgrade is under way, wait for its end and start again."
        ) from error
    except CommandError as error:
        raise DatabaseUnavailable(f"The tables can't be upgraded: {error}. Install a newer Routeproof.") from error


def _revision(url: URL) -> str | None:
    engine = create_engine(
        url, poolclass=NullPool, connect_args={"prepare_threshold": None, "connect_timeout": CONNECT_TIMEOUT_S}
    )
    with engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()
