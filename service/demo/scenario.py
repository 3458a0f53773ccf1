"""A scenario: which answers a scripted provider gives to which requests, down to the bytes.

`Scenario.parse` reads one from plain data (a line of a corpus). A reply's body is a template; `Values.fill` puts
the request's own tool, model and credential into it.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from enum import StrEnum
from typing import Any
from urllib.parse import quote

from service.demo import predicates
from service.demo.request import DIALECTS, Request

# What a route calls that invents a tool although none was declared.
UNDECLARED_TOOL = "undeclared_tool"

SEGMENT_DELAY_S = 0.02

_PLACEHOLDER = re.compile(r"\{\{([A-Z][A-Z0-9_]*)(?::([^{}]*))?\}\}")
_SLICE = re.compile(r"(-?\d+)?:(-?\d+)?")


class Framing(StrEnum):
    """What the body of a reply is written as.

    `json` is data, `text` and `raw` are exact text, `events` is a list of blocks that a blank line ends each,
    `segments` is a list of pieces of text or of bytes (`{"hex": …}`).
    """

    JSON = "json"
    TEXT = "text"
    EVENTS = "events"
    RAW = "raw"
    SEGMENTS = "segments"


class Transfer(StrEnum):
    """How the end of the body is told: by the last chunk, by content-length, or by closing the connection."""

    CHUNKED = "chunked"
    LENGTH = "length"
    CLOSE = "close"


class End(StrEnum):
    """How the answer ends: as HTTP says, closed too early, reset (RST), or held open in silence."""

    CLEAN = "clean"
    CUT = "cut"
    RESET = "reset"
    HANG = "hang"


@dataclass(frozen=True)
class Values:
    """What the placeholders of one answer stand for."""

    tools: tuple[str, ...] = ()
    model: str = ""
    key: str = ""
    id: str = ""
    base: str = ""
    other_origin: str = ""

    @classmethod
    def of(cls, request: Request, id: str, base: str, other_origin: str) -> Values:
        return cls(request.tool_names, request.model, request.key, id, base, other_origin)

    def fill(self, template: str, *, in_json: bool = False) -> str:
        """The template with its placeholders filled, escaped for a JSON string when `in_json`.

        Raises ValueError for a placeholder that doesn't exist.
        """
        if "{{" not in template:
            return template

        def value(found: re.Match[str]) -> str:
            text = self._value(found[1], found[2])
            return json.dumps(text, ensure_ascii=False)[1:-1] if in_json else text

        return _PLACEHOLDER.sub(value, template)

    def _value(self, name: str, argument: str | None) -> str:
        match name, argument:
            case ("ID", None):
                return self.id
            case ("BASE", None):
                return self.base
            case ("OTHER_ORIGIN", None):
                return self.other_origin
            case ("KEY", "b64"):
                return base64.b64encode(self.key.encode()).decode()
            case ("KEY", "url"):
                return quote(self.key, safe="")
            case ("PAD", str(count)) if count.isdecimal():
                return "x" * int(count)
            case ("HTTPDATE", str(seconds)) if re.fullmatch(r"[+-]\d+", seconds):
                return format_datetime(datetime.now(UTC) + timedelta(seconds=int(seconds)), usegmt=True)
        whole = {
            "TOOL": next(iter(self.tools), UNDECLARED_TOOL),
            "TOOL2": next(iter(self.tools[1:]), UNDECLARED_TOOL),
            "MODEL": self.model,
            "KEY": self.key,
        }
        if name in whole and argument is None:
            return whole[name]
        if name in whole and argument and (bounds := _SLICE.fullmatch(argument)):
            start, stop = (int(bound) if bound else None for bound in bounds.groups())
            return whole[name][start:stop]
        raise ValueError(f"unknown placeholder {{{{{name}{'' if argument is None else ':' + argument}}}}}")

    def fill_data(self, data: Any) -> Any:
        """Every text in the data filled, keys included; what dumps it does the escaping."""
        if isinstance(data, str):
            return self.fill(data)
        if isinstance(data, list):
            return [self.fill_data(one) for one in data]
        if isinstance(data, dict):
            return {self.fill(name): self.fill_data(one) for name, one in data.items()}
        return data


@dataclass(frozen=True)
class Reply:
    """One answer. `status` 0 is no HTTP at all: the body is written bare. Delays are in seconds; `delay_s`
    lies between writes. `segment_bytes` cuts the body into writes of that size."""

    status: int
    framing: Framing
    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)
    end: End = End.CLEAN
    transfer: Transfer = Transfer.CHUNKED
    delay_s: float = 0.0
    first_byte_delay_s: float = 0.0
    segment_bytes: int | None = None
    close_after: bool = False
    gzip: bool = True

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> Reply:
        """Raises ValueError or KeyError when the data doesn't make a reply."""
        framing = Framing(data["framing"])
        by_framing: dict[str, Any] = {
            "transfer": Transfer.LENGTH if framing in (Framing.JSON, Framing.TEXT) else Transfer.CHUNKED,
            "delay_s": SEGMENT_DELAY_S if framing is Framing.SEGMENTS else 0.0,
        }
        given = {**by_framing, **data, "framing": framing}
        given["end"] = End(given.get("end", End.CLEAN))
        given["transfer"] = Transfer(given["transfer"])
        reply = cls(**_known(cls, given))
        _check_body(reply)
        return reply

    @property
    def gzipped(self) -> bool:
        """Whether the body really is compressed, not only labelled so."""
        return self.gzip and any(
            name.lower() == "content-encoding" and value.lower() == "gzip" for name, value in self.headers.items()
        )

    def pieces(self, values: Values) -> Iterator[bytes]:
        """The body's bytes as the writes that the framing wants, made one at a time."""
        if self.framing is Framing.JSON:
            filled = values.fill_data(self.body)
            yield _bytes(json.dumps(filled, ensure_ascii=False, separators=(",", ":")))
            return
        in_json = self.framing is Framing.EVENTS or self._holds_json
        if self.framing is Framing.EVENTS:
            for event in self.body:
                repeat, block = (event["repeat"], event["event"]) if isinstance(event, dict) else (1, event)
                piece = _bytes(values.fill(block, in_json=in_json) + "\n\n")
                for _ in range(repeat):
                    yield piece
            return
        for segment in self.body if self.framing is Framing.SEGMENTS else [self.body]:
            if isinstance(segment, dict):
                yield bytes.fromhex(segment["hex"])
            else:
                yield _bytes(values.fill(segment, in_json=in_json))

    @property
    def _holds_json(self) -> bool:
        kind = next((value for name, value in self.headers.items() if name.lower() == "content-type"), "")
        return "json" in kind or "event-stream" in kind


@dataclass(frozen=True)
class Entry:
    """A reply, the conditions under which it is given, and how often it may be (None: without limit)."""

    when: tuple[str, ...]
    reply: Reply
    times: int | None = None

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> Entry:
        """Raises ValueError or KeyError when the data doesn't make an entry."""
        given = dict(data)
        when = given.pop("when")
        predicates.check(when)
        given["when"] = (when,) if isinstance(when, str) else tuple(when)
        given["reply"] = Reply.parse(given["reply"])
        return cls(**_known(cls, given))


@dataclass(frozen=True)
class Scenario:
    """One route as it behaves. The first of `replies` that fits a request and isn't used up answers it.

    The rest is for tests: `route` is what the route must be configured with, `expect` what a probe must conclude.
    """

    id: str
    dialect: str
    replies: tuple[Entry, ...]
    contract: str = "native_tools"
    route: Mapping[str, Any] = field(default_factory=dict)
    expect: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""
    wire_exact: bool = False
    layer: str = ""
    kind: str = ""
    what: str = ""
    why: str = ""
    decision: str | None = None

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> Scenario:
        """Raises ValueError, with the scenario's id, when the data doesn't make a scenario."""
        try:
            if data["dialect"] not in DIALECTS:
                raise ValueError(f"unknown dialect {data['dialect']!r}")
            replies = tuple(Entry.parse(entry) for entry in data["replies"])
            return cls(**_known(cls, {**data, "replies": replies}))
        except KeyError as error:
            raise ValueError(f"scenario {data.get('id')!r}: {error} is missing") from error
        except (TypeError, ValueError) as error:
            raise ValueError(f"scenario {data.get('id')!r}: {error}") from error


def _known(cls: type, given: Mapping[str, Any]) -> dict[str, Any]:
    names = {one.name for one in fields(cls)}
    if strange := sorted(given.keys() - names):
        raise ValueError(f"unknown field {strange[0]!r}")
    return dict(given)


def _check_body(reply: Reply) -> None:
    """A mistake in a template shows when it is read, not when it is first played."""
    body = reply.body
    if reply.framing in (Framing.EVENTS, Framing.SEGMENTS) and not isinstance(body, list):
        raise ValueError(f"the body of {reply.framing} must be a list")
    if reply.framing in (Framing.TEXT, Framing.RAW) and not isinstance(body, str):
        raise ValueError(f"the body of {reply.framing} must be a text")
    for template in (*_templates(body), *reply.headers.values()):
        Values().fill(template)


def _templates(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, list):
        for one in data:
            yield from _templates(one)
    elif isinstance(data, dict):
        yield from data
        for one in data.values():
            yield from _templates(one)


def _bytes(text: str) -> bytes:
    # A lone surrogate in a script is meant to arrive as the bytes that no decoder takes.
    return text.encode("utf-8", "surrogatepass")
