"""A result and a user's own text in one message are accepted, where the dialect has such a message.

Anthropic and Gemini carry results in user messages, and clients put the user's next words beside them. Where that
is refused, a client must send the words in a message of their own. Dialects without such a message are not asked.
"""

from __future__ import annotations

from service.contracts.history import Form, HistoryContract, Turn
from service.contracts.replays import result, results
from service.model import Message


def _mixed(turn: Turn) -> list[Message]:
    *others, last = turn.calls
    return [turn.question, turn.assistant, *results(others), result(last, beside="Please be brief.")]


def _apart(turn: Turn) -> list[Message]:
    return [turn.question, turn.assistant, *results(turn.calls)]


EXAMPLE = """\
{
  "messages": [
    {"role": "user", "content": "Call f and tell me what it returned."},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "f", "input": {}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "ok"}]},
    {"role": "user", "content": "Please be brief."}
  ],
  "tools": [{"name": "f", "input_schema": {"type": "object", "properties": {}}}]
}"""

CONTRACT = HistoryContract(
    "mixed_result_carrier",
    "A result and a user's own text in one message are accepted.",
    shape=Form(_mixed),
    control=Form(_apart),
    mixed=True,
    example=EXAMPLE,
)
