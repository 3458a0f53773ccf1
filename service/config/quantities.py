"""Amounts as people write them: whole numbers, with a unit behind large ones. Messages never repeat a value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import PlainValidator, WithJsonSchema

from service.config.mistakes import refuse

MAX_COUNT = 1_000_000_000
MIN_SIZE, MAX_SIZE = 10**6, 10**18

_MULTIPLES = {"": 1, "k": 1000, "M": 1_000_000}
_BYTES = {"": 1} | {
    f"{prefix}{suffix}": base**power
    for power, prefix in enumerate("KMGT", start=1)
    for suffix, base in (("B", 1000), ("iB", 1024))
}


def parse_count(value: object) -> int:
    """`400`, `200k`, `2M`: at least 1, at most 1000M."""
    count = _parse(value, _MULTIPLES, "must be a whole number, such as 400, 200k or 2M")
    if not 1 <= count <= MAX_COUNT:
        refuse(f"must be between 1 and {MAX_COUNT // 1_000_000}M")
    return count


def parse_size(value: object) -> int:
    """Bytes: `20GB` (in steps of 1000), `20GiB` (of 1024) or a bare number; at least 1MB, at most 1000000TB."""
    size = _parse(value, _BYTES, "must be a number of bytes or a size with its unit, such as 500MB, 20GB or 1TiB")
    if not MIN_SIZE <= size <= MAX_SIZE:
        refuse(f"must be between 1MB and {MAX_SIZE // 10**12}TB")
    return size


def _parse(value: object, units: Mapping[str, int], message: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    found = re.fullmatch(_pattern(units), value, re.ASCII) if isinstance(value, str) else None
    if found is None:
        refuse(message)
    return int(found[1]) * units[found[2] or ""]


def _pattern(units: Mapping[str, int]) -> str:
    return rf"^(\d{{1,18}})({'|'.join(filter(None, units))})?$"


def _schema(units: Mapping[str, int], minimum: int) -> WithJsonSchema:
    return WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": minimum}, {"type": "string", "pattern": _pattern(units)}]}
    )


Count = Annotated[int, PlainValidator(parse_count), _schema(_MULTIPLES, 1)]
Size = Annotated[int, PlainValidator(parse_size), _schema(_BYTES, MIN_SIZE)]
