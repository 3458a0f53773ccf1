"""Reading a refused answer: envelope by envelope to its codes and messages, and from those to what they settle.

In this order: a known code or type; a narrow phrase of credit, key, place or (not under 404) a missing model; the
status. 401 and 402 are not overruled by phrases. What nothing settles climbs the ladder: a 404 can mean tools, a 500
can mean tools or billing, a 400 billing or a key, a 413 the token budget, and a 200 an authentication failure. The
body is read by content, never by its content type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from html import unescape
from itertools import islice
from typing import Any

from service import waits
from service.model import Refusal, Refused
from service.refusal_codes import CODES, MODEL_HINTS, MODEL_PHRASES, PHRASES, ROUTER_TEXT, token_cap_refused

TEXT_LIMIT = 4096

_CODE_KEYS = ("code", "type", "reason", "errorcode", "error_code", "errorCode", "http_code", "__type", "name")
_STATUS_KEYS = ("status", "status_code", "statusCode", "http_status", "httpStatus", "raw_status_code")
_WAIT_KEYS = ("retryDelay", "retry_after", "retry_after_seconds", "retryAfter", "resets_in_seconds")
_TEXT_KEYS = (
    "message",
    "msg",
    "error_msg",
    "error_message",
    "errorMessage",
    "faultstring",
    "status_msg",
    "message_zh",
    "error_description",
    "title",
)
_BOX_KEYS = (
    "error",
    "errors",
    "fault",
    "detail",
    "details",
    "base_resp",
    "metadata",
    "raw",
    "innererror",
    "inner_error",
    "upstream_error",
    "response",
    "x_groq",
    "violations",
)
_DEEPEST = 16
_MOST_NODES = 200
_MOST_TEXT = 131072
_MOST_INNER_STARTS = 8

_CODES_OF_SUCCESS = (0, "0", 200, "200")
_COULD_PASS = frozenset({408, 425})
_INNER_STATUS_COUNTS = frozenset({401, 402, 429, 529})
_BY_STATUS: Mapping[int, Refused] = {
    401: Refused.CREDENTIAL,
    402: Refused.CREDIT,
    403: Refused.CREDENTIAL,
    407: Refused.CREDENTIAL,
    429: Refused.RATE,
    529: Refused.OVERLOAD,
    405: Refused.PATH,
}
DECIDED_BY_STATUS_LINE = frozenset({401, 402, 407, 429, 529})
"""Statuses that settle a refusal though its body never ended."""


@dataclass
class _Found:
    """What the envelopes of one body hold."""

    codes: list[str] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    refused_fields: list[str] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    nodes: int = 0
    room: int = _MOST_TEXT

    @property
    def text(self) -> str:
        return "\n".join(dict.fromkeys(text.strip() for text in self.texts if text.strip()))


def read_refusal(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    cap_field: str,
    now: datetime,
    usage_field: str | None = None,
) -> Refusal:
    """A refused HTTP answer as facts. `body` may be cut off anywhere; `headers` have lower-case names; `cap_field` is
    the token-cap field that the request carried, `usage_field` the one that asked for usage, where the API has it."""
    text = body.decode("utf-8", errors="replace").lstrip("\ufeff \t\r\n")
    found = _Found()
    if kind := headers.get("x-amzn-errortype"):
        _collect_code(kind.split(":")[0], found, "", "type")
    if text.startswith("<"):
        found.texts.append(html_words(text))
    else:
        _collect_text(text, found)
    html = looks_like_html(text)
    return _judge(status, headers, found, text, html=html, cap_field=cap_field, usage_field=usage_field, now=now)


def read_stream_error(
    data: Any, headers: Mapping[str, str], *, cap_field: str, now: datetime, usage_field: str | None = None
) -> Refusal:
    """An error inside an accepted stream: the parsed event, or its text when it isn't JSON."""
    found = _Found()
    if isinstance(data, str):
        _collect_text(data[:_MOST_TEXT], found)
    else:
        _collect(data, found, 0)
    return _judge(None, headers, found, found.text, html=False, cap_field=cap_field, usage_field=usage_field, now=now)


def is_error_object(value: Any) -> bool:
    """Whether a JSON value is an error in one of the envelopes seen in the wild, rather than an answer."""
    if isinstance(value, list):
        return bool(value) and all(isinstance(item, dict) and is_error_object(item) for item in value)
    if not isinstance(value, dict):
        return False
    if any(value.get(key) for key in ("error", "fault", "errorMessage")):
        return True
    if value.get("errors") and isinstance(value["errors"], list):
        return True
    base, groq = value.get("base_resp"), value.get("x_groq")
    if isinstance(base, dict) and base.get("status_code") not in (None, 0, "0"):
        return True
    if isinstance(groq, dict) and groq.get("error"):
        return True
    answers = ("choices", "candidates", "output", "content", "data")
    if any(value.get(key) is not None for key in answers) and value.get("success", True):
        return False
    if value.get("success") is False or value.get("object") == "error" or value.get("type") == "error":
        return True
    if value.get("code") in _CODES_OF_SUCCESS:
        return False
    says = any(isinstance(value.get(key), str) and value[key] for key in ("message", "msg", "detail"))
    return (says and any(key in value for key in ("code", "type", "request_id", *_STATUS_KEYS))) or (
        set(value) in ({"detail"}, {"message"}, {"msg"})
    )


def looks_like_html(text: str) -> bool:
    head = text[:2048].lstrip().lower()
    return head.startswith("<") and ("<html" in head or "<!doctype html" in head or "<head" in head or "<body" in head)


# Not html.parser: it raises on broken markup, and all that is wanted here are words.
_MARKUP = re.compile(r"<(script|style)\b.*?(?:</\1|\Z)|<!--.*?(?:-->|\Z)|<[^>]*>?", re.DOTALL | re.IGNORECASE)


def html_words(text: str) -> str:
    """The words of a page, without its tags."""
    return " ".join(unescape(_MARKUP.sub(" ", text[:16384])).split())[:TEXT_LIMIT]


def _collect_text(text: str, found: _Found) -> None:
    """Take a body or an event: JSON, framed events, or plain words."""
    value = _json_in(text)
    if value is not None:
        _collect(value, found, 0)
    elif text.startswith(("data:", "event:", "id:", "retry:", ":")):
        for block in re.sub(r"\r\n?", "\n", text).split("\n\n")[:50]:
            lines = [line[5:].strip() for line in block.split("\n") if line.startswith("data:")]
            _collect_message("\n".join(lines), found, 0)
    elif match := _EDGE_CODE.fullmatch(text.strip()):
        found.codes.append(f"cloudflare:{match[1]}")
        found.texts.append(text.strip())
    else:
        _collect_message(text, found, 0)


# The whole body that Cloudflare's edge sends to clients that aren't browsers.
_EDGE_CODE = re.compile(r"error code: ([0-9]{3,5})")

_DECODER = json.JSONDecoder(strict=False)  # raw line ends within strings are seen in the wild
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(")?|[{}\[\],]', re.DOTALL)
_CLOSERS = {"{": "}", "[": "]"}
_CUT_ESCAPE = re.compile(r"(?<!\\)((?:\\\\)*)\\(?:u[0-9a-fA-F]{0,3})?\Z")


def _json_in(text: str) -> Any:
    """The JSON object or array that a text begins with, whatever is glued behind it; one that was cut off is closed
    where it was cut. None when there is none."""
    if not text.startswith(("{", "[")):
        return None
    try:
        return _DECODER.raw_decode(text)[0]
    except (ValueError, RecursionError):
        pass
    for closed in _closed(text):
        try:
            return _DECODER.decode(closed)
        except (ValueError, RecursionError):
            continue
    return None


def _closed(text: str) -> Iterator[str]:
    """A cut-off JSON text with what closes it: at its end, then behind its last whole member."""
    closing, comma = _open_at_end(text)
    yield _CUT_ESCAPE.sub(r"\1", text) + closing if closing.startswith('"') else text + closing
    yield text[:comma] + _open_at_end(text[:comma])[0]


def _open_at_end(text: str) -> tuple[str, int]:
    """What closes all that is open at the end of a JSON text, and where its last comma outside of strings is."""
    closers: list[str] = []
    comma = 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in _CLOSERS:
            closers.append(_CLOSERS[token])
        elif token == ",":
            comma = match.start()
        elif token in ("}", "]"):
            if not closers or closers.pop() != token:
                break
        elif match[1] is None:
            closers.append('"')
    return "".join(reversed(closers)), comma


def _collect(node: Any, found: _Found, depth: int, box: str = "") -> None:
    found.nodes += 1
    if depth > _DEEPEST or found.nodes > _MOST_NODES:
        return
    if isinstance(node, list):
        for item in node:
            _collect(item, found, depth + 1, box)
    elif isinstance(node, str):
        if box == "error" and " " not in node:
            _collect_code(node, found, box, box)
        _collect_message(node, found, depth)
    elif isinstance(node, dict):
        for key in _CODE_KEYS:
            _collect_code(node.get(key), found, box, key)
        for key in _STATUS_KEYS:
            _collect_code(node.get(key), found, box, "status")
        if "flagged_input" in node:  # OpenRouter's moderation says so in metadata, under a bare 403
            found.codes.append("flagged_input")
        for key in _TEXT_KEYS:
            if isinstance(node.get(key), str):
                _collect_message(node[key], found, depth)
        for key in _BOX_KEYS:
            if node.get(key):
                _collect(node[key], found, depth + 1, key)
        if isinstance(node.get("message"), dict | list):
            _collect(node["message"], found, depth + 1, "message")
        _collect_fields(node, found)
        _collect_waits(node, found)


def _collect_waits(node: dict[str, Any], found: _Found) -> None:
    for key in _WAIT_KEYS:
        if isinstance(node.get(key), str | int | float) and not isinstance(node[key], bool):
            found.waits.append(str(node[key]))
    if isinstance(headers := node.get("headers"), dict):  # of the upstream, as a gateway quotes them
        found.headers.update({name.lower(): value for name, value in headers.items() if isinstance(value, str)})


def _collect_code(value: Any, found: _Found, box: str, key: str) -> None:
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value.strip()):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, str):
        found.codes.append(re.sub(r"[\s-]+", "_", value.strip()[:100].rsplit("#", 1)[-1].lower()))
    elif isinstance(value, int) and not isinstance(value, bool):
        if box == "base_resp":
            found.codes.append(f"base_resp:{value}")
        elif 400 <= value <= 599:
            found.statuses.append(value)
        elif key in ("code", "error_code"):
            found.codes.append(f"cloudflare:{value}" if box == "errors" else str(value))


def _collect_message(text: str, found: _Found, depth: int) -> None:
    """Take words, and the JSON that a gateway quoted within them."""
    text = text[: found.room]
    found.room -= len(text)
    found.texts.append(text[:TEXT_LIMIT])
    starts = [match.start() for match in islice(re.finditer(r'\{\s*"', text), _MOST_INNER_STARTS)]
    for start in starts:
        inner = _json_in(text[start:])
        if inner:
            _collect(inner, found, depth + 1)
            return


def _collect_fields(node: dict[str, Any], found: _Found) -> None:
    """A field that a validator refuses as such: `extra_forbidden` with its place, or a coded parameter."""
    loc, param = node.get("loc"), node.get("param")
    if node.get("type") == "extra_forbidden" and isinstance(loc, list) and loc:
        found.refused_fields.append(str(loc[-1]))
    if isinstance(param, str) and node.get("code") in ("unsupported_parameter", "unknown_parameter"):
        found.refused_fields.append(param)


def _judge(
    status: int | None,
    headers: Mapping[str, str],
    found: _Found,
    raw: str,
    *,
    html: bool,
    cap_field: str,
    usage_field: str | None,
    now: datetime,
) -> Refusal:
    text = found.text
    effective = _effective_status(status, found)
    kind, reason, code = _settle(status, effective, headers, found, text, html=html, cap_field=cap_field)
    return Refusal(
        status=effective,
        kind=kind,
        hint=kind or _hint(effective, found, text, raw, html=html),
        code=code,
        reason=reason or (f"http_{effective}" if effective else None),
        retry_after_s=waits.retry_after(
            {**found.headers, **headers}, found.waits, text, now, resets=kind is Refused.RATE
        ),
        could_pass=kind is None and (effective is None or effective in _COULD_PASS or effective >= 500),
        names_stream_options=usage_field is not None and (usage_field in text or usage_field in found.refused_fields),
        text=text[:TEXT_LIMIT] or raw[:TEXT_LIMIT],
    )


# Types that vendors send under one status; inside a stream they stand for it, but unlike a code they settle nothing
# before a phrase does ("permission" may be a lack of credit).
_STATUS_OF_TYPE = {"permission_error": 403, "permission_denied": 403}


def _effective_status(status: int | None, found: _Found) -> int | None:
    """The status that counts: one inside the body where the HTTP status says nothing, or where a gateway wraps a
    status that settles, however deep."""
    settling = (inner for inner in found.statuses if inner in _INNER_STATUS_COUNTS)
    inner = next(settling, next(iter(found.statuses), None))
    if status is None or status < 300:
        typed = (_STATUS_OF_TYPE[code] for code in found.codes if code in _STATUS_OF_TYPE)
        return inner if inner is not None else next(typed, None)
    if status not in _BY_STATUS and inner in _INNER_STATUS_COUNTS:
        return inner
    return status


def _settle(
    status: int | None,
    effective: int | None,
    headers: Mapping[str, str],
    found: _Found,
    text: str,
    *,
    html: bool,
    cap_field: str,
) -> tuple[Refused | None, str | None, str | None]:
    if effective is not None and 300 <= effective < 400:
        return Refused.PATH, "redirect", None
    for kind, codes in CODES.items():
        for code in found.codes:
            if code in codes:
                return kind, codes[code] or _reason(kind, effective, text), code
    if effective not in (401, 402):
        if cap_field in found.refused_fields or token_cap_refused(text, cap_field):
            return Refused.TOKEN_CAP, cap_field, None
        for kind, reason, pattern in PHRASES:
            if pattern.search(text):
                return kind, reason, None
        if effective != 404 and any(pattern.search(text) for pattern in MODEL_PHRASES):
            return Refused.MODEL, None, None
    if effective == 403 and html:
        return Refused.PLACE, "edge_page", None
    settled = _BY_STATUS.get(effective) if effective is not None else None
    return settled, _reason(settled, effective, text), None


def _reason(kind: Refused | None, status: int | None, text: str) -> str | None:
    if kind is Refused.RATE and (status == 413 or "request too large" in text.lower()):
        return "request_exceeds_rate_budget"
    return None


def _hint(status: int | None, found: _Found, text: str, raw: str, *, html: bool) -> Refused | None:
    """What a refusal that every rung and the control share is taken to mean."""
    if status == 404:
        missing = any(pattern.search(text) for pattern in (*MODEL_PHRASES, *MODEL_HINTS))
        if missing or _names_missing_model(found, text):
            return Refused.MODEL
        if html or not text.strip() or all(ROUTER_TEXT.match(line) for line in text.splitlines()):
            return Refused.PATH
    if status == 503:
        return Refused.OVERLOAD
    return None


def _names_missing_model(found: _Found, text: str) -> bool:
    """Anthropic's bare "model: NAME" under the type not_found_error (corpus: x-404-anthropic)."""
    return "not_found_error" in found.codes and re.fullmatch(r"model: \S+", text.strip()) is not None
