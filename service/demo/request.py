"""A request as a provider reads it: tools, choice and turns, whatever the dialect.

The four dialects spell the same things differently. They are brought into one form here, so that predicates
and placeholders are written once. What doesn't have the expected type is read as absent, never refused:
a scripted provider judges only what its script names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any

DIALECTS = ("openai-chat", "openai-responses", "anthropic-messages", "gemini")

_KEY_HEADERS = ("authorization", "x-api-key", "api-key", "x-goog-api-key")
_REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_details")


@dataclass(frozen=True)
class DeclaredTool:
    name: str
    parameters: Mapping[str, Any]
    strict: bool


@dataclass(frozen=True)
class Call:
    """A call in the history. Gemini calls may have no id; `arguments` is as it was sent."""

    id: str | None
    name: str
    arguments: Any


@dataclass(frozen=True)
class Result:
    """A tool's result in the history. Only Gemini names the tool in it."""

    id: str | None
    name: str | None = None

    def answers(self, call: Call) -> bool:
        if self.name is not None and (self.id is None or call.id is None):
            return self.name == call.name
        return self.id == call.id


@dataclass(frozen=True)
class Turn:
    """One turn of the history. `role` is user, assistant, tool or system; results stand in tool turns only."""

    role: str
    calls: tuple[Call, ...] = ()
    results: tuple[Result, ...] = ()
    has_reasoning: bool = False


@dataclass(frozen=True)
class Pairing:
    """How calls and results of a history belong together; see the predicates of the same names."""

    missing: bool
    displaced: bool
    orphaned: bool
    duplicate: bool


@dataclass(frozen=True)
class Request:
    """One request. Header names are in lower case; `body` is empty when there was none."""

    dialect: str
    method: str = "POST"
    path: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    query: tuple[tuple[str, str], ...] = ()
    body: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def key(self) -> str:
        """The credential of the request, without its scheme; empty when there is none."""
        for name in _KEY_HEADERS:
            if value := self.headers.get(name):
                return re.sub(r"^(bearer|basic)\s+", "", value, flags=re.IGNORECASE)
        return dict(self.query).get("key", "")

    @cached_property
    def model(self) -> str:
        if self.dialect == "gemini":
            found = re.search(r"/models/([^/:]+)", self.path)
            return found[1] if found else ""
        return _text(self.body.get("model")) or ""

    @cached_property
    def tool_names(self) -> tuple[str, ...]:
        """The declared tools' names, else the names called in the history; in order, each once."""
        declared = [tool.name for tool in self.tools]
        return tuple(dict.fromkeys(declared or [call.name for call in self.calls]))

    # --- tools and choice ---

    @cached_property
    def tools_field(self) -> list[Any] | None:
        """What stands in the field `tools`; None when there is no such field."""
        return _list(self.body["tools"]) if "tools" in self.body else None

    @cached_property
    def tools(self) -> tuple[DeclaredTool, ...]:
        return tuple(self._declared())

    def _declared(self) -> Iterator[DeclaredTool]:
        for tool in _dicts(self.tools_field):
            if self.dialect == "gemini":
                for function in _dicts(_either(tool, "functionDeclarations", "function_declarations")):
                    yield _declared_tool(function, _either(function, "parameters", "parametersJsonSchema"))
            elif self.dialect == "anthropic-messages":
                yield _declared_tool(tool, tool.get("input_schema"))
            else:
                function = _dict(tool.get("function")) if self.dialect == "openai-chat" else tool
                yield _declared_tool({"strict": tool.get("strict"), **function}, function.get("parameters"))

    @cached_property
    def choice(self) -> Any:
        """The tool choice as sent; None when there is none."""
        if self.dialect != "gemini":
            return self.body.get("tool_choice")
        config = _dict(_either(self.body, "toolConfig", "tool_config"))
        return _either(_dict(_either(config, "functionCallingConfig", "function_calling_config")), "mode", "mode")

    @cached_property
    def mode(self) -> str:
        """`auto`, `forced` or `none`, whether or not tools are declared."""
        choice = self.choice
        if isinstance(choice, dict):
            word = choice.get("type") if self.dialect == "anthropic-messages" else "required"
        else:
            word = choice
        known = {"auto": "auto", "none": "none", "required": "forced", "any": "forced", "tool": "forced"}
        return known.get(str(word or "auto").lower(), "none")

    # --- history ---

    @cached_property
    def messages(self) -> list[dict[str, Any]]:
        """The messages, contents or input items as they stand in the body."""
        name = {"openai-responses": "input", "gemini": "contents"}.get(self.dialect, "messages")
        value = self.body.get(name)
        return [{"role": "user", "content": value}] if isinstance(value, str) else _dicts(value)

    @cached_property
    def turns(self) -> tuple[Turn, ...]:
        """The history in order.

        In Chat Completions every message is a turn. Elsewhere neighbouring parts of the assistant are one turn
        (the API merges them), and a user message is split where results and other parts meet.
        """
        if self.dialect == "openai-chat":
            return tuple(_chat_turn(message) for message in self.messages)
        parts = [turn for message in self.messages for turn in _READERS[self.dialect](message)]
        return tuple(_merged(list(group)) for _, group in groupby(parts, key=lambda turn: turn.role))

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        return tuple(call for turn in self.turns for call in turn.calls)

    @cached_property
    def results(self) -> tuple[Result, ...]:
        return tuple(result for turn in self.turns for result in turn.results)

    @cached_property
    def ids(self) -> tuple[str | None, ...]:
        """The ids of calls and results. In Gemini an absent id is no id, elsewhere it is one that is None."""
        ids = [call.id for call in self.calls] + [result.id for result in self.results]
        return tuple(one for one in ids if one is not None or self.dialect != "gemini")

    @cached_property
    def pairing(self) -> Pairing:
        calls: list[tuple[int, Call]] = []
        answered: dict[int, int] = {}  # position in `calls` -> turn of its first result
        orphaned = duplicate = False
        for at, turn in enumerate(self.turns):
            for result in turn.results:
                own = [n for n, (_, call) in enumerate(calls) if result.answers(call)]
                # The latest call that waits: ids, and names all the more, may come again in a later turn.
                waiting = next((n for n in reversed(own) if n not in answered), None)
                if waiting is not None:
                    answered[waiting] = at
                else:
                    duplicate, orphaned = duplicate or bool(own), orphaned or not own
            calls += [(at, call) for call in turn.calls]
        displaced = any(turn.role != "tool" for n, at in answered.items() for turn in self.turns[calls[n][0] + 1 : at])
        return Pairing(len(answered) < len(calls), displaced, orphaned, duplicate)

    # --- contents ---

    @cached_property
    def contents(self) -> list[Any]:
        """The content of every message that has one by its kind, as sent: text, a list of parts, or None."""
        if self.dialect == "gemini":
            return [message.get("parts") for message in self.messages]
        kinds = (None, "message") if self.dialect == "openai-responses" else (None,)
        return [message.get("content") for message in self.messages if message.get("type") in kinds]


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in _list(value) if isinstance(one, dict)]


def _either(value: Mapping[str, Any], name: str, other: str) -> Any:
    """Gemini takes field names in camel case and in snake case."""
    return value[name] if name in value else value.get(other)


def _declared_tool(function: Mapping[str, Any], parameters: Any) -> DeclaredTool:
    return DeclaredTool(_text(function.get("name")) or "", _dict(parameters), function.get("strict") is True)


def thought_signature(part: Mapping[str, Any]) -> Any:
    return _either(part, "thoughtSignature", "thought_signature")


def _chat_turn(message: Mapping[str, Any]) -> Turn:
    role = {"developer": "system"}.get(str(message.get("role")), str(message.get("role")))
    if role == "tool":
        return Turn(role, results=(Result(_text(message.get("tool_call_id"))),))
    sent = _dicts(message.get("tool_calls"))
    functions = [_dict(call.get("function")) for call in sent]
    calls = tuple(
        Call(_text(call.get("id")), _text(function.get("name")) or "", function.get("arguments"))
        for call, function in zip(sent, functions, strict=True)
    )
    signed = any(thought_signature(_dict(_dict(one.get("extra_content")).get("google"))) for one in (message, *sent))
    has_reasoning = signed or any(message.get(name) is not None for name in _REASONING_FIELDS)
    return Turn(role, calls, has_reasoning=has_reasoning)


def _responses_turns(item: Mapping[str, Any]) -> Iterator[Turn]:
    match item.get("type"):
        case "function_call":
            call = Call(_text(item.get("call_id")), _text(item.get("name")) or "", item.get("arguments"))
            yield Turn("assistant", (call,))
        case "function_call_output":
            yield Turn("tool", results=(Result(_text(item.get("call_id"))),))
        case "reasoning":
            yield Turn("assistant", has_reasoning=True)
        case _:
            yield Turn({"developer": "system"}.get(str(item.get("role")), str(item.get("role"))))


def _anthropic_turns(message: Mapping[str, Any]) -> Iterator[Turn]:
    blocks, role = _dicts(message.get("content")), str(message.get("role"))
    if not blocks:
        yield Turn(role)
    for block in blocks:
        match block.get("type"):
            case "tool_use":
                call = Call(_text(block.get("id")), _text(block.get("name")) or "", block.get("input"))
                yield Turn(role, (call,))
            case "tool_result":
                yield Turn("tool", results=(Result(_text(block.get("tool_use_id"))),))
            case kind:
                yield Turn(role, has_reasoning=kind in ("thinking", "redacted_thinking"))


def _gemini_turns(content: Mapping[str, Any]) -> Iterator[Turn]:
    parts = _dicts(content.get("parts"))
    role = {"model": "assistant", "function": "tool"}.get(str(content.get("role")), str(content.get("role", "user")))
    if not parts:
        yield Turn(role)
    for part in parts:
        call = _either(part, "functionCall", "function_call")
        result = _either(part, "functionResponse", "function_response")
        signed = thought_signature(part) is not None
        if isinstance(call, dict):
            one = Call(_text(call.get("id")), _text(call.get("name")) or "", call.get("args", {}))
            yield Turn(role, (one,), has_reasoning=signed)
        elif isinstance(result, dict):
            yield Turn("tool", results=(Result(_text(result.get("id")), _text(result.get("name")) or ""),))
        else:
            yield Turn(role, has_reasoning=signed)


_READERS = {
    "openai-responses": _responses_turns,
    "anthropic-messages": _anthropic_turns,
    "gemini": _gemini_turns,
}


def _merged(parts: list[Turn]) -> Turn:
    return Turn(
        parts[0].role,
        tuple(call for part in parts for call in part.calls),
        tuple(result for part in parts for result in part.results),
        any(part.has_reasoning for part in parts),
    )
