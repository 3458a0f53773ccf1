"""The nouns that every other module speaks in. Nothing here does anything.

A *route* is one way to reach one model. A *contract* asks it questions (`Ask`); each question becomes one
request (`WireRequest`) and one `Exchange`: the facts of what came back, without the model's words and
without any credential. The facts are judged into a `Verdict`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

SAID = {"said": True}
"""Marks a field that holds words of a provider: redacted before it is stored. Unmarked texts are words of ours."""


class Outcome(StrEnum):
    """The group of a status, and what an operator does about it."""

    PROVEN = "proven"
    VIOLATED = "violated"
    BLOCKED = "blocked"
    UNAVAILABLE = "unavailable"
    UNPROVEN = "unproven"


class Status(StrEnum):
    """The stable word of a verdict. Words are a public contract: a new meaning gets a new word."""

    TOOLS_SUPPORTED = "tools_supported"
    FORCED_TOOL_CHOICE_REJECTED = "forced_tool_choice_rejected"
    TURN_COMPLETED = "turn_completed"
    HISTORY_ACCEPTED = "history_accepted"
    PARALLEL_CALLS_SUPPORTED = "parallel_calls_supported"

    TOOLS_PAYLOAD_REJECTED = "tools_payload_rejected"
    AUTO_TOOL_CHOICE_REJECTED = "auto_tool_choice_rejected"
    TOKEN_CAP_REJECTED = "token_cap_rejected"
    STREAM_EARLY_EOF = "stream_early_eof"
    MALFORMED_TOOL_CALL = "malformed_tool_call"
    TOOL_CALL_LEAKED_AS_TEXT = "tool_call_leaked_as_text"
    MALFORMED_STREAM = "malformed_stream"
    STREAM_IGNORED = "stream_ignored"
    HISTORY_REJECTED = "history_rejected"

    ENDPOINT_AUTH_FAILED = "endpoint_auth_failed"
    QUOTA_OR_ROUTING_FAILED = "quota_or_routing_failed"
    RATE_LIMITED = "rate_limited"
    MODEL_UNAVAILABLE = "model_unavailable"
    REGION_BLOCKED = "region_blocked"
    ENDPOINT_NOT_FOUND = "endpoint_not_found"
    CONTENT_FILTERED = "content_filtered"

    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    OVERLOADED = "overloaded"
    PROVIDER_ERROR = "provider_error"

    INCONCLUSIVE_NO_TOOL_CALL = "inconclusive_no_tool_call"
    FORCED_TOOL_CHOICE_IGNORED = "forced_tool_choice_ignored"
    PARALLEL_CALLS_NOT_MADE = "parallel_calls_not_made"
    TURN_UNFINISHED = "turn_unfinished"
    PROBE_CAP_REACHED = "probe_cap_reached"
    OWN_NETWORK = "own_network"
    PROBER_OVERLOADED = "prober_overloaded"
    ANSWERED_FROM_CACHE = "answered_from_cache"
    CANCELLED = "cancelled"
    NOT_SENT = "not_sent"

    @property
    def outcome(self) -> Outcome:
        return _OUTCOMES[self]


_BY_OUTCOME: dict[Outcome, tuple[Status, ...]] = {
    Outcome.PROVEN: (
        Status.TOOLS_SUPPORTED,
        Status.FORCED_TOOL_CHOICE_REJECTED,
        Status.TURN_COMPLETED,
        Status.HISTORY_ACCEPTED,
        Status.PARALLEL_CALLS_SUPPORTED,
    ),
    Outcome.VIOLATED: (
        Status.TOOLS_PAYLOAD_REJECTED,
        Status.AUTO_TOOL_CHOICE_REJECTED,
        Status.TOKEN_CAP_REJECTED,
        Status.STREAM_EARLY_EOF,
        Status.MALFORMED_TOOL_CALL,
        Status.TOOL_CALL_LEAKED_AS_TEXT,
        Status.MALFORMED_STREAM,
        Status.STREAM_IGNORED,
        Status.HISTORY_REJECTED,
    ),
    Outcome.BLOCKED: (
        Status.ENDPOINT_AUTH_FAILED,
        Status.QUOTA_OR_ROUTING_FAILED,
        Status.RATE_LIMITED,
        Status.MODEL_UNAVAILABLE,
        Status.REGION_BLOCKED,
        Status.ENDPOINT_NOT_FOUND,
        Status.CONTENT_FILTERED,
    ),
    Outcome.UNAVAILABLE: (
        Status.UNREACHABLE,
        Status.TIMEOUT,
        Status.OVERLOADED,
        Status.PROVIDER_ERROR,
    ),
    Outcome.UNPROVEN: (
        Status.INCONCLUSIVE_NO_TOOL_CALL,
        Status.FORCED_TOOL_CHOICE_IGNORED,
        Status.PARALLEL_CALLS_NOT_MADE,
        Status.TURN_UNFINISHED,
        Status.PROBE_CAP_REACHED,
        Status.OWN_NETWORK,
        Status.PROBER_OVERLOADED,
        Status.ANSWERED_FROM_CACHE,
        Status.CANCELLED,
        Status.NOT_SENT,
    ),
}
_OUTCOMES: dict[Status, Outcome] = {s: o for o, group in _BY_OUTCOME.items() for s in group}


class Secret:
    """A value that must never be shown. It prints as `***`; `reveal()` is called where it is sent or searched for."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)


# --- routes -----------------------------------------------------------------------------------------------


class Auth(StrEnum):
    """How the credential is sent: `Authorization: Bearer`, a header of that name, or not at all."""

    BEARER = "bearer"
    API_KEY = "api-key"
    X_API_KEY = "x-api-key"
    X_GOOG_API_KEY = "x-goog-api-key"
    NONE = "none"


@dataclass(frozen=True)
class SecretRef:
    """Where a secret is read from, at each probe: an environment variable or a file. Never the secret itself."""

    env: str | None = None
    file: str | None = None

    def __str__(self) -> str:
        return f"env:{self.env}" if self.env else f"file:{self.file}"


@dataclass(frozen=True)
class TokenCap:
    """The token-cap field of a request and its value. `field` None: `max_tokens`, then `max_completion_tokens`
    when the first is refused by name."""

    field: str | None = None
    value: int = 1024


@dataclass(frozen=True)
class ContractUse:
    """One contract on one route: asked every `every`-th interval; `required` counts for the route's state."""

    name: str
    every: int = 1
    required: bool = True


@dataclass(frozen=True)
class Route:
    """One way to reach one model, as configured. `id` is the stable key, `name` is for people. `base_url` and `proxy`
    may carry secrets of their own (userinfo, query values)."""

    id: str
    name: str
    provider: str
    dialect: str
    base_url: str
    model: str
    key: SecretRef | None = None
    auth: Auth | None = None  # the dialect's own way
    headers: Mapping[str, str] = field(default_factory=dict)
    secret_headers: Mapping[str, SecretRef] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)
    token_cap: TokenCap = TokenCap()
    parallel_tool_calls: bool | None = None
    include_usage: bool = True
    temperature: float | None = None
    served_model_pattern: str | None = None
    proxy: str | None = None
    ca_file: str | None = None
    deadline: timedelta = timedelta(seconds=60)
    interval: timedelta = timedelta(minutes=5)
    fresh_for: float | timedelta = 3.0  # a number is a multiple of the cell's own interval
    expires_after: float | timedelta = 6.0
    contracts: tuple[ContractUse, ...] = ()
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Credentials:
    """The revealed secrets of a route for one probe. `missing` names the references that could not be read."""

    key: Secret | None = None
    headers: Mapping[str, Secret] = field(default_factory=dict)
    missing: tuple[str, ...] = ()


# --- asking -----------------------------------------------------------------------------------------------


class Choice(StrEnum):
    """Whether the model must, may or can't call: a forced named choice, `auto`, or no tools declared."""

    FORCED = "forced"
    AUTO = "auto"
    NONE = "none"


@dataclass(frozen=True)
class Tool:
    """A function that is declared to the route and never registered or dispatched anywhere.

    `properties` maps each property to its JSON Schema type; all of them are required. `asked` holds the values that
    the message asks for: another one is no fault, but worth a note.
    """

    name: str
    description: str
    properties: Mapping[str, str]
    asked: Mapping[str, str] = field(default_factory=dict)


class Role(StrEnum):
    USER = "user"
    ASSISTANT = "assistant"
    RESULT = "result"


@dataclass(frozen=True)
class PastCall:
    """A call in a history. `arguments` is JSON text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, repr=False)
class Replay:
    """A route's own assistant message, as it came. `wire` is the dialect's form of it, with every field: it goes back
    to the same route in the next request and is neither shown nor stored."""

    calls: tuple[PastCall, ...]
    wire: Any = field(compare=False)


@dataclass(frozen=True)
class Message:
    """One message of a conversation, free of any dialect. An assistant's carries `calls` beside its text, or is a
    `replay`; a result answers `answers`, and `beside` is a user's text in the same message."""

    role: Role
    text: str = ""
    calls: tuple[PastCall, ...] = ()
    answers: PastCall | None = None
    beside: str = ""
    replay: Replay | None = None


@dataclass(frozen=True)
class Ask:
    """One question of a ladder, free of any dialect. `rung` names it; a repetition has the same rung.

    `pause` asks for a short jittered wait before sending. `tokens_field` None: the dialect's own token-cap field.
    `mixed` asks are for dialects that can carry a result and a user's text in one message.
    """

    rung: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    choice: Choice = Choice.NONE
    parallel: bool | None = None
    include_usage: bool = True
    tokens_field: str | None = None
    pause: bool = False
    mixed: bool = False

    @property
    def shape(self) -> str:
        """The request's shape in a few words, for people: what was asked, not the text of it."""
        words = [f"tools, choice {self.choice}" if self.tools else "no tools"]
        if history := [message for message in self.messages if message.role is not Role.USER]:
            words.insert(0, f"history of {len(self.messages)} messages" + (", own call" if history[0].replay else ""))
        if self.tokens_field is not None:
            words.append(self.tokens_field)
        if self.parallel is not None:
            words.append(f"parallel_tool_calls {str(self.parallel).lower()}")
        if not self.include_usage:
            words.append("no stream_options")
        return ", ".join(words)


@dataclass(frozen=True)
class WireRequest:
    """A request ready to send, but for the credential."""

    url: str
    headers: Mapping[str, str]
    body: bytes


# --- answers ----------------------------------------------------------------------------------------------


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
    bytes_read: int = 0
    headers_s: float | None = None
    first_event_s: float | None = None
    first_token_s: float | None = None
    duration_s: float = 0.0


# --- verdicts ---------------------------------------------------------------------------------------------


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

    @property
    def outcome(self) -> Outcome:
        return self.status.outcome


# --- cells ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """One contract on one route from one location, as configured now. All durations are the cell's own."""

    route_id: str
    contract: str
    location: str
    required: bool
    fingerprint: str
    interval: timedelta
    fresh_for: timedelta
    expires_after: timedelta
    deadline: timedelta


@dataclass(frozen=True)
class Claim:
    """A due cell that this process may probe until `lease_until`. `claimed_at` and `due_at` are the database's."""

    cell_id: int
    route_id: str
    contract: str
    location: str
    fingerprint: str
    lease_id: UUID
    claimed_at: datetime
    due_at: datetime


@dataclass(frozen=True)
class Standing:
    """A stored verdict as the read side needs it: small, redacted, without its rungs."""

    id: UUID
    status: str
    outcome: Outcome
    reason: str | None
    rule_id: str
    quirks: tuple[str, ...]
    served_model: str | None
    detail: str
    requests: int
    retry_after_s: float | None
    observed_at: datetime
    duration_s: float
    time_to_first_token_s: float | None
    tokens_in: int | None
    tokens_out: int | None
    fingerprint: str


@dataclass(frozen=True)
class StoredVerdict:
    """One verdict of the history, with its rungs and facts: what a route's page shows."""

    standing: Standing
    contract: str
    location: str
    rungs: tuple[Rung, ...]
    facts: Mapping[str, Any]
    ruleset: int


@dataclass(frozen=True)
class Transition:
    """One change of a cell's standing verdict, at the time of the verdict that brought it. `kind` is `informational`:
    that of a contract that isn't required, which weighs less.

    `changed` says what else is known to differ between the two verdicts: `served_model` and `ruleset`, each as
    `{"from": …, "to": …}`.
    """

    at: datetime
    route_id: str
    contract: str
    location: str
    kind: str
    from_status: str
    from_reason: str | None
    to_status: str
    to_reason: str | None
    changed: Mapping[str, Any]


@dataclass(frozen=True)
class RouteRow:
    """A route as stored for the read side. `url` is redacted."""

    id: str
    name: str
    provider: str
    dialect: str
    model: str
    url: str
    tags: tuple[str, ...]


@dataclass(frozen=True)
class CellRow:
    """One configured cell with what `latest` holds of it.

    `standing` is the newest verdict under the cell's fingerprint that isn't unproven, `last` the newest of all;
    `state_since` is when the run of standing verdicts with this outcome began.
    """

    cell_id: int
    route: RouteRow
    cell: Cell
    standing: Standing | None
    last: Standing | None
    last_proven_at: datetime | None
    state_since: datetime | None
    counts: Mapping[Outcome, int]
    next_due_at: datetime | None


@dataclass(frozen=True)
class Snapshot:
    """All active cells at one moment of the database's clock."""

    now: datetime
    cells: tuple[CellRow, ...]
