"""Lengths of time as people write them. Messages never repeat a value."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from service.config.mistakes import refuse

MAX_DURATION = timedelta(days=365)
MAX_MULTIPLE = 1000

_UNITS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_DURATION_PATTERN = r"^(?=.)(\d{1,9}d)?(\d{1,9}h)?(\d{1,9}m)?(\d{1,9}s)?(\d{1,9}ms)?$"
_DURATION = re.compile(_DURATION_PATTERN, re.ASCII)
_MULTIPLE_PATTERN = r"^\d{1,6}(\.\d{1,6})?x$"
_MULTIPLE = re.compile(_MULTIPLE_PATTERN, re.ASCII)


def parse_duration(value: object) -> timedelta:
    """`500ms`, `60s`, `5m`, `1h30m`, `2d`: whole numbers with units, largest first; more than 0, at most 365 days."""
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        refuse("must be a duration with its unit, such as 500ms, 60s, 5m, 1h30m or 2d")
    parts = (int(part[: -len(unit)]) * _UNITS[unit] for part, unit in zip(found.groups(), _UNITS, strict=True) if part)
    duration = timedelta(milliseconds=sum(parts))
    if not duration:
        refuse("must be longer than 0s")
    if duration > MAX_DURATION:
        refuse("must be at most 365d")
    return duration


def parse_span(value: object) -> float | timedelta:
    """`3x`: a multiple of the cell's own interval, at least 1; or a duration."""
    if not isinstance(value, str) or not (_MULTIPLE.fullmatch(value) or _DURATION.fullmatch(value)):
        refuse("must be a multiple of the interval, such as 3x, or a duration with its unit, such as 15m")
    if not value.endswith("x"):
        return parse_duration(value)
    multiple = float(value[:-1])
    if not 1 <= multiple <= MAX_MULTIPLE:
        refuse(f"must be between 1x and {MAX_MULTIPLE}x")
    return multiple


def show_duration(duration: timedelta) -> str:
    """The shortest form that `parse_duration` takes."""
    rest, text = round(duration / timedelta(milliseconds=1)), ""
    for unit, size in _UNITS.items():
        count, rest = divmod(rest, size)
        text += f"{count}{unit}" if count else ""
    return text or "0s"


def show_span(span: float | timedelta) -> str:
    return show_duration(span) if isinstance(span, timedelta) else f"{span:g}x"


Duration = Annotated[
    timedelta,
    PlainValidator(parse_duration),
    PlainSerializer(show_duration, return_type=str),
    WithJsonSchema({"type": "string", "pattern": _DURATION_PATTERN}),
]
Span = Annotated[
    float | timedelta,
    PlainValidator(parse_span),
    PlainSerializer(show_span, return_type=str),
    WithJsonSchema({"type": "string", "pattern": f"{_MULTIPLE_PATTERN}|{_DURATION_PATTERN}"}),
]
