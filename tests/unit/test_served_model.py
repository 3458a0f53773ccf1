"""Whether another model answered than the one that was asked for: spellings of one name are no difference."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.contracts.base import served_model_differs
from tests.exchanges import ROUTE


@pytest.mark.parametrize(
    ("asked", "served", "differs"),
    [
        ("gpt-4o-mini", "gpt-4o-mini", False),
        ("gpt-4o-mini", "GPT-4o-Mini", False),
        ("gpt-4o-mini", "gpt-4o-mini-2024-07-18", False),
        ("gpt-4o-mini-2024-07-18", "gpt-4o-mini", False),
        ("openai/gpt-4o-mini", "gpt-4o-mini-2024-07-18", False),
        ("gpt-4o-mini", "openai/gpt-4o-mini", False),
        ("accounts/a/models/kimi-k2", "kimi-k2", False),
        ("meta/llama-3.1-70b:free", "meta/llama-3.1-70b", False),
        ("claude-sonnet-4", "claude-sonnet-4@20250514", False),
        ("mistral-small", "mistral-small-latest", False),
        ("qwen3-8b", "/models/qwen3-8b/", False),
        ("m", None, False),
        ("m", "", False),
        ("gpt-4", "gpt-4-0613", False),
        ("gemini-1.5-pro", "gemini-1.5-pro-002", False),
        ("anthropic.claude-sonnet-4", "anthropic.claude-sonnet-4-20250514", False),
        ("gpt-4", "gpt-4.1", True),
        ("claude-sonnet-4", "claude-sonnet-4-5", True),
        ("llama-3", "llama-3-70b", True),
        ("llama-3", "llama-3-405b", True),
        ("gpt-4o", "gpt-4o-mini", True),
        ("gpt-4o-mini", "gpt-4o", True),
        ("gpt-4o", "gpt-4", True),
        ("llama-3.1-70b", "llama-3.1-8b", True),
        ("llama-3.1-70b", "llama-3.1-70b-lora", True),
    ],
)
def test_names(asked: str, served: str | None, differs: bool) -> None:
    assert served_model_differs(replace(ROUTE, model=asked), served) is differs


@pytest.mark.parametrize(
    ("pattern", "served", "differs"),
    [(r"llama-.*", "llama-3.1-8b", False), (r"llama-.*", "m", True), (r"llama", "llama-3", True), (r"x", None, False)],
)
def test_a_pattern_says_what_is_expected(pattern: str, served: str | None, differs: bool) -> None:
    assert served_model_differs(replace(ROUTE, served_model_pattern=pattern), served) is differs
