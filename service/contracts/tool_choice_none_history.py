"""A tool history with the tools declared and `tool_choice: none` is accepted.

Titles and summaries are asked this way by clients that keep their tools declared but want text. Where it is
refused, a client must leave `tool_choice` out, or flatten the history to text.
"""

from __future__ import annotations

from service.contracts.history import Form, HistoryContract, Turn
from service.contracts.replays import results
from service.model import Choice, Message


def _history(turn: Turn) -> list[Message]:
    return [turn.question, turn.assistant, *results(turn.calls)]


EXAMPLE = """\
{
  "messages": [
    {"role": "user", "content": "Call f and tell me what it returned."},
    {"role": "assistant", "tool_calls": [
      {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "ok"}
  ],
  "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
}"""

CONTRACT = HistoryContract(
    "tool_choice_none_history",
    "A tool history with the tools declared and tool_choice none is accepted.",
    shape=Form(_history, choice=Choice.NONE),
    control=Form(_history),
    example=EXAMPLE,
)
