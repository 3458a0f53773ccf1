"""A request whose history holds tool calls and results but declares no `tools` is accepted.

Compaction, titles and summaries are asked this way: the history is there, the tools are not. Some gateways refuse
it, often with a sentence that says nothing. A client must then declare the tool, or flatten calls and results to
text.
"""

from __future__ import annotations

from service.contracts.history import Form, HistoryContract, Turn
from service.contracts.replays import results
from service.model import Message, Role


def _with_results(turn: Turn) -> list[Message]:
    return [turn.question, turn.assistant, *results(turn.calls)]


def _flattened(turn: Turn) -> list[Message]:
    call = turn.calls[0]
    return [
        turn.question,
        Message(Role.ASSISTANT, f"I called {call.name} with {call.arguments}."),
        Message(Role.USER, "It returned: recorded: ok. Say in one sentence what it returned."),
    ]


EXAMPLE = """\
{
  "messages": [
    {"role": "user", "content": "Call f and tell me what it returned."},
    {"role": "assistant", "content": "I called f with {}."},
    {"role": "user", "content": "It returned: ok. Sum up what happened."}
  ]
}"""

CONTRACT = HistoryContract(
    "undeclared_tool_history",
    "A request whose history holds tool calls and results but declares no tools is accepted.",
    shape=Form(_with_results, tools=False),
    control=Form(_with_results),
    flattened=Form(_flattened, tools=False),
    example=EXAMPLE,
)
