"""Tool-call markup in text: which family it is, and what only looks like it."""

from __future__ import annotations

import time

import pytest

from service.dialects.leaks import find_leak, has_call_markup

NAME = "record_probe_value_exactly_once"
CALL = f'{{"name": "{NAME}", "arguments": {{"value": "ok"}}}}'
DECLARATION = (
    f'{{"type": "function", "function": {{"name": "{NAME}", "description": "Records one short value.", '
    '"parameters": {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]}}}'
)

LEAKS: dict[str, tuple[str, str]] = {
    # DeepSeek V3.2
    "dsml": (
        "dsml",
        f'<｜DSML｜function_calls>\n<｜DSML｜invoke name="{NAME}">\n<｜DSML｜parameter name="value" string="true">ok',
    ),
    "dsml doubled bars": ("dsml", f'<||DSML||tool_calls><||DSML||invoke name="{NAME}">'),
    # gpt-oss
    "harmony, recipient behind the channel": (
        "harmony",
        f'<|channel|>commentary to=functions.{NAME} <|constrain|>json<|message|>{{"value":"ok"}}<|call|>',
    ),
    "harmony, recipient before the channel": (
        "harmony",
        f'<|start|>assistant to=functions.{NAME}<|channel|>commentary json<|message|>{{"value":"ok"}}',
    ),
    "harmony without its special tokens": ("harmony", f'assistantcommentary to=functions.{NAME} json{{"value":"ok"}}'),
    "harmony without a namespace": ("harmony", f'<|channel|>commentary to={NAME}<|message|>{{"value":"ok"}}'),
    "harmony of another function": ("harmony", 'commentary to=functions.other <|message|>{"value":"ok"}<|call|>'),
    "harmony behind a mention": (
        "harmony",
        f"I go to=functions.{NAME} in the commentary channel.{' ' * 500}"
        f'<|channel|>commentary to=functions.{NAME} <|message|>{{"value":"ok"}}',
    ),
    # Hermes, Qwen, GLM, Granite
    "hermes": ("hermes", f"<tool_call>\n{CALL}\n</tool_call>"),
    "hermes, arguments first": (
        "hermes",
        f'<tool_call>{{"arguments": {{"value": "ok"}}, "name": "{NAME}"}}</tool_call>',
    ),
    "hermes of another function": ("hermes", '<tool_call>{"name": "other", "arguments": {}}'),
    "hermes, python quotes": ("hermes", f"<tool_call>{{'name': '{NAME}', 'arguments': {{'value': 'ok'}}}}</tool_call>"),
    "hermes, openai shape": (
        "hermes",
        f'<tool_call>{{"function": {{"name": "{NAME}", "arguments": "{{}}"}}}}</tool_call>',
    ),
    "hermes behind a mention": ("hermes", f"I should use <tool_call> tags. <tool_call>{CALL}"),
    "qwen coder": (
        "hermes",
        f"<tool_call>\n<function={NAME}>\n<parameter=value>\nok\n</parameter>\n</function>\n</tool_call>",
    ),
    "glm": ("hermes", f"<tool_call>{NAME}\n<arg_key>value</arg_key>\n<arg_value>ok</arg_value>\n</tool_call>"),
    "granite": ("hermes", f"<|tool_call|>[{CALL}]"),
    "phi": ("hermes", f"<|tool_call|>[{CALL}]<|/tool_call|>"),
    # Kimi K2
    "kimi": (
        "kimi",
        f'<|tool_calls_section_begin|><|tool_call_begin|>functions.{NAME}:0<|tool_call_argument_begin|>{{"value":"ok"}}',
    ),
    "kimi with spaces": (
        "kimi",
        f'<| tool_calls_section_begin |> <| tool_call_begin |> functions.{NAME}:0 <| tool_call_argument_begin |> {{"value":"ok"}}',
    ),
    "kimi without the section": ("kimi", f"<|tool_call_begin|>functions.{NAME}:0<|tool_call_argument_begin|>{{"),
    "kimi without its special tokens": ("kimi", f'functions.{NAME}:0{{"value": "ok"}}'),
    "kimi behind a mention": (
        "kimi",
        f"The <|tool_call_begin|> token.{' ' * 500}<|tool_call_begin|>functions.{NAME}:0 {{}}",
    ),
    # Mistral
    "mistral array": ("mistral", f"[TOOL_CALLS][{CALL}]"),
    "mistral array after a space": ("mistral", f"[TOOL_CALLS] [{CALL}]"),
    "mistral name": ("mistral", f'[TOOL_CALLS]{NAME}{{"value": "ok"}}'),
    "mistral args": ("mistral", f'[TOOL_CALLS]{NAME}[ARGS]{{"value": "ok"}}'),
    "mistral args cut": ("mistral", f"[TOOL_CALLS]{NAME}[ARGS]"),
    "mistral call id": ("mistral", f"[TOOL_CALLS]{NAME}[CALL_ID]abcdefghi[ARGS]"),
    # Llama
    "python tag": ("llama", f'<|python_tag|>{{"name": "{NAME}", "parameters": {{"value": "ok"}}}}'),
    "python tag, call expression": ("llama", f'<|python_tag|>{NAME}.call(value="ok")'),
    "function tag": ("llama", f'<function={NAME}>{{"value": "ok"}}</function>'),
    "function tag behind another": ("llama", f'<function=example>, so: <function={NAME}>{{"value": "ok"}}</function>'),
    # DeepSeek V3, R1, V3.1
    "deepseek": (
        "deepseek",
        f'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>{NAME}\n```json\n{{"value": "ok"}}\n```<｜tool▁call▁end｜>',
    ),
    "deepseek v3.1": ("deepseek", f'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{NAME}<｜tool▁sep｜>{{"value": "ok"}}'),
    "deepseek v3.1 cut": ("deepseek", f"<｜tool▁call▁begin｜>{NAME}<｜tool▁sep｜>"),
    "deepseek with ascii bars": (
        "deepseek",
        f'<|tool▁calls▁begin|><|tool▁call▁begin|>{NAME}<|tool▁sep|>{{"value": "ok"}}',
    ),
    # Anthropic's and its like
    "invoke": (
        "xml_invoke",
        f'<function_calls>\n<invoke name="{NAME}">\n<parameter name="value">ok</parameter>\n</invoke>',
    ),
    "invoke of another function": (
        "xml_invoke",
        '<invoke name="other"><parameter name="value">ok</parameter></invoke>',
    ),
    "invoke, minimax": (
        "xml_invoke",
        f'<minimax:tool_call>\n<invoke name="{NAME}">\n<parameter name="value">ok</parameter>',
    ),
    "use_tool": ("xml_invoke", f"<tool_use>\n<tool_name>{NAME}</tool_name>\n<arguments>{{}}</arguments>"),
    "a tag of the tool's own name": ("xml_invoke", f"<{NAME}>\n<value>ok</value>\n</{NAME}>"),
    # Fences
    "fenced tool_code": ("fenced", f'```tool_code\nprint({NAME}(value="ok"))\n```'),
    "fenced default_api": ("fenced", f'```tool_code\nprint(default_api.{NAME}(value="ok"))\n```'),
    "fenced json": ("fenced", f"Here you are:\n```json\n{CALL}\n```"),
    "fenced without a label": ("fenced", f"```\n{CALL}\n```"),
    "fenced in one line": ("fenced", f'```{NAME}(value="ok")```'),
    "fenced, not closed": ("fenced", f"```tool_call\n{CALL}"),
    "fenced behind another fence": ("fenced", f'```json\n{{"a": 1}}\n```\nand\n```json\n{CALL}\n```'),
    # Call expressions
    "pythonic": ("pythonic", f'[{NAME}(value="ok")]'),
    "pythonic alone": ("pythonic", f'{NAME}(value="ok")'),
    "pythonic, an object": ("pythonic", f'functions.{NAME}({{"value": "ok"}})'),
    "pythonic, lfm": ("pythonic", f'<|tool_call_start|>[{NAME}(value="ok")]<|tool_call_end|>'),
    "pythonic, olmo": ("pythonic", f'<function_calls>{NAME}(value="ok")</function_calls>'),
    "gemma": ("pythonic", f"<start_function_call>call:{NAME}{{value:<escape>ok<escape>}}<end_function_call>"),
    # Bare JSON
    "json": ("json", CALL),
    "json array in prose": ("json", f"Sure! [{CALL}] Done."),
    "json with parameters": ("json", f'{{"name": "{NAME}", "parameters": {{"value": "ok"}}}}'),
    "json, openai shape": ("json", f'{{"tool_calls": [{{"function": {{"name": "{NAME}", "arguments": "{{}}"}}}}]}}'),
    "json, react shape": ("json", f'{{"action": "{NAME}", "action_input": {{"value": "ok"}}}}'),
    "json, cohere": ("json", f'[{{"tool_call_id": "0", "tool_name": "{NAME}", "parameters": {{"value": "ok"}}}}]'),
    "json, name as the key": ("json", f'{{"{NAME}": {{"value": "ok"}}}}'),
    "json, python quotes": ("json", f"{{'name': '{NAME}', 'arguments': {{'value': 'ok'}}}}"),
    "json cut off": ("json", f'{{"name": "{NAME}", "arguments": {{"val'),
    "json behind the declaration": ("json", f"{DECLARATION}{' ' * 900}{CALL}"),
    "nemotron": ("json", f"<TOOLCALL>[{CALL}]</TOOLCALL>"),
}

NO_LEAKS: dict[str, str] = {
    "nothing": "",
    "an answer": "Everything is in place. Reference abcdef.",
    "a mention": f"I will call {NAME} now, with the value ok.",
    "a mention in code marks": f"The function `{NAME}` records a value.",
    "a mention with parentheses": f"I can't call {NAME}() in this conversation.",
    "arguments without a name": '{"value": "ok"}',
    "fenced arguments without a name": '```json\n{"value": "ok"}\n```',
    "unrelated json": '```json\n{"name": "Anna", "arguments": ["for", "against"]}\n```',
    "unrelated python": '```python\nprint("ok")\n```',
    "a fence and a mention": f"```\nls -l\n```\nThen {NAME} is called.",
    "html": "<p>All is <b>well</b>.</p><function>f(x)</function><parameter>1</parameter>",
    "xml": '<?xml version="1.0"?><call name="x"><value>ok</value></call>',
    "channel words": "<|channel|>analysis<|message|>The user wants a value recorded.<|end|>",
    "final channel": "<|start|>assistant<|channel|>final<|message|>ok<|return|>",
    "commentary in prose": f"In my commentary as an assistant I mention {NAME} and an object {{}}.",
    "prose about a tag": "Models often wrap calls in <tool_call> and </tool_call> tags.",
    "prose about a tag and the tool": f"Without <tool_call> tags, {NAME} can't be reached.",
    "the hermes template": (
        "return a json object within <tool_call></tool_call> tags: "
        '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
    ),
    "an elided call": "<tool_call>{...}</tool_call>",
    "prose about function tags": "Llama writes <function=example_name>{…}</function>.",
    "prose about invoke": 'Claude writes <invoke name="..."> there.',
    "prose about function_calls": "It opens <function_calls> and closes </function_calls>.",
    "prose about a token": f"I must not write [TOOL_CALLS] here. I call {NAME}. Done.",
    "prose about the python tag": f"<|python_tag|> comes first, then {NAME} follows.",
    "prose about kimi": "It uses <|tool_call_begin|> and <|tool_call_end|>.",
    "the declaration, quoted": f"I have this tool: {DECLARATION}",
    "the declaration, fenced": f"```json\n{DECLARATION}\n```",
    "another object with the name": f'{{"name": "{NAME}", "purpose": "records"}}',
    "another declared-like name": '{"name": "record_probe_value", "arguments": {"value": "ok"}}',
    "a list index": f"steps[{NAME}]",
}


@pytest.mark.parametrize("name", LEAKS)
def test_leak(name: str) -> None:
    family, text = LEAKS[name]
    assert find_leak(text, [NAME]) == family


@pytest.mark.parametrize("name", LEAKS)
def test_a_leak_among_prose_is_one_all_the_same(name: str) -> None:
    family, text = LEAKS[name]
    alone = name in ("pythonic alone", "pythonic, an object")  # which counts only where the text begins with it
    assert find_leak(f"Let me think about it.\n\n{text}\n\nThat was it.", [NAME]) == (None if alone else family)


@pytest.mark.parametrize("name", NO_LEAKS)
def test_no_leak(name: str) -> None:
    assert find_leak(NO_LEAKS[name], [NAME]) is None


POLLUTED = [
    "ok</parameter>",
    "ok</tool_call>",
    "<tool_call>ok",
    "ok<|call|>",
    "ok<|tool_call_end|>",
    "ok<|im_end|>",
    "ok<|eot_id|>",
    "ok<｜tool▁call▁end｜>",
    "ok</｜DSML｜parameter>",
    "ok[/TOOL_CALLS]",
    "[ARGS]ok",
    "<arg_value>ok</arg_value>",
    "ok</invoke>\n</function_calls>",
    '<parameter name="value">ok',
]
CLEAN = ["ok", "", "a < b > c", "<b>ok</b>", "if (a<|b|>c)", "[ok]", "<parameters>", "tool_call", "1 | 2"]


@pytest.mark.parametrize("value", POLLUTED)
def test_markup_in_a_value(value: str) -> None:
    assert has_call_markup(value)


@pytest.mark.parametrize("value", CLEAN)
def test_no_markup_in_a_value(value: str) -> None:
    assert not has_call_markup(value)


ADVERSARIAL = [
    "<tool_call>",
    "<tool_call> " + " " * 200,
    "```",
    "```json\n{",
    "[TOOL_CALLS]",
    "<|python_tag|>",
    "<function=",
    f"<function={'a' * 99}",
    f'"name": "{NAME}" ',
    f'{{"name": "{NAME}", "parameters": {{ "type":',
    f"to=functions.{NAME} assistant ",
    "<invoke name=",
    f"<{NAME}> ",
    "<function_calls>" + " " * 50,
    f"[{NAME}( ",
    f"call:{NAME} ",
    "<|",
    "<｜DSML｜",
    "</parameter",
    "{",
    " ",
    "\n",
]


@pytest.mark.parametrize("piece", ADVERSARIAL, ids=range(len(ADVERSARIAL)))
def test_a_hostile_megabyte_costs_linear_time(piece: str) -> None:
    text = piece * (1_000_000 // len(piece))
    started = time.process_time()
    find_leak(text, [NAME])
    has_call_markup(text)
    assert time.process_time() - started < 1.5
