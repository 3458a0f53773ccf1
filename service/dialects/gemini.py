"""Gemini's `streamGenerateContent`, as the Gemini API and Vertex serve it: chunks of candidates as events.

Announced end: a `finishReason`, or `promptFeedback.blockReason`; this API has no end marker. A call comes whole in one
part with its arguments as an object, or, where a route's `body` asks for `streamFunctionCallArguments`, value by value
from a part that says `willContinue` to the first one that doesn't. A call may lack an id: its result names it.

Clients of this API read to the end of the body, since servers have put a `finishReason` on every chunk, and
translating gateways put one on empty chunks ahead of the answer. So a part behind an announced end still counts while
no call has come (quirk `content_after_end`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from service.dialects.base import Reader, bearer_or_header, cap_field, grouped
from service.dialects.calls import Draft
from service.dialects.wire import as_count, post
from service.model import Ask, Auth, Choice, Credentials, Message, PastCall, Role, Route, Tool, WireRequest
from service.refusal import is_error_object
from service.sse import Event

_METHOD = ":streamGenerateContent"
_RESOURCES = ("models/", "tunedModels/", "publishers/", "projects/", "endpoints/")
_ROLES: Mapping[str, str] = {"assistant": "model"}
_MOST_CALLS = 256

_CAPPED = frozenset({"MAX_TOKENS", "CONTINUATION"})
_FILTERED = frozenset(
    {
        "SAFETY",
        "RECITATION",
        "LANGUAGE",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "MODEL_ARMOR",
        "ESCALATION",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
    }
)
_MALFORMED = frozenset({"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE"})
# They speak of the request or the account, not of an answer that ended.
_QUIET_ERRORS = frozenset({"MISSING_THOUGHT_SIGNATURE", "PUP_LIMITED_DISABLED"})

_FOREIGN_TYPES = ("response.", "message_", "content_block_")
_JSON_PATH = re.compile(r"""\$(?:\.([^.\[\]]+)|\[(["'])(.+?)\2\])(.*)""", re.DOTALL)
_PARTIAL_VALUES = ("stringValue", "numberValue", "boolValue")


class _Growing:
    """A call that is to be continued. Of a nested value only its presence is kept: probes declare flat functions."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self._values: dict[str, list[Any]] = {}

    def add(self, call: Mapping[str, Any]) -> None:
        args, partial = call.get("args"), call.get("partialArgs")
        for name, value in args.items() if isinstance(args, dict) else ():
            self._values[name] = [value]
        for piece in partial if isinstance(partial, list) else ():
            path = _JSON_PATH.fullmatch(str(piece.get("jsonPath"))) if isinstance(piece, dict) else None
            if path is not None:
                value = {} if path[4] else next((piece[key] for key in _PARTIAL_VALUES if key in piece), None)
                self._values.setdefault(path[1] or path[3], []).append(value)

    def end(self, *, whole: bool) -> None:
        """The arguments, as far as they came, become the draft's; without their end they aren't whole."""
        joined = {
            name: "".join(pieces) if all(isinstance(piece, str) for piece in pieces) else pieces[-1]
            for name, pieces in self._values.items()
        }
        text = json.dumps(joined)
        self.draft.add_arguments(text if whole else text[:-1])


class GeminiReader(Reader):
    """Reads GenerateContentResponse chunks."""

    calls_need_ids = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._growing: _Growing | None = None
        self._parts: list[tuple[dict[str, Any], Draft | None]] = []

    def _read(self, event: Event, data: str) -> None:
        if self.complete:
            return
        if data == "[DONE]":
            # Another API's marker: it announces nothing, and Google's own clients stumble over it.
            self.quirks.add("done_unexpected")
            self.complete = self.done
            return
        if event.name == "error" and not data.startswith(("{", "[")):
            self.fail(data)
            return
        chunk = self.parse(event, data)
        if chunk is None:
            return
        if event.name == "error" or is_error_object(chunk):
            self.fail(chunk)
        elif isinstance(chunk, dict):
            self._chunk(chunk)
        else:
            self.mark_broken("event_not_object")

    def result(self) -> Any:
        self._end_growing(whole=False)
        return super().result()

    def _chunk(self, chunk: dict[str, Any]) -> None:
        self._usage(chunk.get("usageMetadata"))
        if self.error is not None or (self.announced is not None and self.drafts):
            return
        model = chunk.get("modelVersion")
        if self.served_model is None and isinstance(model, str) and model:
            self.served_model = model.removeprefix("models/")[:200]
        candidates = chunk.get("candidates")
        if isinstance(candidates, list) and candidates:
            if isinstance(candidates[0], dict):
                self._candidate(candidates[0])
            else:
                self.mark_broken("candidate_not_object")
        elif "candidates" not in chunk and _is_foreign(chunk):
            self.mark_broken("foreign_dialect")
        feedback = chunk.get("promptFeedback")
        blocked = _word(feedback.get("blockReason")) if isinstance(feedback, dict) else ""
        if blocked:
            self.announced = self.announced or blocked
            self.filtered = True

    def _candidate(self, candidate: dict[str, Any]) -> None:
        content = candidate.get("content")
        parts = content.get("parts") if isinstance(content, dict) else None
        before = self.deltas
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, dict):
                self._part(part)
        if self.announced is not None and self.deltas > before:
            self.quirks.add("content_after_end")
        self._finish(_word(candidate.get("finishReason")), candidate.get("finishMessage"))

    def _wire(self) -> dict[str, Any]:
        """The parts as they came, signatures and all; a call that came in pieces goes back whole."""
        parts = []
        for part, draft in self._parts:
            if draft is None:
                parts.append(part)
            else:
                whole = {key: value for key, value in part["functionCall"].items() if key in ("id", "name")}
                whole["args"] = json.loads(draft.arguments or "{}")
                parts.append({**part, "functionCall": whole})
        return {"role": "model", "parts": parts}

    def _part(self, part: dict[str, Any]) -> None:
        calls = len(self.drafts)
        self._read_part(part)
        began = self.drafts[-1] if len(self.drafts) > calls else None
        # An empty text may be there to carry a signature.
        wanted = began is not None or ("functionCall" not in part and (part.get("text") != "" or _signed(part)))
        if wanted and self.keep_value(part):
            pieces = part.get("functionCall") or {}
            self._parts.append((part, began if "willContinue" in pieces or "partialArgs" in pieces else None))

    def _read_part(self, part: dict[str, Any]) -> None:
        if part.get("thought") is True:
            self.add_reasoning(part.get("text"))
        else:
            self.add_text(part.get("text"))
        call = part.get("functionCall")
        if isinstance(call, dict):
            self.deltas += 1
            self._call(call)

    def _finish(self, reason: str, message: Any) -> None:
        if reason in _QUIET_ERRORS:
            said = message if isinstance(message, str) and message else f"the stream ended with finishReason {reason}"
            self.fail({"code": reason, "message": said})
        elif reason:
            self.announced = self.announced or reason
            self.capped = self.capped or reason in _CAPPED
            self.filtered = self.filtered or reason in _FILTERED
            self.declared_malformed = self.declared_malformed or reason in _MALFORMED

    def _call(self, call: dict[str, Any]) -> None:
        name, call_id = call.get("name"), call.get("id")
        call_id = str(call_id) if isinstance(call_id, str | int) else ""
        growing = self._growing
        if growing is None or (name and (not call_id or call_id != growing.draft.id)):
            self._end_growing(whole=False)
            if len(self.drafts) >= _MOST_CALLS:
                self.mark_broken("too_many_calls")
                return
            draft = Draft(call_id)
            self.drafts.append(draft)
            if isinstance(name, str) and name:
                draft.add_name(name, self.declared)
            if call.get("willContinue") is not True and "partialArgs" not in call:
                self._whole(draft, call.get("args"))
                return
            growing = self._growing = _Growing(draft)
        growing.add(call)
        if call.get("willContinue") is not True:
            self._end_growing(whole=True)

    def _whole(self, draft: Draft, args: Any) -> None:
        if args is None:
            return
        try:
            draft.add_arguments(json.dumps(args))
        except RecursionError:  # as deep as the parser goes, and a little deeper than the encoder does
            self.mark_broken("data_not_json")

    def _end_growing(self, *, whole: bool) -> None:
        if self._growing is not None:
            self._growing.end(whole=whole)
            self._growing = None

    def _usage(self, usage: Any) -> None:
        if not isinstance(usage, dict):
            return
        asked, *answered = (as_count(usage.get(f"{name}TokenCount")) for name in ("prompt", "candidates", "thoughts"))
        if asked is not None:
            self.tokens_in = asked
        if answered != [None, None]:
            self.tokens_out = sum(count or 0 for count in answered)


class Gemini:
    """The dialect of `{base}/models/MODEL:streamGenerateContent?alt=sse`. A model that is named as a resource
    (`models/…`, Vertex' `publishers/…`) is taken as it stands."""

    name = "gemini"
    mixes_results = True
    cap_fields: tuple[str, ...] = ("maxOutputTokens",)
    auth = Auth.X_GOOG_API_KEY

    def encode(self, route: Route, ask: Ask) -> WireRequest:
        generation: dict[str, Any] = {cap_field(self, ask): route.token_cap.value}
        if route.temperature is not None:
            generation["temperature"] = route.temperature
        body: dict[str, Any] = {
            "contents": [_content(group, _own_ids(ask)) for group in grouped(ask.messages)],
            "generationConfig": generation,
        }
        if ask.tools:
            body["tools"] = [{"functionDeclarations": [_declare(tool) for tool in ask.tools]}]
            body["toolConfig"] = {
                "functionCallingConfig": (
                    {"mode": "ANY", "allowedFunctionNames": [ask.tools[0].name]}
                    if ask.choice is Choice.FORCED
                    else {"mode": str(ask.choice).upper()}
                )
            }
        return post(_url(route.base_url, route.model), route, body)

    def authorize(self, route: Route, credentials: Credentials) -> Mapping[str, str]:
        return bearer_or_header(route, credentials, self.auth)

    def reader(self, route: Route, ask: Ask, headers: Mapping[str, str], now: datetime) -> Reader:
        return GeminiReader(ask, cap=route.token_cap.value, cap_field=cap_field(self, ask), headers=headers, now=now)

    def is_completion(self, body: Any) -> bool:
        """Also the array of chunks that comes where `alt=sse` is ignored, and an envelope around an answer."""
        if isinstance(body, list):
            return any(isinstance(item, dict) and self.is_completion(item) for item in body)
        if not isinstance(body, dict):
            return False
        inner = body.get("response")
        return "candidates" in body or "promptFeedback" in body or (isinstance(inner, dict) and "candidates" in inner)


def _url(base: str, model: str) -> str:
    parts = urlsplit(base)
    path = parts.path.rstrip("/")
    if not path.endswith(_METHOD):
        resource = model if model.startswith(_RESOURCES) else f"models/{model}"
        if path.endswith("/models"):
            resource = resource.removeprefix("models/")
        path = f"{path}/{quote(resource, safe='/:@')}{_METHOD}"
    query = [pair for pair in parts.query.split("&") if pair and pair.partition("=")[0] != "alt"]
    return urlunsplit((parts.scheme, parts.netloc, path, "&".join([*query, "alt=sse"]), ""))


def _own_ids(ask: Ask) -> frozenset[str]:
    """The ids that the route gave its own calls; hand-made calls go without one."""
    return frozenset(call.id for message in ask.messages if message.replay for call in message.replay.calls if call.id)


def _content(group: list[Message], own: frozenset[str]) -> dict[str, Any]:
    """One content: a message, or neighbouring results in the one content that carries them."""
    message = group[0]
    if message.role is Role.RESULT:
        parts: list[dict[str, Any]] = [
            {"functionResponse": {**_identity(one.answers, own), "response": {"result": one.text}}}
            for one in group
            if one.answers
        ]
        return {"role": "user", "parts": parts + [{"text": one.beside} for one in group if one.beside]}
    if message.replay is not None:
        return dict(message.replay.wire)
    calls = [{"functionCall": {**_identity(call, own), "args": json.loads(call.arguments)}} for call in message.calls]
    return {"role": _ROLES.get(message.role, message.role), "parts": [{"text": message.text}, *calls]}


def _identity(call: PastCall, own: frozenset[str]) -> dict[str, str]:
    return {"id": call.id, "name": call.name} if call.id in own else {"name": call.name}


def _declare(tool: Tool) -> dict[str, Any]:
    """The API's own Schema, whose types are an enum in upper case."""
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": {
            "type": "OBJECT",
            "properties": {name: {"type": kind.upper()} for name, kind in tool.properties.items()},
            "required": list(tool.properties),
        },
    }


def _is_foreign(chunk: Mapping[str, Any]) -> bool:
    """Another API's event, or this one's inside the envelope of another."""
    kind, inner = chunk.get("type"), chunk.get("response")
    return (
        "choices" in chunk
        or (isinstance(kind, str) and kind.startswith(_FOREIGN_TYPES))
        or (isinstance(inner, dict) and "candidates" in inner)
    )


def _signed(part: Mapping[str, Any]) -> bool:
    return bool(part.get("thoughtSignature") or part.get("thought_signature"))


def _word(reason: Any) -> str:
    """A reason's word; the one that stands for none is none."""
    word = reason.strip()[:60].upper() if isinstance(reason, str) else ""
    return "" if word.endswith("_UNSPECIFIED") else word
