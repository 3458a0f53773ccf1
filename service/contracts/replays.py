"""What turns and histories are made of: questions, hand-made calls, results, and the words about replayed reasoning."""

from __future__ import annotations

import re
from collections.abc import Sequence

from service.contracts.ladder import TOOL
from service.model import Message, PastCall, Refusal, Role

ARGUMENTS = '{"value":"ok"}'
BESIDE_CALLS = "I will record it."
_RESULT = "recorded: ok"


def question(tool: str, nonce: str) -> str:
    return (
        f'Call the function {tool} once with value "ok", then say in one sentence what it returned. Reference {nonce}.'
    )


def made_calls(nonce: str, count: int) -> tuple[PastCall, ...]:
    """Calls made by hand; their ids are nine alphanumerics, which the strictest route takes (corpus:
    hist-mistral-id-format)."""
    return tuple(PastCall(f"{nonce}{number:03d}", TOOL.name, ARGUMENTS) for number in range(1, count + 1))


def result(call: PastCall, beside: str = "") -> Message:
    return Message(Role.RESULT, _RESULT, answers=call, beside=beside)


def results(calls: Sequence[PastCall]) -> tuple[Message, ...]:
    return tuple(result(call) for call in calls)


_REASONING = re.compile(
    r"reasoning[_ ]?content|reasoning_details|thought[_ ]?signature|`?thinking`? block|thinking mode|'reasoning' item"
    r"|required 'reasoning'|`?signature`? in",
    re.IGNORECASE,
)
_INVALID = re.compile(r"invalid|corrupted|mismatch|could ?n[o']t be verified|not valid", re.IGNORECASE)


def replay_reason(refusal: Refusal) -> str | None:
    """The reason beside `history_rejected`. Wording only fills it in: it decided nothing."""
    if _REASONING.search(refusal.text):
        return "reasoning_replay_invalid" if _INVALID.search(refusal.text) else "reasoning_replay_required"
    return refusal.replay_reason or refusal.reason
