"""Questions, and the conversations in them, free of any dialect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Choice(StrEnum):
    """Whether the model must, may or can't call: a forced named choice, `auto`, or no tools declared."""

    FORCED = "forced"
    AUTO = "auto"
    NONE = "none"


@dataclass(frozen=True)
class Tool:
    """A function that is declared to the route and never registered or dispatched anywhere.

    `properties` maps each property to its JSON Schema type; all of them are required. `asked` holds the values that
    the message asks for: another one is no fault, but worth a note.
    """

    name: str
    description: str
    properties: Mapping[str, str]
    asked: Mapping[str, str] = field(default_factory=dict)


class Role(StrEnum):
    USER = "user"
    ASSISTANT = "assistant"
    RESULT = "result"


@dataclass(frozen=True)
class PastCall:
    """A call in a history. `arguments` is JSON text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, repr=False)
class Replay:
    """A route's own assistant message, as it came. `wire` is the dialect's form of it, with every field: it goes back
    to the same route in the next request and is neither shown nor stored."""

    calls: tuple[PastCall, ...]
    wire: Any = field(compare=False)


@dataclass(frozen=True)
class Message:
    """One message of a conversation, free of any dialect. An assistant's carries `calls` beside its text, or is a
    `replay`; a result answers `answers`, and `beside` is a user's text in the same message."""

    role: Role
    text: str = ""
    calls: tuple[PastCall, ...] = ()
    answers: PastCall | None = None
    beside: str = ""
    replay: Replay | None = None


@dataclass(frozen=True)
class Ask:
    """One question of a ladder, free of any dialect. `rung` names it; a repetition has the same rung.

    `pause` asks for a short jittered wait before sending. `tokens_field` None: the dialect's own token-cap field.
    `mixed` asks are for dialects that can carry a result and a user's text in one message.
    """

    rung: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    choice: Choice = Choice.NONE
    parallel: bool | None = None
    include_usage: bool = True
    tokens_field: str | None = None
    pause: bool = False
    mixed: bool = False

    @property
    def shape(self) -> str:
        """The request's shape in a few words, for people: what was asked, not the text of it."""
        words = [f"tools, choice {self.choice}" if self.tools else "no tools"]
        if history := [message for message in self.messages if message.role is not Role.USER]:
            words.insert(0, f"history of {len(self.messages)} messages" + (", own call" if history[0].replay else ""))
        if self.tokens_field is not None:
            words.append(self.tokens_field)
        if self.parallel is not None:
            words.append(f"parallel_tool_calls {str(self.parallel).lower()}")
        if not self.include_usage:
            words.append("no stream_options")
        return ", ".join(words)


@dataclass(frozen=True)
class WireRequest:
    """A request ready to send, but for the credential."""

    url: str
    headers: Mapping[str, str]
    body: bytes
