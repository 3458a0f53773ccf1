"""A result without its call is accepted.

It happens when a history is cut to fit a context and the cut falls between a call and its result. Strict upstreams
refuse the request; a client must then drop the result, or keep its call.
"""

from __future__ import annotations

from service.contracts.history import Form, HistoryContract, Turn
from service.contracts.replays import result
from service.model import Message, Role


def _orphaned(turn: Turn) -> list[Message]:
    return [turn.question, Message(Role.ASSISTANT, "It is under way."), result(turn.calls[0])]


def _without_it(turn: Turn) -> list[Message]:
    return [
        turn.question,
        Message(Role.ASSISTANT, "It is under way."),
        Message(Role.USER, "Say in one word that you are ready."),
    ]


EXAMPLE = """\
{
  "messages": [
    {"role": "user", "content": "Call f and tell me what it returned."},
    {"role": "assistant", "content": "It is under way."},
    {"role": "user", "content": "Go on."}
  ],
  "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
}"""

CONTRACT = HistoryContract(
    "orphaned_tool_results",
    "A result without its call is accepted.",
    shape=Form(_orphaned),
    control=Form(_without_it),
    example=EXAMPLE,
)
