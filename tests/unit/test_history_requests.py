"""The requests of every history shape and its control in every dialect: pinned, tidy, and of the official SDKs' types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from google.genai import types
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from pydantic import TypeAdapter, ValidationError

from service.contracts.ladder import TOOL
from service.demo.predicates import holds
from service.demo.request import Request
from service.dialects import DIALECTS
from service.model import Ask, Choice, Message, Role
from tests.exchanges import R4, ROUTE, climb
from tests.unit.test_history import SHAPES
from tests.unit.test_openai_sdk import whole

RUNGS = ("shape", "control", "flattened")
PINNED = Path(__file__).parent / "history_requests.jsonl"
MESSAGES = {"openai-responses": "input", "gemini": "contents"}
CHOICE = {"gemini": "toolConfig"}


@dataclass(frozen=True)
class Sent:
    """A request as it goes out. `rest` is what doesn't belong to the history."""

    dialect: str
    shape: str
    rung: str
    body: Mapping[str, Any]

    @property
    def name(self) -> str:
        return f"{self.dialect} {self.shape} {self.rung}"

    @property
    def messages(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.body[MESSAGES.get(self.dialect, "messages")]
        return found

    @property
    def choice(self) -> Any:
        return self.body.get(CHOICE.get(self.dialect, "tool_choice"))

    @property
    def rest(self) -> dict[str, Any]:
        apart = {MESSAGES.get(self.dialect, "messages"), CHOICE.get(self.dialect, "tool_choice"), "tools"}
        return {name: value for name, value in self.body.items() if name not in apart}

    def pinned(self) -> str:
        given = {
            "dialect": self.dialect,
            "shape": self.shape,
            "rung": self.rung,
            "tools": "tools" in self.body,
            "choice": self.choice,
            "messages": self.messages,
        }
        return json.dumps(given, ensure_ascii=False)

    def holds(self, *predicates: str) -> set[str]:
        request = Request(self.dialect, body=self.body)
        return {predicate for predicate in predicates if holds(predicate, request)}


def encoded(dialect: str, ask: Ask) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(DIALECTS[dialect].encode(replace(ROUTE, dialect=dialect), ask).body)
    return body


def all_sent() -> list[Sent]:
    refused = dict.fromkeys((*RUNGS, "own_call", "own_call_auto"), R4)
    return [
        Sent(dialect, name, exchange.ask.rung, encoded(dialect, exchange.ask))
        for dialect in DIALECTS
        for name, contract in SHAPES.items()
        for exchange in climb(contract, refused)
        if exchange.ask.rung in RUNGS and (DIALECTS[dialect].mixes_results or not exchange.ask.mixed)
    ]


SENT = all_sent()
every_request = pytest.mark.parametrize("sent", SENT, ids=lambda sent: sent.name)


def test_every_shape_is_there_with_its_control() -> None:
    names = {(one.dialect, one.shape, one.rung) for one in SENT}
    for dialect, of in DIALECTS.items():
        for shape in SHAPES:
            assert ((dialect, shape, "shape") in names) == (of.mixes_results or shape != "mixed_result_carrier")
            assert (dialect, shape, "control") in names
        assert (dialect, "undeclared_tool_history", "flattened") in names


def test_the_requests_are_those_that_are_pinned() -> None:
    pinned = PINNED.read_text(encoding="utf-8").splitlines()
    assert [json.loads(one.pinned()) for one in SENT] == [json.loads(line) for line in pinned]


@every_request
def test_what_is_not_the_history_is_as_in_any_other_request(sent: Sent) -> None:
    ask = Ask("auto", (Message(Role.USER, "Call it."),), (TOOL,), Choice.AUTO)
    usual = Sent(sent.dialect, "", "", encoded(sent.dialect, ask))
    assert sent.rest == usual.rest
    assert sent.body.get("tools", usual.body["tools"]) == usual.body["tools"]
    if sent.shape != "tool_choice_none_history" or sent.rung != "shape":
        assert sent.choice == (usual.choice if "tools" in sent.body else None)


UNTIDY = (
    "id_not_9_alnum",
    "id_too_long",
    "duplicate_call_id",
    "system_role",
    "null_content",
    "content_parts",
    "empty_text_block",
    "bad_arguments",
    "bad_tool_name",
    "strict_tools",
    "empty_parameters",
    "empty_tools",
    "tool_choice_without_tools",
    "parallel_flag",
    "undeclared_called_tool",
    "consecutive_user",
)
# What the shape is about can't be tidied away.
OF_THE_SHAPE = {
    "undeclared_tool_history": {"undeclared_called_tool"},
    "displaced_tool_results": {"consecutive_user"},
}


@every_request
def test_a_history_is_tidy(sent: Sent) -> None:
    about = OF_THE_SHAPE.get(sent.shape, set()) if sent.rung == "shape" else set()
    assert sent.holds(*UNTIDY) <= about


def test_tidiness_could_be_missed() -> None:
    [one] = [sent for sent in SENT if sent.name == "openai-chat missing_tool_results control"]
    system = replace(one, body={**one.body, "messages": [{"role": "system", "content": ""}, *one.messages]})
    assert system.holds(*UNTIDY) == {"system_role"}
    bare = replace(one, body={name: value for name, value in one.body.items() if name != "tools"})
    assert bare.holds(*UNTIDY) == {"tool_choice_without_tools", "undeclared_called_tool"}


def texts_beside_calls(sent: Sent) -> list[str]:
    """The text of every assistant's message that calls, by the dialect's own form."""
    match sent.dialect:
        case "openai-chat":
            return [one["content"] for one in sent.messages if one.get("tool_calls")]
        case "openai-responses":
            return [
                one.get("content", "")
                for one, behind in pairwise(sent.messages)
                if behind.get("type") == "function_call" and one.get("type") != "function_call"
            ]
        case "anthropic-messages":
            return [
                one["content"][0].get("text", "")
                for one in sent.messages
                if isinstance(one["content"], list) and any(block["type"] == "tool_use" for block in one["content"])
            ]
        case _:
            calling = [one["parts"] for one in sent.messages if any("functionCall" in part for part in one["parts"])]
            return [parts[0].get("text", "") for parts in calling]


@every_request
def test_a_short_text_stands_beside_calls(sent: Sent) -> None:
    texts = texts_beside_calls(sent)
    calls = sent.rung != "flattened" and sent.shape != "orphaned_tool_results"
    assert len(texts) == (1 if calls else 0)
    assert all(0 < len(text.strip()) <= 40 for text in texts)


FAULTS = ("displaced", "missing_result", "orphaned_result", "duplicate_result", "undeclared_history")
FAULT_OF = {
    "undeclared_tool_history": "undeclared_history",
    "displaced_tool_results": "displaced",
    "missing_tool_results": "missing_result",
    "orphaned_tool_results": "orphaned_result",
    "duplicate_tool_results": "duplicate_result",
}


@every_request
def test_a_shape_has_the_one_fault_that_it_is_named_for_and_its_control_none(sent: Sent) -> None:
    fault = {FAULT_OF[sent.shape]} if sent.rung == "shape" and sent.shape in FAULT_OF else set()
    assert sent.holds(*FAULTS) == fault
    with_history = not fault and sent.rung != "flattened" and sent.shape != "orphaned_tool_results"
    assert sent.holds("clean_history") == ({"clean_history"} if with_history else set())
    flat = sent.rung == "flattened" or (sent.shape == "orphaned_tool_results" and sent.rung == "control")
    assert sent.holds("flattened_history") == ({"flattened_history"} if flat else set())


def test_the_control_of_displaced_results_ends_in_the_last_result() -> None:
    for sent in SENT:
        if (sent.shape, sent.rung) == ("displaced_tool_results", "control"):
            assert sent.holds("user_after_tool") == set()


# --- of the official types ---


TYPES: Mapping[str, TypeAdapter[Any]] = {
    "openai-chat": TypeAdapter(CompletionCreateParamsStreaming),
    "openai-responses": TypeAdapter(ResponseCreateParamsStreaming),
    "anthropic-messages": TypeAdapter(MessageCreateParamsStreaming),
}


@pytest.mark.parametrize("sent", [one for one in SENT if one.dialect in TYPES], ids=lambda sent: sent.name)
def test_it_is_a_request_of_the_official_types(sent: Sent) -> None:
    assert whole(TYPES[sent.dialect].validate_python(sent.body)) == sent.body


@pytest.mark.parametrize("sent", [one for one in SENT if one.dialect == "gemini"], ids=lambda sent: sent.name)
def test_it_is_a_request_of_googles_types(sent: Sent) -> None:
    given: list[tuple[type[types.Content | types.ToolConfig], Any]] = [(types.Content, one) for one in sent.messages]
    if sent.choice is not None:
        given.append((types.ToolConfig, sent.choice))
    for kind, value in given:
        assert kind.model_validate(value).model_dump(mode="json", by_alias=True, exclude_none=True) == value


@pytest.mark.parametrize("dialect", TYPES)
def test_the_types_would_tell(dialect: str) -> None:
    sent = next(one for one in SENT if one.name == f"{dialect} missing_tool_results control")
    name = MESSAGES.get(dialect, "messages")
    with pytest.raises(ValidationError):
        whole(TYPES[dialect].validate_python({**sent.body, name: [*sent.messages, {"role": "nobody"}]}))


def test_googles_types_would_tell() -> None:
    with pytest.raises(ValidationError):
        types.Content.model_validate({"role": "user", "parts": [{"functionResult": {"name": "f"}}]})
