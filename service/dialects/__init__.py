"""The dialects that a route can speak, one line each."""

from __future__ import annotations

from collections.abc import Mapping

from service.dialects.anthropic_messages import AnthropicMessages
from service.dialects.base import Dialect, Reader
from service.dialects.gemini import Gemini
from service.dialects.openai_chat import OpenAIChat
from service.dialects.openai_responses import OpenAIResponses

DIALECTS: Mapping[str, Dialect] = {
    "openai-chat": OpenAIChat(),
    "openai-responses": OpenAIResponses(),
    "anthropic-messages": AnthropicMessages(),
    "gemini": Gemini(),
}

__all__ = ["DIALECTS", "Dialect", "Reader"]
