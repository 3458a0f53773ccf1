"""Streamed calls: what can be dispatched as it stands, and the one reason why not. Nothing is repaired."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.dialects.calls import Draft, arguments_problem, judge_calls
from service.model import Call, Tool

TOOL = Tool("save_the_value", "Saves.", {"value": "string"}, {"value": "ok"})
TYPED = Tool(
    "save_typed_values",
    "Saves.",
    {"text": "string", "flag": "boolean", "count": "integer", "share": "number", "box": "object", "list": "array"},
)
BARE = Tool("take_no_arguments", "Takes none.", {})
OK = '{"value": "ok"}'


def split(text: str) -> list[str]:
    return list(text)


ARGUMENTS: dict[str, tuple[list[str], str | None]] = {
    "whole": ([OK], None),
    "in pieces": (split(OK), None),
    "white space around": ([f" \n{OK}\n "], None),
    "a further property": (['{"value": "ok", "more": {"a": [1]}}'], None),
    "another string": (['{"value": "\\u00e9\\n\\"{}"}'], None),
    "a lone surrogate": (['{"value": "\\ud800"}'], None),
    "empty pieces between": (["", '{"value"', "", ': "ok"}', ""], None),
    "an object in the value": (['{"value": "{\\"value\\": \\"ok\\"}"}'], None),
    # cumulative, resent, doubled
    "cumulative": (list(itertools.accumulate(['{"val', 'ue": ', '"ok"}'])), "arguments_cumulative"),
    "cumulative, the last twice": ([*itertools.accumulate(['{"val', 'ue": ', '"ok"}']), OK], "arguments_cumulative"),
    "resent behind its pieces": ([*split(OK), OK], "arguments_resent"),
    "resent behind its pieces, with white space": ([*split(OK), f"{OK}\n"], "arguments_resent"),
    "sent twice": ([OK, OK], "arguments_resent"),
    "sent three times": ([OK, OK, OK], "arguments_cumulative"),
    "doubled in one piece": ([OK + OK], "arguments_doubled"),
    "doubled, cut elsewhere": ([OK[:4], OK[4:] + OK[:6], OK[6:]], "arguments_doubled"),
    # concatenated, trailing
    "two objects": (['{"value": "a"}{"value": "b"}'], "arguments_concatenated"),
    "an empty object before it": (["{}", OK], "arguments_concatenated"),
    "trailing words": ([f"{OK} I have saved it."], "arguments_trailing_text"),
    "trailing brace": ([OK + "}"], "arguments_trailing_text"),
    "trailing markup": ([OK + "</tool_call>"], "arguments_trailing_text"),
    # double-encoded, no object
    "double-encoded": (['"{\\"value\\": \\"ok\\"}"'], "arguments_double_encoded"),
    "a string": (['"ok"'], "arguments_not_object"),
    "null": (["null"], "arguments_not_object"),
    "a list": (['[{"value": "ok"}]'], "arguments_not_object"),
    "a number": (["1"], "arguments_not_object"),
    # truncated
    "cut in a key": (['{"val'], "arguments_truncated"),
    "cut in a value": (['{"value": "o'], "arguments_truncated"),
    "cut behind a value": (['{"value": "ok"'], "arguments_truncated"),
    "cut behind a colon": (['{"value":'], "arguments_truncated"),
    "cut behind a brace": (["{"], "arguments_truncated"),
    "cut behind a backslash": (['{"value": "o\\'], "arguments_truncated"),
    "cut behind a comma": (['{"value": "ok",'], "arguments_truncated"),
    "cut with white space behind": (['{"value": \n'], "arguments_truncated"),
    # not JSON
    "python quotes": (["{'value': 'ok'}"], "arguments_not_json"),
    "words": (["value is ok"], "arguments_not_json"),
    "words before it": ([f"Sure! {OK}"], "arguments_not_json"),
    "a bare key": (["{value: 'ok'}"], "arguments_not_json"),
    "a missing opening brace": (['"value": "ok"}'], "arguments_not_json"),
    "a trailing comma": (['{"value": "ok",}'], "arguments_not_json"),
    "NaN": (['{"value": NaN}'], "arguments_not_json"),
    "Infinity": (['{"value": "ok", "x": -Infinity}'], "arguments_not_json"),
    "a line break in a string": (['{"value": "o\nk"}'], "arguments_not_json"),
    "nested too deep": (["[" * 100_000], "arguments_not_json"),
    "too many digits": (['{"value": ' + "9" * 5000 + "}"], "arguments_not_json"),
    "fenced": ([f"```json\n{OK}\n```"], "arguments_not_json"),
    # polluted
    "a tag in the value": (['{"value": "ok</parameter>"}'], "arguments_polluted"),
    "a token in the value": (['{"value": "ok<|tool_call_end|>"}'], "arguments_polluted"),
    "markup in its place": (["<tool_call>{"], "arguments_polluted"),
    "markup before it": ([f"<|channel|>{OK}"], "arguments_polluted"),
    # schema
    "nothing": ([], "arguments_missing_required"),
    "blank": ([" ", "\n"], "arguments_missing_required"),
    "an empty object": (["{}"], "arguments_missing_required"),
    "another property": (['{"valeu": "ok"}'], "arguments_missing_required"),
    "a number in its place": (['{"value": 1}'], "arguments_schema_violation"),
    "null in its place": (['{"value": null}'], "arguments_schema_violation"),
    "an object in its place": (['{"value": {"value": "ok"}}'], "arguments_schema_violation"),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments(name: str) -> None:
    fragments, problem = ARGUMENTS[name]
    assert arguments_problem(fragments, TOOL) == problem


GOOD_VALUES = '"text": "", "flag": true, "count": 1, "share": 0.5, "box": {}, "list": []'


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (GOOD_VALUES, None),
        (GOOD_VALUES.replace("0.5", "1"), None),
        (GOOD_VALUES.replace("true", "1"), "arguments_schema_violation"),
        (GOOD_VALUES.replace('"count": 1', '"count": true'), "arguments_schema_violation"),
        (GOOD_VALUES.replace('"count": 1', '"count": 1.5'), "arguments_schema_violation"),
        (GOOD_VALUES.replace("0.5", "false"), "arguments_schema_violation"),
        (GOOD_VALUES.replace("{}", "[]"), "arguments_schema_violation"),
        (GOOD_VALUES.replace("[]", '""'), "arguments_schema_violation"),
    ],
)
def test_types(arguments: str, problem: str | None) -> None:
    assert arguments_problem([f"{{{arguments}}}"], TYPED) == problem


@pytest.mark.parametrize(
    ("fragments", "problem"),
    [([], None), ([""], None), (["{}"], None), (["null"], "arguments_not_object"), (["{"], "arguments_truncated")],
)
def test_a_tool_without_properties(fragments: list[str], problem: str | None) -> None:
    assert arguments_problem(fragments, BARE) == problem


@given(st.lists(st.text(alphabet='{}[]":,\\ aok1<|>/', max_size=12), max_size=8))
def test_any_arguments_have_at_most_one_reason(fragments: list[str]) -> None:
    problem = arguments_problem(fragments, TOOL)
    assert problem is None or problem.startswith("arguments_")


@given(st.lists(st.integers(1, len(OK) - 1), max_size=6))
def test_how_whole_arguments_are_cut_doesnt_matter(cuts: list[int]) -> None:
    ends = [*sorted(cuts), len(OK)]
    assert arguments_problem([OK[a:b] for a, b in itertools.pairwise([0, *ends])], TOOL) is None


@pytest.mark.parametrize(
    "fragments",
    [
        ["{" * 1_000_000],
        ['{"value": "' + "\\" * 1_000_001],
        ["<|" * 500_000],
        ["</parameter" * 100_000],
        ["a"] * 1_000_000,
        [OK] * 70_000,
        list(itertools.accumulate(["x" * 160] * 320)),
    ],
    ids=["braces", "backslashes", "bars", "tags", "pieces", "repeats", "cumulative"],
)
def test_hostile_arguments_cost_linear_time(fragments: list[str]) -> None:
    started = time.process_time()
    assert arguments_problem(fragments, TOOL) is not None
    assert time.process_time() - started < 3


# --- calls --------------------------------------------------------------------------------------------------


def draft(call_id: str = "c1", name: str = TOOL.name, *fragments: str, not_string: bool = False) -> Draft:
    made = Draft(call_id)
    made.name = name
    made.fragments = list(fragments or [OK])
    made.not_string = not_string
    return made


CALLS: dict[str, tuple[list[Draft], tuple[Call, ...]]] = {
    "none": ([], ()),
    "one": ([draft()], (Call(),)),
    "two": ([draft("a"), draft("b")], (Call(), Call())),
    "no name": ([draft("a", "")], (Call("name_missing", cut=True),)),
    "an undeclared name": ([draft("a", "other")], (Call("name_not_declared"),)),
    "a name cut off": ([draft("a", "save_the", "")], (Call("name_not_declared", cut=True),)),
    "a name cut off, yet arguments": ([draft("a", "save_the", OK)], (Call("name_not_declared"),)),
    "no id": ([draft("")], (Call("id_missing"),)),
    "no id and broken arguments": ([draft("", TOOL.name, "{")], (Call("arguments_truncated", cut=True),)),
    "arguments as an object": ([draft("a", TOOL.name, "", not_string=True)], (Call("arguments_not_string"),)),
    "no arguments yet": ([draft("a", TOOL.name, "")], (Call("arguments_missing_required", cut=True),)),
    "an empty object": ([draft("a", TOOL.name, "{}")], (Call("arguments_missing_required"),)),
    "resent is not cut": ([draft("a", TOOL.name, OK, OK)], (Call("arguments_resent"),)),
    "one id twice": ([draft("a"), draft("a")], (Call(), Call("call_id_duplicated"))),
    "no id twice": ([draft(""), draft("")], (Call("id_missing"), Call("id_missing"))),
    "the first one broken": ([draft("a", TOOL.name, "{"), draft("b")], (Call("arguments_truncated", cut=True), Call())),
    "one call under two ids": (
        [draft("a", TOOL.name, '{"value"'), draft("b", "", ': "ok"}')],
        (Call("call_identity_unstable"), Call()),
    ),
    "one call under two ids, named twice": (
        [draft("a", TOOL.name, '{"value"'), draft("b", TOOL.name, ': "ok"}')],
        (Call("call_identity_unstable"), Call()),
    ),
    "two calls whose sum is an object by chance": (
        [draft("a", TOOL.name, '{"value"'), draft("b", "other", ': "ok"}')],
        (Call("arguments_truncated", cut=True), Call("name_not_declared")),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    drafts, calls = CALLS[name]
    assert judge_calls(drafts, [TOOL]) == calls


@pytest.mark.parametrize(
    ("pieces", "declared", "name", "quirks"),
    [
        (["save"], ["save"], "save", [None]),
        (["save", "save"], ["save"], "save", [None, "name_repeated"]),
        (["sa", "ve"], ["save"], "save", [None, "name_fragmented"]),
        (["s", "a", "v"], ["save"], "sav", [None, "name_fragmented", "name_fragmented"]),
        (["sa", "save"], ["save"], "sa", [None, None]),
        (["save", "d"], ["save"], "save", [None, None]),
        (["save", "_all"], ["save", "save_all"], "save_all", [None, "name_fragmented"]),
        (["save", "save"], ["save", "save_all"], "save", [None, "name_repeated"]),
        (["other", "other"], ["save"], "other", [None, None]),
    ],
)
def test_names(pieces: list[str], declared: list[str], name: str, quirks: list[str | None]) -> None:
    made = Draft()
    assert [made.add_name(piece, declared) for piece in pieces] == quirks
    assert made.name == name


@pytest.mark.parametrize(
    ("arguments", "differs"),
    [(OK, False), ('{"value": "OK"}', True), ('{"value": 1}', False), ("{}", False), ("{", False), ("[]", False)],
)
def test_another_value_than_the_one_asked_for(arguments: str, differs: bool) -> None:
    assert draft("a", TOOL.name, arguments).differs_from(TOOL.asked) is differs
