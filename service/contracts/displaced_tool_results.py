"""A user message between an assistant's calls and part of their results is accepted.

It happens when a user steers an agent while a tool still runs. Strict upstreams want every result right behind its
calls; a client must then hoist the displaced results over the user message. The control ends in the last result,
since some upstreams refuse a user message right after a result.
"""

from __future__ import annotations

from service.contracts.history import Form, HistoryContract, Turn
from service.contracts.replays import results
from service.model import Message, Role


def _displaced(turn: Turn) -> list[Message]:
    first, *rest = results(turn.calls)
    steering = Message(Role.USER, "Please be brief.")
    if not rest:
        return [turn.question, turn.assistant, steering, first]
    return [turn.question, turn.assistant, first, steering, *rest]


def _in_place(turn: Turn) -> list[Message]:
    return [turn.question, turn.assistant, *results(turn.calls)]


EXAMPLE = """\
{
  "messages": [
    {"role": "user", "content": "Call f and tell me what it returned."},
    {"role": "assistant", "tool_calls": [
      {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
      {"id": "c2", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "ok"},
    {"role": "tool", "tool_call_id": "c2", "content": "ok"},
    {"role": "user", "content": "Please be brief."}
  ],
  "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
}"""

CONTRACT = HistoryContract(
    "displaced_tool_results",
    "A user message between an assistant's calls and part of their results is accepted.",
    shape=Form(_displaced),
    control=Form(_in_place),
    calls=2,
    example=EXAMPLE,
)
