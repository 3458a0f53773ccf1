"""What callers may ask: typed, bounded, and refused by name where it isn't known."""

from __future__ import annotations

import base64
import json
import re
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Request
from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from service.derive import Shown
from service.model import Outcome, PauseScope, Status
from service.web import problems
from service.web.problems import Problem
from service.web.select import Order

MAX_LIMIT = 500
MAX_PAUSE_S = 31 * 86400
_LARGEST_ID = 2**63 - 1


# One line, without characters that steer a terminal, reverse a text or can't be seen.
_LINE = r"^[^\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]*$"


_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


def _whole(text: object) -> object:
    """No bare number and no date alone, which would be taken for a time as well."""
    if not isinstance(text, str) or not _RFC3339.fullmatch(text):
        raise ValueError("must be a time with its zone, such as 2026-03-09T03:12:07Z")
    return text


def _in_bounds(moment: datetime) -> datetime:
    """Nothing was observed before 2000 or will be after 2999, and not every clock reaches farther."""
    if moment.year < 2000:
        return datetime(2000, 1, 1, tzinfo=UTC)
    return datetime(3000, 1, 1, tzinfo=UTC) if moment.year > 2999 else moment.astimezone(UTC)


Line = Annotated[str, Field(pattern=_LINE)]
Word = Annotated[Line, Field(min_length=1, max_length=100)]
Moment = Annotated[AwareDatetime, BeforeValidator(_whole), AfterValidator(_in_bounds)]
Kind = Literal["first", "regression", "recovery", "flapping", "broken", "settled", "rules", "informational"]


class Asked(BaseModel):
    """Query parameters or a body: what isn't known is an error."""

    model_config = ConfigDict(extra="forbid")


class Page(Asked):
    limit: int = Field(100, ge=1, le=MAX_LIMIT, description="items of a page at most")
    cursor: str | None = Field(None, max_length=2000, description="`next` of the page before, with the same filters")


class RouteQuery(Page):
    q: Line = Field("", max_length=100, description="a part of name, id or model, whatever its case")
    provider: Word | None = None
    outcome: list[Shown] = Field(
        [], max_length=10, description="one of these: the route's, or with contract or location that of such a cell"
    )
    tag: list[Word] = Field([], max_length=10, description="all of these")
    contract: Word | None = None
    location: Word | None = None
    order: Order = Field(Order.WORST, description="by `id` a walk over all pages misses nothing while states change")


class VerdictQuery(Page):
    route: Word | None = Field(None, description="the id of a route")
    provider: Word | None = None
    contract: Word | None = None
    location: Word | None = None
    outcome: Outcome | None = None
    status: Status | None = None
    since: Moment | None = Field(None, description="observed at that time or later")
    until: Moment | None = Field(None, description="observed before that time")


class TransitionQuery(Page):
    route: Word | None = Field(None, description="the id of a route")
    provider: Word | None = None
    contract: Word | None = None
    location: Word | None = None
    kind: list[Kind] = Field([], max_length=10, description="one of these")


class GateQuery(Asked):
    location: Word | None = Field(None, description="as proven from there; else from everywhere")
    unknown: Literal["allow", "deny"] = Field("deny", description="what to do while nothing is known to be broken")


class ProbeQuery(Asked):
    contract: Word | None = Field(None, description="only this contract; else all of the route")


class PauseQuery(Asked):
    ended: bool = Field(False, description="those that are over, the newest 100, instead of those that go on")


class NewPause(Asked):
    """What to pause, and for how long."""

    scope: PauseScope
    target: Word = Field(description="the id of a route, the name of a provider, or a tag")
    duration_s: float = Field(gt=0, le=MAX_PAUSE_S, allow_inf_nan=False)
    stops: bool = Field(False, description="whether nothing is probed meanwhile, so that proofs expire")
    reason: Line = Field("", max_length=300)
    by: Line = Field("", max_length=100, description="who wants it; default: the token's role")


def mistakes(error: ValueError) -> str:
    """What a model found wrong, in one line."""
    found = error.errors() if isinstance(error, ValidationError) else []
    return "; ".join(f"{'.'.join(map(str, one['loc']))}: {problems.plain(one['msg'])}" for one in found) or str(error)


def wrong(error: ValueError) -> set[str]:
    """The members that a model found wrong."""
    found = error.errors() if isinstance(error, ValidationError) else []
    return {str(one["loc"][0]) for one in found}


def only(*known: str) -> Any:
    """A dependency that refuses every query parameter but these."""

    def check(request: Request) -> None:
        unknown = [name for name in request.query_params if name not in known]
        if unknown:
            errors = [problems.error(f"query.{name}", "unknown parameter") for name in unknown]
            raise Problem(problems.BAD_REQUEST, "There is a parameter that this call doesn't take.", errors=errors)

    return check


# --- cursors -----------------------------------------------------------------------------------------------


def cursor(*key: object) -> str:
    """The place behind an item, for the next page. Opaque: it may change with a release."""
    given = [part.isoformat() if isinstance(part, datetime) else part for part in key]
    text = json.dumps(given, default=str, ensure_ascii=False)  # a name of 200 characters must fit into the parameter
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read(text: str, size: int) -> list[Any]:
    try:
        padded = text + "=" * (-len(text) % 4)
        key = json.loads(base64.b64decode(padded.encode(), altchars=b"-_", validate=True))
    except (ValueError, RecursionError):
        key = None
    if not isinstance(key, list) or len(key) != size:
        raise _not_ours()
    return key


def after_route(text: str, order: Order) -> tuple[int, str, str]:
    """The key of the last route of the page before."""
    match _read(text, 4):
        case [str(given), int(rank), str(name), str(id)] if given == order.value:
            return rank, name, id
    raise _not_ours()


def before_verdict(text: str) -> tuple[datetime, UUID]:
    at, id = _read(text, 2)
    try:
        return _in_bounds(_aware(at)), UUID(id)
    except (ValueError, TypeError, AttributeError):
        raise _not_ours() from None


def before_transition(text: str) -> tuple[datetime, int]:
    at, id = _read(text, 2)
    if type(id) is not int or not 0 <= id <= _LARGEST_ID:
        raise _not_ours()
    try:
        return _in_bounds(_aware(at)), id
    except (ValueError, TypeError):
        raise _not_ours() from None


def _aware(text: object) -> datetime:
    moment = datetime.fromisoformat(text) if isinstance(text, str) else None
    if moment is None or moment.tzinfo is None:
        raise ValueError("no time with its zone")
    return moment


def _not_ours() -> Problem:
    wrong = problems.error("query.cursor", "isn't a cursor of this list and order")
    return Problem(problems.BAD_REQUEST, "The cursor isn't one of this list.", errors=[wrong])
