"""Tool-call markup that a server should have parsed and passed on as text instead, by family.

A mention of the tool is no leak, nor are a format's channel words without a call, nor bare arguments without a
name: each family wants its marker *and* something that is called. Every search is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

_BAR = r"[|｜]"
_SEP = r"[_▁]"

# Special tokens of chat templates; they have no business in text whatever stands around them.
_TOKENS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("dsml", re.compile(rf"<{_BAR}{{1,2}}DSML{_BAR}{{1,2}}\s?(?:tool_calls|function_calls|invoke)")),
    ("kimi", re.compile(r"<\|\s?tool_calls?_(?:section_)?begin\s?\|>")),
    ("deepseek", re.compile(rf"<{_BAR}tool{_SEP}calls?{_SEP}begin{_BAR}>")),
    ("mistral", re.compile(r"\[TOOL_CALLS\]")),
    ("llama", re.compile(r"<\|python_tag\|>")),
)
# A token is a leak when something is called behind it: a name or the opening of its arguments.
_REACH = 400
_TRIES = 50

# Behind the opening of a call: an object that names a function, a list of such, or a function's own tag.
_NAMED_CALL = re.compile(
    r"\s*(?:<function=\w|call:\w|[{\[][^<]{0,300}?[\"'](?:name|function)[\"']\s?:\s?(?:[\"']\w|\{\s?[\"']name))"
)
_XML_INVOKE = re.compile(r"<(?:antml:)?invoke\s+name=[\"']?([\w.:-]{1,100})|<(?:tool_use|use_tool)>")
_HERMES = re.compile(r"<\|?tool_call\|?>")
_HERMES_NAME = re.compile(r"\s*(?:functions\.)?([A-Za-z_][\w.-]{0,99})")
_FUNCTION_TAG = re.compile(r"<function=([A-Za-z_][\w.-]{0,99})")
_HARMONY_WORDS = re.compile(r"<\|(?:channel|start|message|call|constrain)\|>|commentary|assistant")
_FENCE = re.compile(r"```(?:[\w-]{1,20}(?=\s))?\s*")

_MARKUP_IN_VALUE = re.compile(
    rf"</?(?:tool_call|tool_calls|parameter|invoke|function_calls?|function|arg_value|arg_key|tool_response)\b[^<>]{{0,80}}>"
    rf"|<\|/?(?:tool|channel|message|call|end|start|im_|python_tag|constrain|eot)[^<>]{{0,40}}>"
    rf"|</?{_BAR}{{1,2}}DSML|<{_BAR}tool{_SEP}|\[/?TOOL_CALLS\]|\[ARGS\]"
)


def has_call_markup(text: str) -> bool:
    """Whether a text holds markup of a call format: in an argument it is pollution by a parser that failed."""
    return bool(_MARKUP_IN_VALUE.search(text))


def find_leak(text: str, tools: Sequence[str]) -> str | None:
    """The family of a tool call that was written into `text`, None when there is none. `tools` are the declared
    names."""
    for family, pattern in _TOKENS:
        if any(_calls_something(rest, tools) for _, rest in _behind(pattern, text)):
            return family
    for family, detect in _FAMILIES:
        if detect(text, tools):
            return family
    return None


def _behind(pattern: re.Pattern[str], text: str) -> Iterator[tuple[re.Match[str], str]]:
    """The first places where a marker stands, each with what follows it: an earlier one may be a mere mention."""
    for match in islice(pattern.finditer(text), _TRIES):
        yield match, text[match.end() : match.end() + _REACH]


def _calls_something(rest: str, tools: Sequence[str]) -> bool:
    """Whether arguments or a call begin here; a name in a sentence is none."""
    called = (rf"{re.escape(name)}\s{{0,2}}[(\[<:.]\S" for name in tools)
    return "{" in rest or "name=" in rest or any(re.search(pattern, rest) for pattern in called)


def _kimi(text: str, tools: Sequence[str]) -> bool:
    """What is left of the format when the serving side drops its special tokens: `functions.name:0{…}`."""
    return any(
        re.search(rf"\bfunctions\.{re.escape(name)}:\d{{1,3}}\s?(?:<\|\s?tool_call_argument_begin\s?\|>\s?)?\{{", text)
        for name in tools
    )


def _harmony(text: str, tools: Sequence[str]) -> bool:
    if not _HARMONY_WORDS.search(text):
        return False
    names = "|".join(re.escape(name) for name in tools)
    recipient = re.compile(rf"to=(?:(?:functions\.)?(?:{names})\b|functions\.\w)")
    return any("{" in rest for _, rest in _behind(recipient, text))


def _hermes(text: str, tools: Sequence[str]) -> bool:
    for _, rest in _behind(_HERMES, text):
        name = _HERMES_NAME.match(rest)
        if _NAMED_CALL.match(rest) or (name and name[1] in tools):
            return True
    return False


def _function_tag(text: str, tools: Sequence[str]) -> bool:
    return any(match[1] in tools for match, _ in _behind(_FUNCTION_TAG, text))


def _xml_invoke(text: str, tools: Sequence[str]) -> bool:
    """`<invoke name="…">` of a declared tool or with parameters in it, or a tag that is the tool's own name."""
    for match, rest in _behind(_XML_INVOKE, text):
        if match[1] in tools or re.search(r"<(?:antml:)?parameter\s+name=|<(?:tool_name|server_name|arguments)>", rest):
            return True
    return any(re.search(rf"<{re.escape(name)}>\s{{0,9}}(?:<\w|\{{)", text) for name in tools)


def _fenced(text: str, tools: Sequence[str]) -> bool:
    at = 0
    for _ in range(_TRIES):
        match = _FENCE.search(text, at)
        if match is None:
            return False
        close = text.find("```", match.end())
        at = close + 3 if close >= 0 else len(text)
        block = text[match.end() : close if close >= 0 else len(text)][: 4 * _REACH]
        if _json(block, tools) or _pythonic(block, tools):
            return True
    return False


def _pythonic(text: str, tools: Sequence[str]) -> bool:
    """`[name(value="ok")]`, `call:name{value:ok}` or a text that is one call expression and nothing else."""
    alone = text[: 2 * _REACH].lstrip().lstrip("`").lstrip()
    for name in tools:
        escaped = re.escape(name)
        if re.search(rf"call:\s?(?:default_api[:.])?{escaped}\s?[({{]", text):
            return True
        if re.search(rf"(?:\[|_calls?>)\s?{escaped}\(\s?\w+\s?=", text):
            return True
        if re.match(rf"(?:print\()?(?:default_api\.|functions\.)?{escaped}\(\s?(?:\w+\s?=|[\"'{{])", alone):
            return True
    return False


_ARGUMENTS = re.compile(
    # A schema under "parameters" is the declaration of a tool, quoted, not a call of it.
    r"""["'](?:arguments|parameters|args|input|params|action_input)["']\s?:(?!\s*\{\s*["'](?:type|properties)["']\s*:)"""
)


def _json(text: str, tools: Sequence[str]) -> bool:
    """An object that names a declared tool beside its arguments; also one that is cut off behind them."""
    for name in tools:
        quoted = rf"""["'](?:functions\.)?{re.escape(name)}["']"""
        named = re.compile(rf"""["'](?:name|function|tool|tool_name|recipient_name|action)["']\s?:\s?{quoted}""")
        for match in islice(named.finditer(text), _TRIES):
            if _ARGUMENTS.search(text[max(0, match.start() - _REACH) : match.end() + _REACH]):
                return True
        if re.search(rf"\{{\s?{quoted}\s?:\s?\{{", text):
            return True
    return False


_FAMILIES: tuple[tuple[str, Callable[[str, Sequence[str]], bool]], ...] = (
    ("kimi", _kimi),
    ("harmony", _harmony),
    ("hermes", _hermes),
    ("llama", _function_tag),
    ("xml_invoke", _xml_invoke),
    ("fenced", _fenced),
    ("pythonic", _pythonic),
    ("json", _json),
)
