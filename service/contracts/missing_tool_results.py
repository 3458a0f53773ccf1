"""A call without its result is accepted.

It happens when a tool run was interrupted and the user went on. Strict upstreams refuse the request; a client must
then send a result for every call, if only one that says that the run was cancelled.
"""

from __future__ import annotations

from service.contracts.history import Form, HistoryContract, Turn
from service.contracts.replays import results
from service.model import Message, Role


def _without_result(turn: Turn) -> list[Message]:
    return [turn.question, turn.assistant, Message(Role.USER, "Never mind. Say in one word that you are ready.")]


def _with_result(turn: Turn) -> list[Message]:
    return [turn.question, turn.assistant, *results(turn.calls)]


EXAMPLE = """\
{
  "messages": [
    {"role": "user", "content": "Call f and tell me what it returned."},
    {"role": "assistant", "tool_calls": [
      {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "cancelled by the user"},
    {"role": "user", "content": "Never mind."}
  ],
  "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
}"""

CONTRACT = HistoryContract(
    "missing_tool_results",
    "A call without its result is accepted.",
    shape=Form(_without_result),
    control=Form(_with_result),
    example=EXAMPLE,
)
