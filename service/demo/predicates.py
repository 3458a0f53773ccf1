"""The conditions under which an entry of a scenario answers: pure functions over one request.

A name may carry an argument after a colon (`cap:max_tokens`). `not:` before a name negates it, a list of names
means all of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from service.demo.request import Request, thought_signature

# What every dialect takes as the name of a function.
_TOOL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_NINE_ALNUM = re.compile(r"[A-Za-z0-9]{9}")
_SIGNATURE_FIELDS = frozenset({"signature", "thought_signature", "thoughtSignature", "encrypted_content"})


class UnknownPredicate(ValueError):  # noqa: N818 - reads as the sentence it is
    """A scenario names a condition that doesn't exist, or gives an argument where none belongs."""


def check(when: str | Sequence[str]) -> None:
    """Raises `UnknownPredicate` unless every name in `when` is known."""
    for name in _names(when):
        _find(name)


def holds(when: str | Sequence[str], request: Request) -> bool:
    """Whether every condition in `when` holds; its placeholders must be filled already. Raises `UnknownPredicate`."""
    return all(_find(name)(request) for name in _names(when))


def _names(when: str | Sequence[str]) -> Sequence[str]:
    return [when] if isinstance(when, str) else when


def _find(name: str) -> Callable[[Request], bool]:
    if name.startswith("not:"):
        positive = _find(name.removeprefix("not:"))
        return lambda request: not positive(request)
    word, colon, argument = name.partition(":")
    if colon and argument and word in _WITH_ARGUMENT:
        with_argument = _WITH_ARGUMENT[word]
        return lambda request: with_argument(request, argument)
    if not colon and word in _PLAIN:
        return _PLAIN[word]
    raise UnknownPredicate(f"unknown predicate {name!r}")


def _has_history(request: Request) -> bool:
    return bool(request.calls or request.results)


def _undeclared_history(request: Request) -> bool:
    return _has_history(request) and not request.tools


def _undeclared_called_tool(request: Request) -> bool:
    declared = {tool.name for tool in request.tools}
    return any(call.name not in declared for call in request.calls)


def _clean_history(request: Request) -> bool:
    pairing = request.pairing
    faults = (pairing.displaced, pairing.missing, pairing.orphaned, pairing.duplicate)
    return _has_history(request) and not (
        _undeclared_history(request) or _undeclared_called_tool(request) or any(faults)
    )


def _flattened_history(request: Request) -> bool:
    return not _has_history(request) and any(turn.role == "assistant" for turn in request.turns)


def _reasoning_missing(request: Request) -> bool:
    return any(turn.calls and not turn.has_reasoning for turn in request.turns)


def _duplicate_call_id(request: Request) -> bool:
    ids = [call.id for call in request.calls if call.id is not None]
    return len(set(ids)) < len(ids)


def _user_after_tool(request: Request) -> bool:
    roles = [turn.role for turn in request.turns]
    return ("tool", "user") in pairwise(roles)


def _consecutive_user(request: Request) -> bool:
    """Two neighbouring messages with the role `user` as it stands on the wire."""
    roles = [message.get("role") for message in request.messages]
    return ("user", "user") in pairwise(roles)


def _content_parts(request: Request) -> bool:
    """A list where a plain string would do. Gemini knows nothing but parts."""
    return request.dialect != "gemini" and any(
        isinstance(content, list) and all(_is_text(part) for part in content) for content in request.contents
    )


def _empty_text_block(request: Request) -> bool:
    """A text part with nothing in it. A string is one text block in Anthropic's dialect; in Gemini's, a part
    without text may be there to carry a thought signature."""
    for content in request.contents:
        if content == "" and request.dialect == "anthropic-messages":
            return True
        for part in content if isinstance(content, list) else ():
            if _is_text(part) and not part["text"] and thought_signature(part) is None:
                return True
    return False


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(part.get("text"), str)


def _bad_arguments(request: Request) -> bool:
    """Arguments of a replayed call that aren't one JSON object, in the form that the dialect wants."""
    return any(not _is_object(request, call.arguments) for call in request.calls)


def _is_object(request: Request, arguments: Any) -> bool:
    if request.dialect in ("anthropic-messages", "gemini"):
        return isinstance(arguments, dict)
    if not isinstance(arguments, str):
        return False
    try:
        return isinstance(json.loads(arguments), dict)
    except ValueError:
        return False


def _bad_tool_name(request: Request) -> bool:
    names = [tool.name for tool in request.tools] + [call.name for call in request.calls]
    return any(not _TOOL_NAME.fullmatch(name) for name in names)


def _empty_tools(request: Request) -> bool:
    return request.tools_field is not None and not request.tools


def _parallel_flag(request: Request) -> bool:
    in_choice = isinstance(request.choice, dict) and "disable_parallel_tool_use" in request.choice
    return "parallel_tool_calls" in request.body or in_choice


def _signatures(value: Any) -> Iterator[Any]:
    """Every signature in the history, at any depth; redacted thinking carries it as `data`."""
    if isinstance(value, Mapping):
        redacted = value.get("type") in ("redacted_thinking", "reasoning.encrypted")
        for name, inner in value.items():
            if name in _SIGNATURE_FIELDS or (redacted and name == "data"):
                yield inner
            yield from _signatures(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _signatures(inner)


def _query(request: Request, argument: str) -> bool:
    name, equals, value = argument.partition("=")
    return any(name == key and (not equals or value == found) for key, found in request.query)


_PLAIN: dict[str, Callable[[Request], bool]] = {
    "any": lambda request: True,
    "get": lambda request: request.method == "GET",
    "forced": lambda request: bool(request.tools) and request.mode == "forced",
    "auto": lambda request: bool(request.tools) and request.mode == "auto",
    "no_tools": lambda request: not request.tools,
    "has_tool_history": _has_history,
    "undeclared_history": _undeclared_history,
    "undeclared_called_tool": _undeclared_called_tool,
    "displaced": lambda request: request.pairing.displaced,
    "missing_result": lambda request: request.pairing.missing,
    "orphaned_result": lambda request: request.pairing.orphaned,
    "duplicate_result": lambda request: request.pairing.duplicate,
    "clean_history": _clean_history,
    "flattened_history": _flattened_history,
    "reasoning_missing": _reasoning_missing,
    "id_not_9_alnum": lambda request: any(not _NINE_ALNUM.fullmatch(one or "") for one in request.ids),
    "id_too_long": lambda request: any(len(one or "") > 40 for one in request.ids),
    "duplicate_call_id": _duplicate_call_id,
    "user_after_tool": _user_after_tool,
    "consecutive_user": _consecutive_user,
    "system_role": lambda request: any(turn.role == "system" for turn in request.turns),
    "null_content": lambda request: any(content is None for content in request.contents),
    "content_parts": _content_parts,
    "empty_text_block": _empty_text_block,
    "bad_arguments": _bad_arguments,
    "bad_tool_name": _bad_tool_name,
    "strict_tools": lambda request: any(tool.strict for tool in request.tools),
    "empty_parameters": lambda request: any(not tool.parameters.get("properties") for tool in request.tools),
    "empty_tools": _empty_tools,
    "tool_choice_without_tools": lambda request: request.choice is not None and not request.tools,
    "parallel_flag": _parallel_flag,
    "reasoning_content_present": lambda request: any("reasoning_content" in one for one in request.messages),
}

_WITH_ARGUMENT: dict[str, Callable[[Request, str], bool]] = {
    "cap": lambda request, name: name in request.body,
    "header": lambda request, name: name.lower() in request.headers,
    "query": _query,
    "call_id": lambda request, one: any(call.id == one for call in request.calls),
    "signature": lambda request, text: text in _signatures(request.messages),
}
