"""What the conditions of a scenario mean, in all four dialects."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from service.demo import predicates
from service.demo.predicates import UnknownPredicate, holds
from service.demo.request import Request
from tests.peer import load_corpus

CHAT, RESPONSES, ANTHROPIC, GEMINI = "openai-chat", "openai-responses", "anthropic-messages", "gemini"
DIALECTS = (CHAT, RESPONSES, ANTHROPIC, GEMINI)
SCHEMA = {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]}
ARGUMENTS = '{"value":"ok"}'

# --- one neutral history, spelled in each dialect ---------------------------------------------------------
# ("user",), ("assistant",), ("calls", id, ...), ("result", id)


def name_of(id: str) -> str:
    return f"tool_{id[-1]}"


def chat(history: list[tuple[str, ...]]) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    for kind, *ids in history:
        if kind == "calls":
            calls = [
                {"id": i, "type": "function", "function": {"name": name_of(i), "arguments": ARGUMENTS}} for i in ids
            ]
            messages.append({"role": "assistant", "content": "Well.", "tool_calls": calls})
        elif kind == "result":
            messages.append({"role": "tool", "tool_call_id": ids[0], "content": "done"})
        else:
            messages.append({"role": kind, "content": "Hello."})
    return {"model": "m", "messages": messages}


def responses(history: list[tuple[str, ...]]) -> dict[str, Any]:
    items: list[dict[str, Any]] = []
    for kind, *ids in history:
        if kind == "calls":
            items += [{"type": "function_call", "call_id": i, "name": name_of(i), "arguments": ARGUMENTS} for i in ids]
            items.append({"type": "message", "role": "assistant", "content": "Well."})
        elif kind == "result":
            items.append({"type": "function_call_output", "call_id": ids[0], "output": "done"})
        else:
            items.append({"role": kind, "content": "Hello."})
    return {"model": "m", "input": items}


def anthropic(history: list[tuple[str, ...]]) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    for kind, *ids in history:
        if kind == "calls":
            blocks = [{"type": "tool_use", "id": i, "name": name_of(i), "input": {"value": "ok"}} for i in ids]
            messages.append({"role": "assistant", "content": [{"type": "text", "text": "Well."}, *blocks]})
        elif kind == "result":
            block = {"type": "tool_result", "tool_use_id": ids[0], "content": "done"}
            if messages and messages[-1]["role"] == "user" and isinstance(messages[-1]["content"], list):
                messages[-1]["content"].append(block)
            else:
                messages.append({"role": "user", "content": [block]})
        elif kind == "user" and messages and messages[-1]["role"] == "user":
            messages[-1]["content"].append({"type": "text", "text": "Hello."})
        else:
            messages.append({"role": kind, "content": "Hello."})
    return {"model": "m", "messages": messages}


def gemini(history: list[tuple[str, ...]]) -> dict[str, Any]:
    contents: list[dict[str, Any]] = []
    for kind, *ids in history:
        if kind == "calls":
            parts: list[dict[str, Any]] = [{"functionCall": {"name": name_of(i), "args": {"value": "ok"}}} for i in ids]
        elif kind == "result":
            parts = [{"functionResponse": {"name": name_of(ids[0]), "response": {"result": "done"}}}]
        else:
            parts = [{"text": "Hello."}]
        role = "model" if kind in ("calls", "assistant") else "user"
        contents.append({"role": role, "parts": parts})
    return {"contents": contents}


SPELL = {CHAT: chat, RESPONSES: responses, ANTHROPIC: anthropic, GEMINI: gemini}


def tools(dialect: str, *names: str, parameters: Any = SCHEMA) -> list[dict[str, Any]]:
    match dialect:
        case "openai-chat":
            return [{"type": "function", "function": {"name": name, "parameters": parameters}} for name in names]
        case "openai-responses":
            return [{"type": "function", "name": name, "parameters": parameters} for name in names]
        case "anthropic-messages":
            return [{"name": name, "input_schema": parameters} for name in names]
        case _:
            return [{"functionDeclarations": [{"name": name, "parameters": parameters} for name in names]}]


def request(dialect: str, *history: tuple[str, ...], declared: tuple[str, ...] = (), **more: Any) -> Request:
    body = {**SPELL[dialect](list(history)), **more}
    if declared:
        body["tools"] = tools(dialect, *declared)
    return Request(dialect, body=body)


C1, C2 = "c0000000a", "c0000000b"
CALL, CALLS, R1, R2 = ("calls", C1), ("calls", C1, C2), ("result", C1), ("result", C2)
USER, ASSISTANT = ("user",), ("assistant",)
TURN_WORDS = {
    "has_tool_history", "undeclared_history", "undeclared_called_tool", "displaced", "missing_result",
    "orphaned_result", "duplicate_result", "clean_history", "flattened_history", "user_after_tool",
}  # fmt: skip


def true_of(one: Request, words: set[str]) -> set[str]:
    return {word for word in words if holds(word, one)}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("history", "declared", "expected"),
    [
        ([USER], (), set()),
        ([USER, ASSISTANT, USER], (), {"flattened_history"}),
        ([USER, CALL, R1], ("tool_a",), {"has_tool_history", "clean_history"}),
        ([USER, CALLS, R1, R2], ("tool_a", "tool_b"), {"has_tool_history", "clean_history"}),
        ([USER, CALLS, R2, R1], ("tool_a", "tool_b"), {"has_tool_history", "clean_history"}),
        ([USER, CALL, R1], (), {"has_tool_history", "undeclared_history", "undeclared_called_tool"}),
        ([USER, CALL, R1], ("other",), {"has_tool_history", "undeclared_called_tool"}),
        ([USER, CALLS, R1, R2], ("tool_a",), {"has_tool_history", "undeclared_called_tool"}),
        ([USER, CALLS, R1, USER, R2], ("tool_a", "tool_b"), {"has_tool_history", "displaced", "user_after_tool"}),
        ([USER, CALL, USER, R1], ("tool_a",), {"has_tool_history", "displaced"}),
        ([USER, CALL, USER], ("tool_a",), {"has_tool_history", "missing_result"}),
        ([USER, CALLS, R1], ("tool_a", "tool_b"), {"has_tool_history", "missing_result"}),
        ([USER, CALL, USER, CALL, R1], ("tool_a",), {"has_tool_history", "missing_result"}),
        ([USER, CALL, R1, CALL, USER, R1], ("tool_a",), {"has_tool_history", "displaced"}),
        ([USER, R1], ("tool_a",), {"has_tool_history", "orphaned_result"}),
        ([USER, R1, CALL], ("tool_a",), {"has_tool_history", "orphaned_result", "missing_result"}),
        ([USER, CALL, R1, R1], ("tool_a",), {"has_tool_history", "duplicate_result"}),
        (
            [USER, CALL, R1, ASSISTANT, USER, CALL, R1],
            ("tool_a",),
            {"has_tool_history", "clean_history"},
        ),
        ([USER, CALL, R1, USER], ("tool_a",), {"has_tool_history", "clean_history", "user_after_tool"}),
    ],
)
def test_the_shape_of_a_history_is_read_alike_in_every_dialect(
    dialect: str, history: list[tuple[str, ...]], declared: tuple[str, ...], expected: set[str]
) -> None:
    one = request(dialect, *history, declared=declared)
    assert true_of(one, TURN_WORDS) == expected


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_assistant_turn_before_the_result_displaces_it_where_the_api_does_not_merge_it(dialect: str) -> None:
    one = request(dialect, USER, CALL, ASSISTANT, R1, declared=("tool_a",))
    assert holds("displaced", one) is (dialect == CHAT)


def test_two_calls_of_one_name_without_ids_are_two_calls() -> None:
    part = {"functionCall": {"name": "f", "args": {}}}
    answer = {"functionResponse": {"name": "f", "response": {}}}

    def pairing(*parts: list[dict[str, Any]]) -> set[str]:
        contents = [{"role": "user" if n % 2 else "model", "parts": one} for n, one in enumerate(parts)]
        return true_of(Request(GEMINI, body={"contents": contents}), TURN_WORDS) - {
            "has_tool_history", "undeclared_history", "undeclared_called_tool", "user_after_tool",
        }  # fmt: skip

    assert pairing([part, part], [answer, answer]) == set()
    assert pairing([part, part], [answer]) == {"missing_result"}
    assert pairing([part, part], [answer, answer, answer]) == {"duplicate_result"}
    assert pairing([part, part], [answer, {"text": "Wait."}, answer]) == {"displaced"}


def test_gemini_pairs_by_id_where_both_have_one() -> None:
    def one(call_id: str, result_id: str) -> Request:
        call = {"functionCall": {"name": "f", "id": call_id, "args": {}}}
        result = {"function_response": {"name": "f", "id": result_id, "response": {}}}
        contents = [{"role": "model", "parts": [call]}, {"role": "user", "parts": [result]}]
        return Request(GEMINI, body={"contents": contents})

    assert not holds("orphaned_result", one("1", "1"))
    assert holds("orphaned_result", one("1", "2"))


# --- tools and choice -------------------------------------------------------------------------------------


def gemini_mode(mode: str) -> dict[str, Any]:
    return {"toolConfig": {"functionCallingConfig": {"mode": mode}}}


@pytest.mark.parametrize(
    ("dialect", "more", "expected"),
    [
        (CHAT, {}, "auto"),
        (CHAT, {"tool_choice": None}, "auto"),
        (CHAT, {"tool_choice": "auto"}, "auto"),
        (CHAT, {"tool_choice": "required"}, "forced"),
        (CHAT, {"tool_choice": {"type": "function", "function": {"name": "f"}}}, "forced"),
        (CHAT, {"tool_choice": "none"}, None),
        (RESPONSES, {}, "auto"),
        (RESPONSES, {"tool_choice": "auto"}, "auto"),
        (RESPONSES, {"tool_choice": "required"}, "forced"),
        (RESPONSES, {"tool_choice": {"type": "function", "name": "f"}}, "forced"),
        (RESPONSES, {"tool_choice": "none"}, None),
        (ANTHROPIC, {}, "auto"),
        (ANTHROPIC, {"tool_choice": {"type": "auto"}}, "auto"),
        (ANTHROPIC, {"tool_choice": {"type": "any"}}, "forced"),
        (ANTHROPIC, {"tool_choice": {"type": "tool", "name": "f"}}, "forced"),
        (ANTHROPIC, {"tool_choice": {"type": "none"}}, None),
        (GEMINI, {}, "auto"),
        (GEMINI, gemini_mode("AUTO"), "auto"),
        (GEMINI, gemini_mode("ANY"), "forced"),
        (GEMINI, {"tool_config": {"function_calling_config": {"mode": "ANY"}}}, "forced"),
        (GEMINI, gemini_mode("NONE"), None),
    ],
)
def test_forced_and_auto_need_tools_and_no_tools_is_their_absence(
    dialect: str, more: dict[str, Any], expected: str | None
) -> None:
    words = {"forced", "auto", "no_tools", "tool_choice_without_tools"}
    with_tools = true_of(request(dialect, USER, declared=("f",), **more), words)
    without = true_of(request(dialect, USER, **more), words)
    assert with_tools == ({expected} if expected else set())
    chosen = any(value is not None for value in more.values())
    assert without == {"no_tools"} | ({"tool_choice_without_tools"} if chosen else set())


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_plain_request_makes_none_of_the_mistakes(dialect: str) -> None:
    mistakes = {
        "system_role", "null_content", "content_parts", "empty_text_block", "bad_arguments", "bad_tool_name",
        "strict_tools", "empty_parameters", "empty_tools", "tool_choice_without_tools", "parallel_flag",
        "reasoning_content_present", "id_not_9_alnum", "id_too_long", "duplicate_call_id", "consecutive_user",
    }  # fmt: skip
    one = request(dialect, USER, CALLS, R1, R2, declared=("tool_a", "tool_b"))
    if dialect == GEMINI:
        mistakes.remove("consecutive_user")  # the table's Gemini history keeps its results in two messages
    assert true_of(one, mistakes) == set()


def cases_of_mistakes() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for dialect in DIALECTS:
        field = {RESPONSES: "input", GEMINI: "contents"}.get(dialect, "messages")
        yield "empty_tools", dialect, {"tools": []}
        yield "empty_parameters", dialect, {"tools": tools(dialect, "f", parameters={"type": "object"})}
        yield "empty_parameters", dialect, {"tools": tools(dialect, "f", parameters=None)}
        for bad in ("0tool", "tool name", "naïve", "a.b", "x" * 65, ""):
            yield "bad_tool_name", dialect, {"tools": tools(dialect, bad)}
        yield "system_role", dialect, {field: [{"role": "system", "content": "x", "parts": [{"text": "x"}]}]}
        yield "null_content", dialect, {field: [{"role": "user", "content": None}]}
        yield "null_content", dialect, {field: [{"role": "user"}]}
        for number in (2, 3):
            yield "consecutive_user", dialect, {field: [{"role": "user", "content": "x"}] * number}
    yield "system_role", CHAT, {"messages": [{"role": "developer", "content": "x"}]}
    yield "empty_tools", GEMINI, {"tools": [{"functionDeclarations": []}]}
    for dialect, kind in ((CHAT, "text"), (ANTHROPIC, "text"), (RESPONSES, "input_text")):
        field = "input" if dialect == RESPONSES else "messages"
        yield "content_parts", dialect, {field: [{"role": "user", "content": [{"type": kind, "text": "x"}]}]}
        yield "empty_text_block", dialect, {field: [{"role": "user", "content": [{"type": kind, "text": ""}]}]}
    yield "empty_text_block", ANTHROPIC, {"messages": [{"role": "user", "content": ""}]}
    yield "empty_text_block", GEMINI, {"contents": [{"role": "user", "parts": [{"text": ""}]}]}
    yield "parallel_flag", CHAT, {"parallel_tool_calls": False}
    yield "parallel_flag", RESPONSES, {"parallel_tool_calls": True}
    yield "parallel_flag", ANTHROPIC, {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}
    yield "reasoning_content_present", CHAT, {"messages": [{"role": "assistant", "reasoning_content": ""}]}
    function = {"name": "f", "parameters": SCHEMA, "strict": True}
    yield "strict_tools", CHAT, {"tools": [{"type": "function", "function": function}]}
    yield "strict_tools", RESPONSES, {"tools": [{"type": "function", **function}]}
    yield "strict_tools", ANTHROPIC, {"tools": [{"name": "f", "input_schema": SCHEMA, "strict": True}]}


@pytest.mark.parametrize(("word", "dialect", "body"), list(cases_of_mistakes()))
def test_a_mistake_in_a_request_is_seen(word: str, dialect: str, body: dict[str, Any]) -> None:
    assert holds(word, Request(dialect, body=body))
    assert not holds(f"not:{word}", Request(dialect, body=body))


def test_an_empty_gemini_text_that_carries_a_signature_is_no_mistake() -> None:
    parts = [{"text": "", "thoughtSignature": "abc"}]
    assert not holds("empty_text_block", Request(GEMINI, body={"contents": [{"role": "model", "parts": parts}]}))


# --- ids, arguments, reasoning ----------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", [CHAT, RESPONSES, ANTHROPIC])
@pytest.mark.parametrize(
    ("id", "expected"),
    [
        ("abcDEF123", set()),
        ("call_12345", {"id_not_9_alnum"}),
        ("abcdefgh", {"id_not_9_alnum"}),
        ("x" * 40, {"id_not_9_alnum"}),
        ("x" * 41, {"id_not_9_alnum", "id_too_long"}),
    ],
)
def test_the_form_of_ids(dialect: str, id: str, expected: set[str]) -> None:
    one = request(dialect, USER, ("calls", id), ("result", id))
    assert true_of(one, {"id_not_9_alnum", "id_too_long"}) == expected
    assert true_of(request(dialect, ("result", id)), {"id_not_9_alnum", "id_too_long"}) == expected


def test_an_id_of_null_is_not_nine_alphanumerics() -> None:
    body = chat([USER, CALL, R1])
    body["messages"][1]["tool_calls"][0]["id"] = None
    body["messages"][2]["tool_call_id"] = None
    assert holds(["id_not_9_alnum", "not:orphaned_result", "not:missing_result"], Request(CHAT, body=body))


@pytest.mark.parametrize("dialect", [CHAT, RESPONSES, ANTHROPIC])
def test_two_calls_may_share_an_id_only_by_mistake(dialect: str) -> None:
    assert holds("duplicate_call_id", request(dialect, USER, ("calls", C1, C1)))
    assert not holds("duplicate_call_id", request(dialect, USER, CALL, R1, R1))
    assert holds(f"call_id:{C2}", request(dialect, USER, CALLS))
    assert not holds(f"call_id:{C2}", request(dialect, USER, CALL, R2))


def with_arguments(dialect: str, arguments: Any) -> Request:
    body = SPELL[dialect]([USER, CALL])
    if dialect == CHAT:
        body["messages"][1]["tool_calls"][0]["function"]["arguments"] = arguments
    elif dialect == RESPONSES:
        body["input"][1]["arguments"] = arguments
    elif dialect == ANTHROPIC:
        body["messages"][1]["content"][1]["input"] = arguments
    else:
        body["contents"][1]["parts"][0]["functionCall"]["args"] = arguments
    return Request(dialect, body=body)


@pytest.mark.parametrize(
    ("dialect", "arguments", "bad"),
    [(dialect, arguments, arguments != "{}") for dialect in (CHAT, RESPONSES)
     for arguments in ("{}", "", "{", "[]", '"{}"', "{}{}", {}, None)]
    + [(dialect, arguments, arguments != {}) for dialect in (ANTHROPIC, GEMINI)
       for arguments in ({}, "{}", [], None)],
)  # fmt: skip
def test_arguments_are_one_object_in_the_form_of_the_dialect(dialect: str, arguments: Any, bad: bool) -> None:
    assert holds("bad_arguments", with_arguments(dialect, arguments)) is bad


def with_reasoning(dialect: str, *, signature: str) -> Request:
    body = copy.deepcopy(SPELL[dialect]([USER, CALL, R1]))
    if dialect == CHAT:
        extra = {"google": {"thought_signature": signature}}
        body["messages"][1]["tool_calls"][0]["extra_content"] = extra
    elif dialect == RESPONSES:
        body["input"].insert(1, {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": signature})
    elif dialect == ANTHROPIC:
        thinking = {"type": "thinking", "thinking": "Well.", "signature": signature}
        body["messages"][1]["content"].insert(0, thinking)
    else:
        body["contents"][1]["parts"][0]["thoughtSignature"] = signature
    return Request(dialect, body=body)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_reasoning_is_missing_from_a_turn_with_a_call_and_a_signature_must_be_the_same(dialect: str) -> None:
    assert holds("reasoning_missing", request(dialect, USER, CALL, R1))
    assert not holds("reasoning_missing", request(dialect, USER, ASSISTANT, USER))
    one = with_reasoning(dialect, signature="c2ln")
    assert not holds("reasoning_missing", one)
    assert holds("signature:c2ln", one)
    assert not holds("signature:c2l", one)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "reasoning_details"])
def test_any_reasoning_field_of_chat_counts_and_null_does_not(field: str) -> None:
    body = chat([USER, CALL, R1])
    body["messages"][1][field] = None
    assert holds("reasoning_missing", Request(CHAT, body=body))
    body["messages"][1][field] = "Well."
    assert not holds("reasoning_missing", Request(CHAT, body=dict(body)))


def test_every_turn_with_a_call_needs_its_own_reasoning() -> None:
    body = with_reasoning(RESPONSES, signature="x").body
    second = {"type": "function_call", "call_id": C2, "name": "f", "arguments": "{}"}
    assert holds("reasoning_missing", Request(RESPONSES, body={**body, "input": [*body["input"], second]}))


def test_reasoning_may_stand_anywhere_in_its_turn() -> None:
    call = {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "c2ln"}
    model = {"role": "model", "parts": [{"text": "Well."}, call]}
    assert not holds("reasoning_missing", Request(GEMINI, body={"contents": [model]}))


def test_redacted_thinking_is_reasoning_and_its_data_a_signature() -> None:
    body = anthropic([USER, CALL, R1])
    body["messages"][1]["content"].insert(0, {"type": "redacted_thinking", "data": "c2ln"})
    assert holds(["not:reasoning_missing", "signature:c2ln"], Request(ANTHROPIC, body=body))


# --- the rest ---------------------------------------------------------------------------------------------


def test_fields_headers_and_query_parts() -> None:
    one = Request(
        CHAT,
        headers={"x-api-key": "k"},
        query=(("alt", "sse"), ("n", "")),
        body={"max_tokens": 1, "nested": {"max_completion_tokens": 1}},
    )
    assert holds(["cap:max_tokens", "not:cap:max_completion_tokens"], one)
    assert holds(["header:X-Api-Key", "not:header:authorization"], one)
    assert holds(["query:alt=sse", "query:alt", "query:n", "not:query:alt=json", "not:query:sse"], one)


def test_any_always_holds_and_get_goes_by_the_method() -> None:
    assert holds(["any", "not:get"], Request(CHAT))
    assert holds(["any", "get"], Request(CHAT, method="GET"))


def test_a_list_means_all() -> None:
    one = request(CHAT, USER, declared=("f",))
    assert holds(["auto", "any"], one)
    assert not holds(["any", "forced"], one)


@pytest.mark.parametrize("name", ["", "forcd", "not:", "not:forcd", "cap", "cap:", "any:1", "not:any:1", "forced "])
def test_an_unknown_predicate_raises(name: str) -> None:
    with pytest.raises(UnknownPredicate):
        holds(name, Request(CHAT))
    with pytest.raises(UnknownPredicate):
        predicates.check(["any", name])


def test_nothing_in_a_strange_body_raises() -> None:
    strange: list[Any] = [None, 1, "x", [], {}, [None], [1], [[]], [{}], [{"content": [None, {}]}], [{"parts": [{}]}]]
    names = [*predicates._PLAIN, "cap:x", "header:x", "query:x", "call_id:x", "signature:x"]
    for dialect in DIALECTS:
        for value in strange:
            fields = ("messages", "input", "contents", "tools", "tool_choice", "toolConfig", "model")
            one = Request(dialect, body=dict.fromkeys(fields, value))
            assert isinstance([holds(name, one) for name in names], list)
            assert isinstance(one.tool_names, tuple)


def test_every_predicate_of_the_corpus_is_known() -> None:
    assert len(load_corpus()) > 400
    for scenario in load_corpus():
        for entry in scenario.replies:
            predicates.check(entry.when)
