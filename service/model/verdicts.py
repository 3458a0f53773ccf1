"""What a probe concluded, as it is stored and shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from service.model.words import Outcome, Status


@dataclass(frozen=True)
class Rung:
    """One exchange as it is stored and shown: redacted, bounded."""

    rung: str
    shape: str
    ended: str
    read: str
    status: int | None
    detail: str
    duration_s: float
    headers_s: float | None = None
    first_token_s: float | None = None


@dataclass(frozen=True)
class Verdict:
    """What one probe concluded. Every text in it has passed redaction."""

    id: UUID
    route_id: str
    contract: str
    location: str
    status: Status
    rule_id: str
    reason: str | None
    quirks: tuple[str, ...]
    served_model: str | None
    detail: str
    requests: int
    retry_after_s: float | None
    started_at: datetime
    observed_at: datetime
    duration_s: float
    time_to_first_token_s: float | None
    tokens_in: int | None
    tokens_out: int | None
    rungs: tuple[Rung, ...]
    facts: Mapping[str, Any]
    fingerprint: str
    ruleset: int
    tokens_estimated: bool = False  # the provider named none, or not all
    version: str | None = None  # of Routeproof

    @property
    def outcome(self) -> Outcome:
        return self.status.outcome
