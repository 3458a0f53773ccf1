"""The stable words of a verdict: statuses and the outcomes that group them."""

from __future__ import annotations

from enum import StrEnum


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
