"""Between the nouns and what is stored of them. A field that a newer release added is ignored on reading."""

from __future__ import annotations

import json
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from service.model import (
    Mark,
    Outcome,
    Rung,
    Standing,
    StoredVerdict,
    Verdict,
)

UNSTORABLE = "This verdict's details could not be stored and were left out."

_STANDING = tuple(field.name for field in fields(Standing))
_RUNG = frozenset(field.name for field in fields(Rung))


def verdict_values(verdict: Verdict, cell_id: int) -> dict[str, Any]:
    """One row of `verdicts`."""
    return {
        **{name: getattr(verdict, name) for name in _STANDING},
        "outcome": verdict.outcome.value,
        "status": verdict.status.value,
        "quirks": list(verdict.quirks),
        "cell_id": cell_id,
        "route_id": verdict.route_id,
        "contract": verdict.contract,
        "location": verdict.location,
        "started_at": verdict.started_at,
        "rungs": [asdict(rung) for rung in verdict.rungs],
        "facts": dict(verdict.facts),
        "ruleset": verdict.ruleset,
        "tokens_estimated": verdict.tokens_estimated,
        "version": verdict.version,
    }


def mark_of(verdict: Verdict) -> Mark:
    """A verdict as the confirmed state counts it."""
    return Mark(
        id=verdict.id,
        status=verdict.status.value,
        outcome=verdict.outcome,
        reason=verdict.reason,
        observed_at=verdict.observed_at,
        served_model=verdict.served_model,
        fingerprint=verdict.fingerprint,
        ruleset=verdict.ruleset,
        version=verdict.version,
    )


def without_details(verdict: Verdict) -> Verdict:
    """The verdict without anything that may have kept it from being stored: its conclusion and its times."""
    return replace(
        verdict,
        detail=UNSTORABLE,
        reason=None,
        quirks=(),
        served_model=None,
        retry_after_s=None,
        time_to_first_token_s=None,
        tokens_in=None,
        tokens_out=None,
        rungs=(),
        facts={},
    )


def standing_values(verdict: Verdict) -> dict[str, Any]:
    """A verdict as `latest` keeps it, in JSON."""
    values = {name: getattr(verdict, name) for name in _STANDING}
    values |= {"id": str(verdict.id), "observed_at": verdict.observed_at.astimezone(UTC).isoformat()}
    return values | {"ruleset": verdict.ruleset}


def standing_of(text: str | None) -> Standing | None:
    if text is None:
        return None
    values = json.loads(text)
    known = {name: values[name] for name in _STANDING}
    known["id"] = UUID(values["id"])
    known["observed_at"] = datetime.fromisoformat(values["observed_at"])
    known["outcome"] = Outcome(values["outcome"])
    known["quirks"] = tuple(values["quirks"])
    return Standing(**known)


def stored_verdict(row: Row[Any]) -> StoredVerdict:
    values = dict(row._mapping)
    known = {name: values[name] for name in _STANDING}
    known |= {"outcome": Outcome(values["outcome"]), "quirks": tuple(values["quirks"])}
    return StoredVerdict(
        standing=Standing(**known),
        contract=values["contract"],
        location=values["location"],
        rungs=tuple(Rung(**{name: part for name, part in rung.items() if name in _RUNG}) for rung in values["rungs"]),
        facts=values["facts"],
        ruleset=values["ruleset"],
        route_id=values["route_id"],
    )
