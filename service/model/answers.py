"""What came of one request, as facts."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from service.model.asking import Ask, Replay

SAID = {"said": True}
"""Marks a field that holds words of a provider: redacted before it is stored. Unmarked texts are words of ours."""


class End(StrEnum):
    """The one way in which an exchange ended, on the wire."""

    NO_ANSWER = "no_answer"  # no HTTP answer at all; `fault` says why
    COMPLETE = "complete"  # the body ended as HTTP says it should
    ENOUGH = "enough"  # we stopped reading: the answer had announced its end
    CLOSED = "closed"  # the connection was closed before the body was whole
    RESET = "reset"  # the connection broke after the headers
    DEADLINE = "deadline"
    CAP = "cap"  # our own cap on bytes
    CANCELLED = "cancelled"


class Body(StrEnum):
    """What the body turned out to be, by content."""

    NONE = "none"  # there was nothing in it
    EVENTS = "events"
    JSON = "json"
    HTML = "html"
    TEXT = "text"
    UNREADABLE = "unreadable"  # its content encoding lied or isn't known


class Refused(StrEnum):
    """Why a request was refused, where structured evidence or a narrow phrase settles it."""

    CREDENTIAL = "credential"
    CREDIT = "credit"
    NO_CHANNEL = "no_channel"
    RATE = "rate"
    OVERLOAD = "overload"
    MODEL = "model"
    PLACE = "place"
    PATH = "path"
    FILTER = "filter"
    TOKEN_CAP = "token_cap"
    BROKEN_CALL = "broken_call"  # the provider says that its own model's call was malformed


@dataclass(frozen=True)
class Refusal:
    """A refused answer as facts. `kind` None: nothing settles it, the ladder goes on.

    `hint` is what is said at the end of the ladder when every rung and the control shared the refusal (a bare
    404 speaks of the path, a bare 503 of capacity). `status` is the status that counts: the HTTP status, or the
    one inside the body. `text` is the provider's own message: hostile, unredacted, never stored as it stands.
    `replay_reason` is what it said of replayed reasoning, where the text wasn't kept.
    """

    status: int | None
    kind: Refused | None = None
    hint: Refused | None = None
    code: str | None = field(default=None, metadata=SAID)
    reason: str | None = None
    retry_after_s: float | None = None
    could_pass: bool = False
    names_stream_options: bool = False
    text: str = ""
    replay_reason: str | None = None


@dataclass(frozen=True)
class Call:
    """One assembled tool call as a fact: `problem` None means that it can be dispatched as it stands.

    `cut` says that the problem is of the kind that an answer cut by a token cap has.
    """

    problem: str | None = None
    cut: bool = False


@dataclass(frozen=True)
class Reading:
    """What a reader saw in an accepted answer. No text of the model is in it.

    `announced` is the word with which the answer announced its end, None when it didn't. `error` is an error
    inside the stream, before the announced end; `error_after_delta` says that text, reasoning or a call came
    before it. `leak` names the family of call markup found in text; `broken` says why the stream can't be read.
    """

    events: int = 0
    deltas: int = 0
    has_text: bool = False
    calls: tuple[Call, ...] = ()
    announced: str | None = field(default=None, metadata=SAID)
    capped: bool = False  # the answer says that our token cap cut it
    filtered: bool = False
    declared_malformed: bool = False
    leak: str | None = None
    broken: str | None = None
    error: Refusal | None = None
    error_after_delta: bool = False
    quirks: frozenset[str] = frozenset()
    served_model: str | None = field(default=None, metadata=SAID)
    tokens_in: int | None = None
    tokens_out: int | None = None


@dataclass(frozen=True)
class Exchange:
    """One request and all that came of it. Times are seconds from the sending."""

    ask: Ask
    end: End
    status: int | None = None
    body: Body = Body.NONE
    fault: str | None = None
    refusal: Refusal | None = None
    reading: Reading | None = None
    labelled_events: bool = True  # the content type announced an event stream
    completion: bool = False  # a JSON body that is one whole completion
    cached: bool = False
    replay: Replay | None = field(default=None, repr=False, compare=False)  # never stored
    other_cap_field: str | None = None  # the token-cap field that may be tried when this one is refused by name
    flowing: bool = False  # deltas still came when the deadline passed
    own_lag: bool = False  # our own event loop was late by more than a second meanwhile
    own_queue: bool = False  # nothing was connected, and a name waited for a thread of ours for more than a second
    bytes_read: int = 0
    headers_s: float | None = None
    first_event_s: float | None = None
    first_token_s: float | None = None
    duration_s: float = 0.0
