"""What the API says, as types. Times are RFC 3339 in UTC, lengths of time are seconds and end in `_s`."""

from __future__ import annotations

from datetime import UTC
from typing import Annotated, Any
from uuid import UUID

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field

from service.derive import Freshness, Shown
from service.gate import Reason
from service.model import Outcome, PauseScope
from service.web.xml_text import TEXT_LIMIT, visible


def _inert(value: Any) -> Any:
    """Nothing in it is invisible or endless, at any depth, whoever wrote it."""
    if isinstance(value, str):
        return visible(value, TEXT_LIMIT)
    if isinstance(value, dict):
        return {_inert(name): _inert(one) for name, one in value.items()}
    return [_inert(one) for one in value] if isinstance(value, list) else value


Time = Annotated[AwareDatetime, AfterValidator(lambda moment: moment.astimezone(UTC))]
Text = Annotated[str, AfterValidator(_inert), Field(json_schema_extra={"maxLength": TEXT_LIMIT})]
"""What others wrote: providers, and who set a pause."""
Data = Annotated[dict[str, Any], AfterValidator(_inert)]


class Said(BaseModel):
    """Part of an answer."""

    model_config = ConfigDict(frozen=True)


class Confirmed(Said):
    """The latched state that alerts rest on; verdicts alone move it. `proven` is null until something is confirmed."""

    proven: bool | None
    since: Time | None
    regressed: bool
    regressed_since: Time | None
    flapping: bool
    broken: bool


class Undecided(Said):
    """The newest verdict, where it decides nothing and is newer than the one that stands."""

    status: str
    reason: Text | None
    observed_at: Time


class Cell(Said):
    """One contract from one location. `outcome` is what may be said now: `unknown` once the verdict has expired, which
    is at `valid_until`. Everything from `status` to `tokens_out` is of the standing verdict, and null without one."""

    location: str
    required: bool
    outcome: Shown
    freshness: Freshness
    fresh_until: Time | None
    valid_until: Time | None
    since: Time | None = Field(description="since when the standing verdicts have this outcome")
    last_proven_at: Time | None
    next_due_at: Time | None
    interval_s: float
    paused: bool
    confirmed: Confirmed
    undecided: Undecided | None
    status: str | None
    reason: Text | None
    rule_id: str | None
    quirks: list[Text]
    served_model: Text | None
    detail: Text | None
    observed_at: Time | None
    requests: int | None
    duration_s: float | None
    time_to_first_token_s: float | None
    tokens_in: int | None
    tokens_out: int | None
    verdicts: dict[Outcome, int] = Field(description="verdicts by outcome since the cell exists")


class Contract(Said):
    """One contract over all its locations. A location where nothing is alive (`silent_in`) decides nothing while
    another one is."""

    contract: str
    required: bool
    outcome: Shown
    stale: bool
    proven_in: list[str]
    live_in: list[str]
    silent_in: list[str]
    cells: list[Cell]


class Budget(Said):
    """The most that may be spent in a UTC day; null: no limit."""

    tokens_per_day: int | None
    requests_per_day: int | None


class Price(Said):
    """What a million tokens cost."""

    input_per_million: float
    output_per_million: float
    currency: str


class Spend(Said):
    """What was spent on this UTC day. `estimated`: some of the tokens are our estimate. `cost` needs a price, and is in
    its currency."""

    tokens_in: int
    tokens_out: int
    requests: int
    estimated: bool
    cost: float | None


class Route(Said):
    """A route and all that is known of it now. Its outcome is the worst of its required contracts; `remedy` says what
    to do about it."""

    id: str
    name: str
    provider: str
    dialect: str
    model: str
    url: Text = Field(description="where it is asked, redacted")
    tags: list[str]
    status_url: str | None
    outcome: Shown
    stale: bool
    paused: bool
    regressed: bool
    flapping: bool
    remedy: str
    budget: Budget
    spent_today: Spend
    price: Price | None
    contracts: list[Contract]


class Routes(Said):
    """Some routes. `next` is the cursor of the following page, null on the last."""

    items: list[Route]
    total: int = Field(description="of all pages")
    next: str | None
    database_up: bool = Field(description="false: this is what was known last; it ages and expires meanwhile")


class Rung(Said):
    """One exchange of a probe, redacted and bounded."""

    rung: Text
    shape: Text
    ended: Text
    read: Text
    status: int | None
    detail: Text
    duration_s: float
    headers_s: float | None
    first_token_s: float | None


class Verdict(Said):
    """What one probe concluded. `facts` are what its rules read."""

    id: UUID
    route: str
    contract: str
    location: str
    observed_at: Time
    status: str
    outcome: Outcome
    reason: Text | None
    rule_id: str
    ruleset: int
    quirks: list[Text]
    served_model: Text | None
    detail: Text
    requests: int
    retry_after_s: float | None
    duration_s: float
    time_to_first_token_s: float | None
    tokens_in: int | None
    tokens_out: int | None
    fingerprint: str = Field(description="of the configuration that it was asked with")
    rungs: list[Rung]
    facts: Data


class Verdicts(Said):
    """Some verdicts, newest first."""

    items: list[Verdict]
    next: str | None


class Transition(Said):
    """One change of a cell's state. `changed` says what else is known to differ, each as `{"from": …, "to": …}`."""

    id: int
    at: Time
    route: str
    contract: str
    location: str
    kind: str
    from_status: str | None
    from_reason: Text | None
    to_status: str
    to_reason: Text | None
    changed: Data


class Transitions(Said):
    """Some changes, newest first."""

    items: list[Transition]
    next: str | None


class Ground(Said):
    """What one required contract says from one location."""

    contract: str
    location: str
    allows: bool
    reason: Reason
    outcome: Shown
    freshness: Freshness
    status: str | None
    fresh_until: Time | None


class Gate(Said):
    """Whether tool traffic may go to a route. An allowance holds no longer than `valid_until` without a new proof; null
    where it rests on none."""

    route: str
    allowed: bool
    reasons: list[Reason]
    valid_until: Time | None
    as_of: Time
    data_age_s: float
    database_up: bool
    grounds: list[Ground]


class AskedCell(Said):
    """What becomes of one cell: it is `due` and asked at once, a probe is `under_way`, a pause stops it (`paused`), it
    is `too_soon` after the last one, or a wait that the provider asked for holds it (`waiting`)."""

    contract: str
    location: str
    what: str = Field(json_schema_extra={"enum": ["due", "under_way", "paused", "too_soon", "waiting"]})
    wait_s: float | None


class Asked(Said):
    """What becomes of a wish to ask a route now. The verdicts come when the probes end."""

    route: str
    cells: list[AskedCell]


class Pause(Said):
    """Alerts about the routes of `target` are muted until a time; with `stops` they aren't probed either."""

    id: UUID
    scope: PauseScope
    target: str
    since: Time
    until: Time
    stops: bool
    reason: Text
    by: Text


class Pauses(Said):
    """Some pauses."""

    items: list[Pause]


class Fault(Said):
    """What is wrong with one part of the input."""

    where: str
    what: str


class Problem(BaseModel):
    """An error (RFC 9457). `type` is stable, and the path under which it is explained."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: str
    title: str
    status: int
    detail: str
    errors: list[Fault] = []
