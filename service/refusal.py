"""Reading a refused answer: envelope by envelope to its codes and messages, and from those to what they settle.

In this order: a known code or type; a narrow phrase of credit, key, place or (not under 404) a missing model; the
status. 401 and 402 are not overruled by phrases. What nothing settles climbs the ladder: a 404 can mean tools, a 500
can mean tools or billing, a 400 billing or a key, a 413 the token budget, and a 200 an authentication failure. The
body is read by content, never by its content type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from html.parser import HTMLParser
from typing import Any

from service import waits
from service.model import Refusal, Refused
from service.refusal_codes import CODES, MODEL_PHRASES, PHRASES, ROUTER_TEXT, token_cap_refused

TEXT_LIMIT = 4096

_CODE_KEYS = ("code", "type", "reason", "errorcode", "error_code", "errorCode", "http_code", "__type", "name")
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
    "response",
    "violations",
)
_DEEPEST = 8
_MOST_NODES = 200

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
    nodes: int = 0

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
    html = looks_like_html(text)
    if html:
        found.texts.append(html_words(text))
    else:
        _collect_text(text, found)
    return _judge(status, headers, found, text, html=html, cap_field=cap_field, usage_field=usage_field, now=now)


def read_stream_error(
    data: Any, headers: Mapping[str, str], *, cap_field: str, now: datetime, usage_field: str | None = None
) -> Refusal:
    """An error inside an accepted stream: the parsed event, or its text when it isn't JSON."""
    found = _Found()
    if isinstance(data, str):
        _collect_text(data, found)
    else:
        _collect(data, found, 0)
    return _judge(None, headers, found, found.text, html=False, cap_field=cap_field, usage_field=usage_field, now=now)


def is_error_object(value: Any) -> bool:
    """Whether a JSON value is an error in one of the envelopes seen in the wild, rather than an answer."""
    if isinstance(value, list):
        return bool(value) and all(is_error_object(item) for item in value)
    if not isinstance(value, dict):
        return False
    if any(value.get(key) for key in ("error", "fault", "errorMessage")):
        return True
    if value.get("errors") and isinstance(value["errors"], list):
        return True
    base = value.get("base_resp")
    if isinstance(base, dict) and base.get("status_code") not in (None, 0, "0"):
        return True
    if any(key in value for key in ("choices", "candidates", "output", "content", "data")) and value.get(
        "success", True
    ):
        return False
    if value.get("success") is False or value.get("object") == "error" or value.get("type") == "error":
        return True
    says = any(isinstance(value.get(key), str) and value[key] for key in ("message", "msg", "detail"))
    return (says and any(key in value for key in ("code", "type", "status", "request_id"))) or (
        set(value) in ({"detail"}, {"message"}, {"msg"})
    )


def looks_like_html(text: str) -> bool:
    head = text[:2048].lstrip().lower()
    return head.startswith("<") and ("<html" in head or "<!doctype html" in head or "<head" in head or "<body" in head)


class _Words(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self._skip = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._skip = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._skip = False

    def handle_data(self, data: str) -> None:
        if not self._skip:
            self.words.extend(data.split())


def html_words(text: str) -> str:
    """The words of a page, without its tags."""
    parser = _Words()
    parser.feed(text[:16384])
    return " ".join(parser.words)[:TEXT_LIMIT]


def _collect_text(text: str, found: _Found) -> None:
    """Take a body or a message: JSON wherever it begins, events, or plain words."""
    value = _json_in(text)
    if value is not None:
        _collect(value, found, 0)
        return
    if text.startswith(("data:", "event:", ":")):
        for line in text.splitlines()[:50]:
            if line.startswith("data:"):
                _collect_text(line[5:].strip(), found)
        return
    if text.startswith(("{", "[")):
        found.codes.extend(match[1] for match in _CUT_CODE.finditer(text))
        found.statuses.extend(int(match[1]) for match in _CUT_STATUS.finditer(text))
        found.texts.extend(match[1] for match in _CUT_TEXT.finditer(text))
        return
    if text.strip():
        found.texts.append(text[:TEXT_LIMIT])


# For JSON that was cut off: the same keys, read without a parser.
_CUT_CODE = re.compile(r'"(?:code|type|reason)"\s?:\s?"([^"\\]{1,100})"')
_CUT_STATUS = re.compile(r'"(?:code|status)"\s?:\s?"?(\d{3})\b')
_CUT_TEXT = re.compile(r'"(?:message|msg|detail)"\s?:\s?"((?:[^"\\]|\\.){1,2000})')


def _json_in(text: str) -> Any:
    if not text.startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _collect(node: Any, found: _Found, depth: int, box: str = "") -> None:
    found.nodes += 1
    if depth > _DEEPEST or found.nodes > _MOST_NODES:
        return
    if isinstance(node, list):
        for item in node:
            _collect(item, found, depth + 1, box)
    elif isinstance(node, str):
        _collect_message(node, found, depth)
    elif isinstance(node, dict):
        for key in _CODE_KEYS:
            _collect_code(node.get(key), found, box, key)
        _collect_code(node.get("status_code", node.get("status")), found, box, "status")
        for key in _TEXT_KEYS:
            if isinstance(node.get(key), str):
                _collect_message(node[key], found, depth)
        for key in _BOX_KEYS:
            if node.get(key):
                _collect(node[key], found, depth + 1, key)
        if isinstance(node.get("message"), dict | list):
            _collect(node["message"], found, depth + 1, "message")
        _collect_fields(node, found)
        for key in ("retryDelay", "retry_after", "retry_after_seconds", "retryAfter"):
            if isinstance(node.get(key), str | int | float) and not isinstance(node[key], bool):
                found.waits.append(str(node[key]))


def _collect_code(value: Any, found: _Found, box: str, key: str) -> None:
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, int | float) or (isinstance(value, str) and value.strip().isdigit()):
        number = int(value)
        if box == "base_resp":
            found.codes.append(f"base_resp:{number}")
        elif 400 <= number <= 599:
            found.statuses.append(number)
        elif key in ("code", "error_code"):
            found.codes.append(f"cloudflare:{number}" if box == "errors" else str(number))
    elif isinstance(value, str):
        found.codes.append(re.sub(r"[\s-]+", "_", value.strip()[:100].lower()))


def _collect_message(text: str, found: _Found, depth: int) -> None:
    found.texts.append(text[:TEXT_LIMIT])
    start = text.find("{")
    if start >= 0:
        inner = _json_in(text[start : text.rfind("}") + 1])
        if inner is not None:
            _collect(inner, found, depth + 1)


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
        retry_after_s=waits.retry_after(headers, found.waits, text, now),
        could_pass=kind is None and (effective is None or effective in _COULD_PASS or effective >= 500),
        names_stream_options=usage_field is not None and (usage_field in text or usage_field in found.refused_fields),
        text=text[:TEXT_LIMIT] or raw[:TEXT_LIMIT],
    )


def _effective_status(status: int | None, found: _Found) -> int | None:
    """The status that counts: the one inside the body where the HTTP status says nothing, or where a gateway wraps a
    status that settles."""
    inner = next(iter(found.statuses), None)
    if status is None or status < 300:
        return inner
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
        if any(pattern.search(text) for pattern in MODEL_PHRASES) or _names_missing_model(found, text):
            return Refused.MODEL
        if html or not text.strip() or all(ROUTER_TEXT.match(line) for line in text.splitlines()):
            return Refused.PATH
    if status == 503:
        return Refused.OVERLOAD
    return None


def _names_missing_model(found: _Found, text: str) -> bool:
    """Anthropic's bare "model: NAME" under the type not_found_error (corpus: x-404-anthropic)."""
    return "not_found_error" in found.codes and text.lower().startswith("model")
