"""Two results for one call are accepted.

It happens when a retry appends a second result. Strict upstreams refuse the request; a client must then keep the
last one only.
"""

from __future__ import annotations

from service.contracts.history import Form, HistoryContract, Turn
from service.contracts.replays import result, results
from service.model import Message


def _twice(turn: Turn) -> list[Message]:
    return [turn.question, turn.assistant, *results(turn.calls), result(turn.calls[0])]


def _once(turn: Turn) -> list[Message]:
    return [turn.question, turn.assistant, *results(turn.calls)]


EXAMPLE = """\
{
  "messages": [
    {"role": "user", "content": "Call f and tell me what it returned."},
    {"role": "assistant", "tool_calls": [
      {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "ok, from the retry"}
  ],
  "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
}"""

CONTRACT = HistoryContract(
    "duplicate_tool_results",
    "Two results for one call are accepted.",
    shape=Form(_twice),
    control=Form(_once),
    example=EXAMPLE,
)
