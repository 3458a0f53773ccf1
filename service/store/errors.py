"""What it looks like when the database can't be had or doesn't answer."""

from __future__ import annotations

from sqlalchemy.exc import SQLAlchemyError

DATABASE_ERRORS: tuple[type[Exception], ...] = (SQLAlchemyError, OSError)  # a TimeoutError is an OSError
