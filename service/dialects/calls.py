"""Putting a streamed tool call together, and saying what is wrong with it. Arguments are never repaired.

The rules are those of every dialect: a name is set once, a fragment of it is appended only while the sum is still a
prefix of a declared name; empty and null are no-ops; arguments are appended as they come.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from service.dialects.leaks import has_call_markup
from service.model import Call, Tool

_JSON_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "object": dict,
    "array": list,
}

# What an answer that was cut by a token cap looks like; other problems are not the cap's doing.
_CUT = frozenset({"arguments_truncated", "arguments_not_json", "name_missing"})


class Draft:
    """A call while its stream runs."""

    __slots__ = ("extra", "fragments", "id", "name", "not_string")

    def __init__(self, call_id: str = "") -> None:
        self.id = call_id
        self.name = ""
        self.fragments: list[str] = []
        self.not_string = False
        self.extra: dict[str, Any] = {}  # further fields that a replay must carry

    def add_name(self, fragment: str, declared: Sequence[str]) -> str | None:
        """Take a name or a piece of one. Returns the quirk that this is, if any."""
        if not self.name:
            self.name = fragment
        elif any(name.startswith(self.name + fragment) for name in declared):
            self.name += fragment
            return "name_fragmented"
        elif fragment == self.name and self.name in declared:
            return "name_repeated"
        return None

    def add_arguments(self, fragment: Any) -> None:
        """Take a piece of the arguments; anything but a string or nothing is a fault of its own."""
        if fragment is None:
            return
        if isinstance(fragment, str):
            self.fragments.append(fragment)
        else:
            self.not_string = True

    @property
    def arguments(self) -> str:
        return "".join(self.fragments)

    def differs_from(self, asked: Mapping[str, str]) -> bool:
        """Whether a call carries other strings than those that were asked for."""
        value = _parse(self.arguments)
        return isinstance(value, dict) and any(
            isinstance(value.get(name), str) and value[name] != wanted for name, wanted in asked.items()
        )


def judge_calls(drafts: Sequence[Draft], tools: Sequence[Tool], *, need_ids: bool = True) -> tuple[Call, ...]:
    """Each call as a fact: dispatchable as it stands, or the reason why not. `need_ids` says that a call without an
    id can't be answered."""
    if _identity_unstable(drafts):
        return (Call("call_identity_unstable"), *(Call() for _ in drafts[1:]))
    seen: set[str] = set()
    calls = []
    for draft in drafts:
        problem = _problem(draft, tools)
        if problem is None and need_ids and not draft.id:
            problem = "id_missing"
        if problem is None and draft.id in seen:
            problem = "call_id_duplicated"
        if draft.id:
            seen.add(draft.id)
        calls.append(Call(problem, cut=_looks_cut(draft, problem, tools)))
    return tuple(calls)


def _identity_unstable(drafts: Sequence[Draft]) -> bool:
    """One call whose fragments came under several ids: there is one name, only the sum is JSON."""
    if len(drafts) < 2 or not drafts[0].name or {draft.name for draft in drafts} - {"", drafts[0].name}:
        return False
    whole = _parse("".join(draft.arguments for draft in drafts))
    return isinstance(whole, dict) and not isinstance(_parse(drafts[0].arguments), dict)


def _problem(draft: Draft, tools: Sequence[Tool]) -> str | None:
    if not draft.name:
        return "name_missing"
    tool = next((tool for tool in tools if tool.name == draft.name), None)
    if tool is None:
        return "name_not_declared"
    if draft.not_string:
        return "arguments_not_string"
    return arguments_problem(draft.fragments, tool)


def _looks_cut(draft: Draft, problem: str | None, tools: Sequence[Tool]) -> bool:
    if problem == "name_not_declared":
        return not draft.arguments and any(tool.name.startswith(draft.name) for tool in tools)
    if problem == "arguments_missing_required":
        return not draft.arguments.strip()
    return problem in _CUT


def arguments_problem(fragments: Sequence[str], tool: Tool) -> str | None:
    """The reason why streamed arguments can't be dispatched to `tool`, None when they can."""
    text = "".join(fragments)
    if not text.strip():
        return "arguments_missing_required" if tool.properties else None
    value = _parse(text)
    if isinstance(value, _Unparsable):
        return _unparsable_reason(text, [fragment for fragment in fragments if fragment], value)
    if isinstance(value, str):
        return "arguments_double_encoded" if isinstance(_parse(value), dict) else "arguments_not_object"
    if not isinstance(value, dict):
        return "arguments_not_object"
    return object_problem(value, tool)


def object_problem(value: Mapping[str, Any], tool: Tool) -> str | None:
    """The reason why an arguments object doesn't satisfy the tool's schema. Undeclared properties are allowed."""
    if any(name not in value for name in tool.properties):
        return "arguments_missing_required"
    for name, kind in tool.properties.items():
        wanted = _JSON_TYPES[kind]
        if not isinstance(value[name], wanted) or (isinstance(value[name], bool) and kind in ("integer", "number")):
            return "arguments_schema_violation"
        if isinstance(value[name], str) and has_call_markup(value[name]):
            return "arguments_polluted"
    return None


class _Unparsable:
    def __init__(self, position: int, unterminated: bool) -> None:
        self.position = position
        self.unterminated = unterminated


def _parse(text: str) -> Any:
    """The JSON value of a text, or `_Unparsable`. Python's own NaN and Infinity are no JSON."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        return _Unparsable(error.pos, error.msg.startswith("Unterminated string"))
    except (ValueError, RecursionError):
        return _Unparsable(0, unterminated=False)


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _unparsable_reason(text: str, fragments: list[str], error: _Unparsable) -> str:
    stripped = text.strip()
    if len(fragments) > 1 and isinstance(_parse(fragments[-1]), dict):
        if "".join(fragments[:-1]).strip() == fragments[-1].strip():
            return "arguments_resent"
        if all(later.startswith(earlier) for earlier, later in pairwise(fragments)):
            return "arguments_cumulative"
    half = len(stripped) // 2
    if len(stripped) % 2 == 0 and stripped[:half] == stripped[half:] and isinstance(_parse(stripped[:half]), dict):
        return "arguments_doubled"
    if error.unterminated or error.position >= len(text.rstrip()):
        return "arguments_truncated" if stripped.startswith("{") or not has_call_markup(text) else "arguments_polluted"
    first, rest = _leading_object(stripped)
    if first is not None and rest:
        return "arguments_concatenated" if _leading_object(rest)[0] is not None else "arguments_trailing_text"
    return "arguments_polluted" if has_call_markup(text) else "arguments_not_json"


def _leading_object(text: str) -> tuple[dict[str, Any] | None, str]:
    try:
        value, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None, text
    return (value, text[end:].strip()) if isinstance(value, dict) else (None, text)
