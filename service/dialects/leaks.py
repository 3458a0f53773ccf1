"""Tool-call markup that a server should have parsed and passed on as text instead, by family.

A mention of the tool is no leak, nor are a format's channel words without a call, nor bare arguments without a
name: each family wants its marker *and* something that is called. Every search is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import islice

_BAR = r"[|｜]"
_SEP = r"[_▁]"

# Special tokens of chat templates; they have no business in text whatever stands around them.
_TOKENS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("dsml", re.compile(rf"<{_BAR}{{1,2}}DSML{_BAR}{{1,2}}\s?(?:tool_calls|function_calls|invoke)")),
    ("kimi", re.compile(r"<\|tool_calls?_(?:section_)?begin\|>")),
    ("deepseek", re.compile(rf"<{_BAR}tool{_SEP}calls?{_SEP}begin{_BAR}>")),
    ("mistral", re.compile(r"\[TOOL_CALLS\]")),
    ("llama", re.compile(r"<\|python_tag\|>")),
)
# A token is a leak when something is called behind it: a name or the opening of its arguments.
_REACH = 400
_TRIES = 50

_XML_INVOKE = re.compile(r"<(?:antml:)?(?:invoke\s+name=|function_calls>\s*<|tool_use>\s*[<{]|use_tool\b)")
_HERMES = re.compile(r"<\|?tool_call\|?>\s*(?:\{|<function=|\[|call:)")
_HERMES_NAMED = re.compile(r"<\|?tool_call\|?>\s*(?:functions\.)?([A-Za-z_][\w.-]{0,99})")
_FUNCTION_TAG = re.compile(r"<function=([A-Za-z_][\w.-]{0,99})")
_HARMONY_WORDS = re.compile(r"<\|(?:channel|start|message|call|constrain)\|>|commentary|assistant")
_FENCE = re.compile(r"```(?:tool_code|tool_call|tool_calls|json|python|xml)?\s*\n?")

_MARKUP_IN_VALUE = re.compile(
    rf"</?(?:tool_call|tool_calls|parameter|invoke|function_calls?|function|arg_value|arg_key|tool_response)\b[^<>]{{0,80}}>"
    rf"|<\|/?(?:tool|channel|message|call|end|start|im_|python_tag|constrain|eot)[^<>]{{0,40}}>"
    rf"|<{_BAR}{{1,2}}DSML|<{_BAR}tool{_SEP}|\[/?TOOL_CALLS\]|\[ARGS\]"
)


def has_call_markup(text: str) -> bool:
    """Whether a text holds markup of a call format: in an argument it is pollution by a parser that failed."""
    return bool(_MARKUP_IN_VALUE.search(text))


def find_leak(text: str, tools: Sequence[str]) -> str | None:
    """The family of a tool call that was written into `text`, None when there is none. `tools` are the declared
    names."""
    for family, pattern in _TOKENS:
        match = pattern.search(text)
        if match and _calls_something(text[match.end() : match.end() + _REACH], tools):
            return family
    for family, detect in _FAMILIES:
        if detect(text, tools):
            return family
    return None


def _calls_something(rest: str, tools: Sequence[str]) -> bool:
    return "{" in rest or "name=" in rest or any(name in rest for name in tools)


def _harmony(text: str, tools: Sequence[str]) -> bool:
    for name in tools:
        at = text.find(f"to=functions.{name}")
        if at >= 0 and _HARMONY_WORDS.search(text) and "{" in text[at : at + _REACH]:
            return True
    return "<|call|>" in text and "to=functions." in text


def _hermes(text: str, tools: Sequence[str]) -> bool:
    if _HERMES.search(text):
        return True
    match = _HERMES_NAMED.search(text)
    return bool(match and match[1] in tools)


def _function_tag(text: str, tools: Sequence[str]) -> bool:
    match = _FUNCTION_TAG.search(text)
    return bool(match and match[1] in tools)


def _fenced(text: str, tools: Sequence[str]) -> bool:
    for match in islice(_FENCE.finditer(text), _TRIES):
        close = text.find("```", match.end())
        block = text[match.end() : close if close >= 0 else len(text)][: 4 * _REACH]
        if _json(block, tools) or _pythonic(block, tools):
            return True
    return False


def _pythonic(text: str, tools: Sequence[str]) -> bool:
    """`[name(value="ok")]`, `call:name{value:ok}` or a text that is one call expression and nothing else."""
    for name in tools:
        escaped = re.escape(name)
        if re.search(rf"call:\s?(?:default_api[:.])?{escaped}\s?[({{]", text):
            return True
        if re.search(rf"\[\s?{escaped}\(\s?\w+\s?=", text):
            return True
        alone = text.strip().strip("`").strip()
        if re.match(rf"(?:print\()?(?:default_api\.|functions\.)?{escaped}\(\s?(?:\w+\s?=|[\"'{{])", alone):
            return True
    return False


def _json(text: str, tools: Sequence[str]) -> bool:
    """An object that names a declared tool beside its arguments; also one that is cut off behind them."""
    for name in tools:
        quoted = re.escape(name)
        named = rf'"(?:name|function|tool|tool_name|recipient_name|action)"\s?:\s?"(?:functions\.)?{quoted}"'
        for match in islice(re.finditer(named, text), _TRIES):
            around = text[max(0, match.start() - _REACH) : match.end() + _REACH]
            if re.search(r'"(?:arguments|parameters|args|input|params|action_input)"\s?:', around):
                return True
        if re.search(rf'\{{\s?"{quoted}"\s?:\s?\{{', text):
            return True
    return False


_FAMILIES: tuple[tuple[str, Callable[[str, Sequence[str]], bool]], ...] = (
    ("harmony", _harmony),
    ("hermes", _hermes),
    ("llama", _function_tag),
    ("xml_invoke", lambda text, _tools: bool(_XML_INVOKE.search(text))),
    ("fenced", _fenced),
    ("pythonic", _pythonic),
    ("json", _json),
)
