"""Mistakes of a configuration: collected, never one at a time, and worded without any value of the file.

A value could be a secret in the wrong place, so that messages only ever name keys, and only keys that look like words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from difflib import get_close_matches
from typing import NoReturn

from pydantic_core import PydanticCustomError

Loc = tuple[str | int, ...]

ENVIRONMENT = "environment"
COMMAND_LINE = "command line"

_WORD = re.compile(
    r"[A-Za-z_-]{1,40}|[A-Za-z0-9_.-]{1,12}"
    r"|(?:(?:[a-z0-9-]{1,20}\.){1,6}[a-z]{2,12}|[0-9]{1,3}(?:\.[0-9]{1,3}){3})(?::[0-9]{1,5})?"  # a host
)


@dataclass(frozen=True, order=True)
class Mistake:
    """One thing to put right. `file` is `environment` or `command line`, with line 0, for what isn't in a file."""

    file: str
    line: int
    key: str
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return ": ".join(filter(None, (place, self.key, self.message)))


class ConfigError(Exception):
    """A configuration that can't be used. `mistakes` holds all of them, sorted by file and line."""

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes = tuple(sorted(set(mistakes)))
        super().__init__("\n".join(map(str, self.mistakes)))


class Notes:
    """Mistakes and warnings of one file as they are found. `lines` gives the line of each key.

    Nothing more is noted for a place in `unread`: what stands there could not be read, and that is noted already.
    """

    def __init__(self, file: str, lines: Mapping[Loc, int] | None = None, unread: Set[Loc] = frozenset()) -> None:
        self.file = file
        self.lines = lines or {}
        self.unread = unread
        self.mistakes: list[Mistake] = []
        self.warnings: list[Mistake] = []

    def line(self, loc: Loc) -> int:
        """The line of a key, or of the nearest one around it."""
        while loc and loc not in self.lines:
            loc = loc[:-1]
        return self.lines.get(loc, 0 if self.file == COMMAND_LINE else 1)

    def add(self, loc: Loc, message: str) -> None:
        if loc not in self.unread:
            self.mistakes.append(Mistake(self.file, self.line(loc), dotted(loc), message))

    def warn(self, loc: Loc, message: str) -> None:
        """Note what is taken, but is hardly meant."""
        self.warnings.append(Mistake(self.file, self.line(loc), dotted(loc), message))

    def add_variable(self, name: str, message: str) -> None:
        self.mistakes.append(Mistake(ENVIRONMENT, 0, name, message))

    def warn_variable(self, name: str, message: str) -> None:
        self.warnings.append(Mistake(ENVIRONMENT, 0, name, message))


def dotted(loc: Loc) -> str:
    """`routes[2].base_url`. A key that doesn't look like a word could be a secret and shows as `***`."""
    text = ""
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + (part if _WORD.fullmatch(part) else "***")
    return text


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean X?`, or nothing when no known word is near."""
    near = get_close_matches(word, sorted(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""


def refuse(message: str) -> NoReturn:
    """End a validator. Curly brackets would be taken for pydantic's own placeholders."""
    raise PydanticCustomError("routeproof", "{text}", {"text": message})
