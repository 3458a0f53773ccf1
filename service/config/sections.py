"""One section of the file against its model, with mistakes in our own words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from service.config.mistakes import Loc, Notes, did_you_mean
from service.config.schema import (
    BudgetSection,
    ContractSection,
    PriceSection,
    SecretSection,
    Section,
    TokenCapSection,
)

S = TypeVar("S", bound=Section)

_LITERAL_KEY = (
    "a literal key doesn't belong in this file: put it into an environment variable and name that with api_key_env,"
    " or into a file and name that with api_key_file"
)
_INNER: Mapping[str, type[Section]] = {
    "budget": BudgetSection,
    "contracts": ContractSection,
    "price": PriceSection,
    "secret_headers": SecretSection,
    "token_cap": TokenCapSection,
}
_WORDS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "missing": lambda _: "required",
    "string_type": lambda _: "must be text: numbers, true, false and null need quotes",
    "bool_type": lambda _: "must be true or false",
    "int_type": lambda _: "must be a whole number",
    "float_type": lambda _: "must be a number",
    "dict_type": lambda _: "must be a mapping",
    "model_type": lambda _: "must be a mapping",
    "list_type": lambda _: "must be a list",
    "too_short": lambda _: "must not be empty",
    "string_too_long": lambda context: f"must have at most {context['max_length']} characters",
    "greater_than_equal": lambda context: f"must be at least {context['ge']:g}",
    "less_than_equal": lambda context: f"must be at most {context['le']:g}",
    "routeproof": lambda context: str(context["text"]),
}


def validate(model: type[S], raw: object, loc: Loc, notes: Notes) -> tuple[S, set[str]]:
    """The section at `loc`, and the keys that can't be relied on: mistaken ones have their defaults in it.

    Every mistake of the section is noted. A section without content is taken for an empty one.
    """
    if raw is None:
        raw = {}
    if not isinstance(raw, dict):
        notes.add(loc, "must be a mapping")
        return model(), set(model.model_fields)
    bad = {key for key in model.REQUIRED if key not in raw}
    for key in sorted(bad):
        notes.add((*loc, key), "required")
    try:
        return model.model_validate(raw), bad
    except ValidationError as error:
        for details in error.errors(include_input=False, include_url=False):
            path = tuple(part for part in details["loc"] if part != "[key]")
            notes.add((*loc, *path), _message(model, path, details))
            bad.add(str(path[0]))
    return model.model_validate({key: value for key, value in raw.items() if key not in bad}), bad


def _message(model: type[Section], path: Loc, details: ErrorDetails) -> str:
    if details["type"] == "extra_forbidden":
        inner = model if len(path) == 1 else _INNER[str(path[0])]
        return unknown_key(str(path[-1]), inner.model_fields)
    return _WORDS[details["type"]](details.get("ctx", {}))


def unknown_key(key: str, known: Mapping[str, object] | frozenset[str]) -> str:
    """Why a key isn't taken, and what may have been meant."""
    if key == "api_key":
        return _LITERAL_KEY
    return f"unknown key{did_you_mean(key, known)}"
