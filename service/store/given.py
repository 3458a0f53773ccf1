"""Rows handed over as one JSON array, so that many are written by one statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any
from uuid import UUID

from sqlalchemy import JSON, ColumnElement, TableValuedAlias, column, func, literal


def given(columns: Sequence[ColumnElement[Any]], rows: Sequence[Mapping[str, Any]]) -> TableValuedAlias:
    """These rows as a table with the names and types of `columns`."""
    typed = (column(one.name, one.type) for one in columns)
    plain = [{name: _plain(value) for name, value in row.items()} for row in rows]
    return (
        func.json_to_recordset(literal(plain, JSON)).table_valued(*typed, name="given").render_derived(with_types=True)
    )


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, date | UUID) else value
