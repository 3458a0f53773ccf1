"""Refused answers, read from their bytes: every envelope and phrase seen in the wild, and what must settle nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.answer import ERROR_LIMIT
from service.demo.scenario import Reply, Scenario, Values
from service.model import Refusal, Refused, Status
from service.refusal import is_error_object, read_refusal, read_stream_error
from tests.peer import load_corpus

NOW = datetime(2025, 3, 9, 3, 12, 7, tzinfo=UTC)

CREDENTIAL, CREDIT, NO_CHANNEL, RATE, OVERLOAD, MODEL, PLACE, PATH, FILTER, TOKEN_CAP, BROKEN_CALL = (
    Refused.CREDENTIAL,
    Refused.CREDIT,
    Refused.NO_CHANNEL,
    Refused.RATE,
    Refused.OVERLOAD,
    Refused.MODEL,
    Refused.PLACE,
    Refused.PATH,
    Refused.FILTER,
    Refused.TOKEN_CAP,
    Refused.BROKEN_CALL,
)


def read(
    status: int, body: Any = b"", headers: Mapping[str, str] | None = None, *, cap_field: str = "max_tokens"
) -> Refusal:
    if isinstance(body, str):
        body = body.encode()
    elif not isinstance(body, bytes):
        body = json.dumps(body).encode()
    return read_refusal(status, headers or {}, body, cap_field=cap_field, usage_field="stream_options", now=NOW)


def read_event(data: Any) -> Refusal:
    return read_stream_error(data, {}, cap_field="max_tokens", usage_field="stream_options", now=NOW)


def message(text: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": text, **more}}


# --- the corpus ---------------------------------------------------------------------------------------------

LEADS_TO: Mapping[str, frozenset[Refused]] = {
    Status.ENDPOINT_AUTH_FAILED: frozenset({CREDENTIAL}),
    Status.QUOTA_OR_ROUTING_FAILED: frozenset({CREDIT, NO_CHANNEL}),
    Status.RATE_LIMITED: frozenset({RATE}),
    Status.OVERLOADED: frozenset({OVERLOAD}),
    Status.MODEL_UNAVAILABLE: frozenset({MODEL}),
    Status.REGION_BLOCKED: frozenset({PLACE}),
    Status.ENDPOINT_NOT_FOUND: frozenset({PATH}),
    Status.CONTENT_FILTERED: frozenset({FILTER}),
    Status.TOKEN_CAP_REJECTED: frozenset({TOKEN_CAP}),
    Status.MALFORMED_TOOL_CALL: frozenset({BROKEN_CALL}),
}
VALUES = Values(tools=("record_value",), model="probe-model-1", key="sk-test-0000")


def body_of(reply: Reply) -> bytes:
    return b"".join(reply.pieces(VALUES))


def in_stream(reply: Reply) -> Iterator[Any]:
    """The errors inside an accepted answer, as a dialect's reader hands them on."""
    for line in body_of(reply).decode("utf-8", "replace").splitlines():
        data = line.removeprefix("data:").strip()
        if not line.startswith("data:") or not data.startswith("{"):
            continue
        try:
            value = json.loads(data)
        except ValueError:
            continue
        if is_error_object(value) or is_error_object(value.get("response")):
            yield value


def refusals(scenario: Scenario) -> list[Refusal]:
    """Every refused answer of a scenario, in stream or not, as the probe that it is meant for reads it."""
    cap_field = scenario.route.get("token_cap_field") or "max_tokens"
    found: list[Refusal] = []
    for entry in scenario.replies:
        reply, headers = entry.reply, {name.lower(): VALUES.fill(value) for name, value in entry.reply.headers.items()}
        if reply.status == 0:
            continue
        if reply.status >= 300:
            body = body_of(reply)[:ERROR_LIMIT]
            found.append(read_refusal(reply.status, headers, body, cap_field=cap_field, now=NOW))
        elif reply.framing == "json" and is_error_object(reply.body):
            found.append(read_refusal(reply.status, headers, body_of(reply), cap_field=cap_field, now=NOW))
        else:
            found.extend(read_stream_error(data, headers, cap_field=cap_field, now=NOW) for data in in_stream(reply))
    return found


REFUSED = [scenario for scenario in load_corpus() if refusals(scenario)]


def test_the_corpus_is_looked_at() -> None:
    assert len(REFUSED) >= 170


@pytest.mark.parametrize("scenario", REFUSED, ids=lambda scenario: scenario.id)
def test_a_refusal_of_the_corpus_settles_what_its_verdict_rests_on_and_no_other_one_settles_anything(
    scenario: Scenario,
) -> None:
    read_as = refusals(scenario)
    wanted = LEADS_TO.get(scenario.expect["status"], frozenset())
    kinds = {refusal.kind for refusal in read_as if refusal.kind}
    assert kinds <= wanted
    if scenario.expect["status"] in (Status.MALFORMED_TOOL_CALL, Status.CONTENT_FILTERED) and not kinds:
        return  # the stream itself is what is judged there
    if wanted:
        assert {refusal.hint for refusal in read_as} & wanted
    if "retry_after" in scenario.expect:
        low, high = scenario.expect["retry_after"]
        assert any(refusal.retry_after_s is not None and low <= refusal.retry_after_s <= high for refusal in read_as)


# --- envelopes ----------------------------------------------------------------------------------------------

ENVELOPES: Mapping[str, tuple[int, Any, Refused]] = {
    "error object": (400, {"error": {"code": "insufficient_quota"}}, CREDIT),
    "list of one": (400, [{"error": {"code": 400, "details": [{"reason": "API_KEY_INVALID"}]}}], CREDENTIAL),
    "flat": (400, {"message": "x", "type": "rate_limit_error", "code": None}, RATE),
    "error as text": (400, {"error": "Incorrect API key provided"}, CREDENTIAL),
    "error as a code": (500, {"error": "unauthorized", "message": "x"}, CREDENTIAL),
    "code and error": (400, {"code": "Client specified an invalid argument", "error": "Invalid API key"}, CREDENTIAL),
    "errors": (400, {"success": False, "errors": [{"code": 10000, "message": "Authentication error"}]}, CREDENTIAL),
    "base_resp": (200, {"base_resp": {"status_code": 1008, "status_msg": "x"}}, CREDIT),
    "errorMessage": (500, {"errorMessage": "insufficient balance"}, CREDIT),
    "fault": (500, {"fault": {"detail": {"errorcode": "oauth.v2.InvalidApiKey"}}}, CREDENTIAL),
    "detail object": (400, {"detail": {"error": {"code": "model_not_found"}}}, MODEL),
    "message as object": (400, {"message": {"detail": [{"code": "insufficient_quota"}]}}, CREDIT),
    "AWS type": (400, {"__type": "com.amazon.coral.service#ThrottlingException", "message": "x"}, RATE),
    "Fastify": (500, {"statusCode": 429, "error": "Too Many Requests", "message": "Rate limit exceeded"}, RATE),
    "raw as text": (
        400,
        message("Provider returned error", code=400, metadata={"raw": '{"error":{"code":"content_filter"}}'}),
        FILTER,
    ),
    "raw as object": (
        400,
        message("Provider returned error", metadata={"raw": {"detail": "Insufficient Balance"}}),
        CREDIT,
    ),
    "raw as words": (400, message("Provider returned error", metadata={"raw": "insufficient balance"}), CREDIT),
    "JSON in a message": (400, message('{"type":"error","error":{"type":"overloaded_error"}}'), OVERLOAD),
    "JSON behind words": (500, message('upstream says {"error":{"code":"rate_limit_exceeded"}} (id 1)'), RATE),
    "JSON behind other braces": (
        500,
        message('model {x} failed on {}: {"error":{"code":"rate_limit_exceeded"}}'),
        RATE,
    ),
    "JSON behind words in a plain body": (500, 'HTTP 429: {"error":{"code":"rate_limit_exceeded"}}', RATE),
    "cut JSON in a message": (500, message('upstream: {"error":{"code":"rate_limit_exceeded","mess'), RATE),
    "two gateways deep": (
        502,
        message(
            "outer",
            code=502,
            metadata={
                "raw": json.dumps(message("inner", metadata={"raw": json.dumps(message("x", code="invalid_api_key"))}))
            },
        ),
        CREDENTIAL,
    ),
    "upstream_error": (400, {"type": "error", "error": {"upstream_error": message("", type="billing_error")}}, CREDIT),
    "framed as events": (400, 'event: error\ndata: {"error":{"code":"insufficient_quota"}}\n\n', CREDIT),
    "framed with CRLF behind a comment": (400, ': hi\r\n\r\ndata: {"error":{"code":"insufficient_quota"}}\r\n', CREDIT),
    "framed over several lines": (400, 'data: {"error":\ndata: {"code":"insufficient_quota"}}\n\n', CREDIT),
    "BOM": (400, b"\xef\xbb\xbf" + b'{"error":{"code":"insufficient_quota"}}', CREDIT),
    "bad UTF-8": (400, b'{"error":{"message":"cl\xe9 \xff","code":"invalid_api_key"}}', CREDENTIAL),
    "raw line end in a string": (400, '{"error":{"message":"one\ntwo","code":"invalid_api_key"}}', CREDENTIAL),
    "something glued behind": (400, '{"error":"Invalid API key"}[DONE]', CREDENTIAL),
    "Python, not JSON": (400, "{'error': {'message': 'Incorrect API key provided'}}", CREDENTIAL),
    "page": (400, "<!doctype html><title>x</title><p>Insufficient &#98;alance</p>", CREDIT),
    "page with broken markup": (400, "<html><![foo[ <p>Insufficient balance", CREDIT),
    "fragment of a page": (400, "<h1>Insufficient <b>balance</b></h1>", CREDIT),
}


@pytest.mark.parametrize(("status", "body", "kind"), ENVELOPES.values(), ids=ENVELOPES)
def test_envelope(status: int, body: Any, kind: Refused) -> None:
    assert read(status, body).kind is kind


@pytest.mark.parametrize("lie", ["text/html", "application/json", "text/event-stream", "image/png", ""])
@pytest.mark.parametrize("body", ['{"error":{"code":"invalid_api_key"}}', "Invalid API key", "<html>Invalid API key"])
def test_the_content_type_is_not_believed(lie: str, body: str) -> None:
    assert read(400, body, {"content-type": lie}).kind is CREDENTIAL


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "Incorrect API key", "trace": "x" * 70000}},
        {"error": {"code": "invalid_api_key", "trace": ["y" * 100] * 700}},
        {"base_resp": {"status_code": 1004}, "trace": {"a": [{"b": '\\"' * 33000}]}},
        {"error": "Incorrect API key", "trace": "\u0416" * 40000},
        [{"error": {"details": [{"reason": "API_KEY_INVALID"}], "trace": "z" * 70000}}],
    ],
)
def test_a_body_cut_at_our_cap_still_says_why(body: Any) -> None:
    assert read(400, json.dumps(body).encode()[:ERROR_LIMIT]).kind is CREDENTIAL


def test_a_body_may_be_cut_at_any_byte() -> None:
    """From the byte on that ends the code, every longer piece settles it; no shorter one says anything else."""
    body = '{"error":{"code":"invalid_api_key","message":"Clé \\u00e9 \\"x\\" \\\\ {[,","param":null,"n":[1,{"a":true}]}}'.encode()
    known = body.index(b"invalid_api_key") + len("invalid_api_key")
    for end in range(len(body) + 1):
        assert read(400, body[:end]).kind is (CREDENTIAL if end >= known else None), body[:end]


def test_a_cut_code_is_not_completed() -> None:
    assert read(400, '{"error":{"code":"rate_limit').kind is None


@pytest.mark.parametrize(
    "body", [b"", b" \r\n", b"null", b"[]", b"{}", b"0", b'""', b'{"error":{}}', b'{"error":null}']
)
@pytest.mark.parametrize(
    ("status", "kind"), [(400, None), (401, CREDENTIAL), (402, CREDIT), (403, CREDENTIAL), (429, RATE), (500, None)]
)
def test_without_words_the_status_is_all_there_is(body: bytes, status: int, kind: Refused | None) -> None:
    refusal = read(status, body)
    assert refusal.kind is kind
    assert refusal.reason == f"http_{status}"


def test_the_text_is_the_innermost_message_too_and_bounded() -> None:
    inner = json.dumps(message("the true cause"))
    assert read(400, message("outer", metadata={"raw": inner})).text.splitlines()[0] == "outer"
    assert "the true cause" in read(400, message("outer", metadata={"raw": inner})).text.splitlines()
    assert len(read(400, "x" * 60000).text) == 4096


# --- codes --------------------------------------------------------------------------------------------------

VENDORS: tuple[tuple[int, Any, Refused | None, str], ...] = (
    (
        429,
        message("You exceeded your current quota", type="insufficient_quota", code="insufficient_quota"),
        CREDIT,
        "OpenAI",
    ),
    (403, message("Country not supported", code="unsupported_country_region_territory"), PLACE, "OpenAI"),
    (404, message("x", code="model_not_found"), MODEL, "OpenAI"),
    (400, message("Invalid prompt: flagged", type="invalid_request_error", code="invalid_prompt"), FILTER, "OpenAI"),
    (500, message("x", type="service_unavailable_error", code="server_is_overloaded"), OVERLOAD, "OpenAI"),
    (429, message("The usage limit has been reached", type="usage_limit_reached"), CREDIT, "OpenAI"),
    (400, {"error": {"code": "OperationNotSupported", "message": "x"}}, MODEL, "Azure"),
    (401, {"statusCode": 401, "message": "Access denied due to invalid subscription key."}, CREDENTIAL, "Azure"),
    (400, {"error": {"innererror": {"code": "ResponsibleAIPolicyViolation"}, "code": None}}, FILTER, "Azure"),
    (400, {"error": {"code": "unavailable_model", "message": "Unavailable model: x"}}, MODEL, "GitHub Models"),
    (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, OVERLOAD, "Anthropic"),
    (400, {"type": "error", "error": {"type": "billing_error", "message": "x"}}, CREDIT, "Anthropic"),
    (429, {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "x"}}, RATE, "Gemini"),
    (401, {"error": {"code": 401, "status": "UNAUTHENTICATED", "message": "x"}}, CREDENTIAL, "Gemini"),
    (403, {"error": {"code": 403, "details": [{"reason": "BILLING_DISABLED"}]}}, CREDIT, "Gemini"),
    (429, {"object": "error", "type": "rate_limited", "code": "1300", "raw_status_code": 429}, RATE, "Mistral"),
    (429, {"object": "error", "type": "service_tier_capacity_exceeded", "code": "3505"}, OVERLOAD, "Mistral"),
    (
        400,
        {"object": "error", "message": "Invalid model: x", "type": "invalid_model", "code": "1500"},
        MODEL,
        "Mistral",
    ),
    (413, message("Request too large", type="tokens", code="rate_limit_exceeded"), RATE, "Groq"),
    (400, message("x", code="model_decommissioned"), MODEL, "Groq"),
    (404, message("Unknown request URL: POST /x", code="unknown_url"), PATH, "Groq"),
    (400, message("Failed to call a function", code="tool_use_failed"), BROKEN_CALL, "Groq"),
    (
        403,
        {"code": "permission-denied", "error": "Your newly created team doesn't have any credits yet."},
        CREDIT,
        "xAI",
    ),
    (
        429,
        {"code": "x", "error": "Your team has either used all available credits or reached its limit."},
        CREDIT,
        "xAI",
    ),
    (403, {"code": "personal-team-blocked:spending-limit", "error": "You have run out of credits"}, CREDIT, "xAI"),
    (401, message("No auth credentials found", code=401), CREDENTIAL, "OpenRouter"),
    (403, message("flagged", code=403, metadata={"reasons": ["x"], "flagged_input": "y"}), FILTER, "OpenRouter"),
    (400, message("x/y is not a valid model ID", code=400), MODEL, "OpenRouter"),
    (502, message("Provider returned error", code=502, metadata={"raw": '{"error":{"code":429}}'}), RATE, "OpenRouter"),
    (
        400,
        message("Unable to access model x", type="invalid_request_error", code="model_not_available"),
        MODEL,
        "Together",
    ),
    (402, message("Insufficient Balance", type="unknown_error", code="invalid_request_error"), CREDIT, "DeepSeek"),
    (429, message("x", type="exceeded_current_quota_error"), CREDIT, "Moonshot"),
    (401, message("x", type="incorrect_api_key_error"), CREDENTIAL, "Moonshot"),
    (404, {"code": 5, "error": "url.not_found", "message": "没找到对象", "method": "POST"}, PATH, "Moonshot"),
    (429, message("x", code="1113"), CREDIT, "Zhipu"),
    (429, message("Usage limit reached for 5 hour.", code="1308"), CREDIT, "Zhipu"),
    (429, message("x", code="1310"), CREDIT, "Zhipu"),
    (429, message("High concurrency usage of this API", code="1302"), RATE, "Zhipu"),
    (429, message("The service may be temporarily overloaded", code="1305"), OVERLOAD, "Zhipu"),
    (400, message("x", code="1211"), MODEL, "Zhipu"),
    (200, {"code": 401, "msg": "token expired or incorrect", "success": False}, CREDENTIAL, "Zhipu"),
    (200, {"base_resp": {"status_code": 1002, "status_msg": "rate limit"}}, RATE, "MiniMax"),
    (200, {"base_resp": {"status_code": 2049, "status_msg": "invalid api key"}}, CREDENTIAL, "MiniMax"),
    (200, {"base_resp": {"status_code": 1026, "status_msg": "new_sensitive"}}, FILTER, "MiniMax"),
    (400, {"code": "InvalidApiKey", "message": "x"}, CREDENTIAL, "DashScope"),
    (400, {"code": "DataInspectionFailed", "message": "x"}, FILTER, "DashScope"),
    (403, message("x", code="AllocationQuota.FreeTierOnly"), CREDIT, "DashScope"),
    (403, message("x", code="AccountOverdueError"), CREDIT, "Volcengine"),
    (429, message("x", code="ServerOverloaded", type="TooManyRequests"), OVERLOAD, "Volcengine"),
    (404, message("x", code="InvalidEndpointOrModel.NotFound"), MODEL, "Volcengine"),
    (400, message("x", code="SensitiveContentDetected"), FILTER, "Volcengine"),
    (500, {"message": "invalid api token"}, None, "Cohere"),
    (400, {"success": False, "errors": [{"code": 7003, "message": "Could not route"}]}, PATH, "Cloudflare"),
    (403, "error code: 1010", PLACE, "Cloudflare"),
    (429, "error code: 1015", RATE, "Cloudflare"),
    (500, message("x (request id: 1)", type="new_api_error", code="insufficient_user_quota"), CREDIT, "new-api"),
    (503, message("No available channel for model x under group default (distributor)"), NO_CHANNEL, "new-api"),
    (503, message("分组 default 下模型 x 无可用渠道（distributor）"), NO_CHANNEL, "new-api"),
    (500, message("litellm.RateLimitError: x", type="None", param="None", code="429"), RATE, "LiteLLM"),
    (400, message("Budget has been exceeded!", type="budget_exceeded", param=None, code="400"), CREDIT, "LiteLLM"),
    (
        400,
        message("Authentication Error", type="token_not_found_in_db", param="key", code="400"),
        CREDENTIAL,
        "LiteLLM",
    ),
    (503, {"error": {"message": "x", "type": "unsupported_api_for_model"}}, MODEL, "Copilot"),
)


@pytest.mark.parametrize(
    ("status", "body", "kind", "vendor"), VENDORS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_vendor(status: int, body: Any, kind: Refused | None, vendor: str) -> None:
    assert read(status, body).kind is kind


@pytest.mark.parametrize(
    ("header", "status", "kind"),
    [
        ("ThrottlingException", 400, RATE),
        ("UnrecognizedClientException:http://internal.amazon.com/coral/", 403, CREDENTIAL),
        ("ExpiredTokenException", 400, CREDENTIAL),
        ("ValidationException", 400, None),
    ],
)
def test_aws_names_the_error_in_a_header(header: str, status: int, kind: Refused | None) -> None:
    assert read(status, {"message": "x"}, {"x-amzn-errortype": header}).kind is kind


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, message("x", type="None", code="400")),
        (400, {"object": "error", "message": "x", "type": "BadRequestError", "param": None, "code": 400}),
        (400, message("x", type="invalid_request_error", code="invalid_value")),
        (400, message("x", type="invalid_request_error", code="context_length_exceeded")),
        (500, message("x", type="server_error", code="server_error")),
        (500, message("x", code=13002)),
        (500, {"success": False, "errors": [{"code": 1113}]}),
        (502, {"success": False, "errors": [{"code": 7009, "message": "Upstream service unavailable"}]}),
        (400, {"base_resp": {"status_code": 2013, "status_msg": "invalid params"}}),
        (400, {"error": {"code": "²"}}),
        (400, {"error": {"code": "9" * 5000}}),
        (400, '{"error":{"code":NaN}}'),
        (400, '{"error":{"code":-1e999}}'),
        (400, {"error": {"code": True, "status": False}}),
    ],
)
def test_an_ordinary_or_odd_code_settles_nothing(status: int, body: Any) -> None:
    assert read(status, body).kind is None


# --- phrases ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 403, 422, 429, 500, 503])
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Insufficient Balance", CREDIT),
        ("insufficient balance (1008)", CREDIT),
        ("Your credit balance is too low to access the Anthropic API.", CREDIT),
        ("Your team doesn't have any credits yet.", CREDIT),
        ("Your team doesn’t have any credits yet.", CREDIT),
        ("The team does not have any credits", CREDIT),
        ("has either used all available credits or reached its limit", CREDIT),
        ("This request requires more credits, or fewer max_tokens.", CREDIT),
        ("Billing is not enabled for this project", CREDIT),
        ("billing not enabled", CREDIT),
        ("No available channel for model x", NO_CHANNEL),
        ("当前分组 default 下对于模型 x 无可用渠道", NO_CHANNEL),
        ("Incorrect API key provided: sk-***", CREDENTIAL),
        ("Invalid ApiKey", CREDENTIAL),
        ("invalid api_key", CREDENTIAL),
        ("API key not valid. Please pass a valid API key.", CREDENTIAL),
        ("No auth credentials found", CREDENTIAL),
        ("token expired or incorrect", CREDENTIAL),
        ("User location is not supported for the API use.", PLACE),
        ("The owner has banned the country or region your IP address is in", PLACE),
        ("Sorry, you have been blocked", PLACE),
    ],
)
def test_a_phrase_counts_under_any_status_that_phrases_may_overrule(status: int, text: str, kind: Refused) -> None:
    assert read(status, message(text)).kind is kind
    assert read(status, f"Error: {text}").kind is kind
    assert read_event(message(text)).kind is kind


@pytest.mark.parametrize("status", [400, 404, 422, 500])
@pytest.mark.parametrize(
    "text",
    [
        "insufficient tool messages following tool_calls message",
        "quota",
        "The tool quota of this request is exceeded",
        "unsupported",
        "invalid",
        "model",
        "blocked",
        "The request was blocked",
        "Function calling is unsupported for this model",
        "Tool use with function calling is unsupported by the model.",
        "The model is invalid for tool use",
        "model probe-model-1 does not support tools",
        "registry.example/library/gemma3:4b does not support tools",
        "tool_choice is not supported",
        "Thinking mode does not support this tool_choice",
        "max_tokens is too large: 1024",
        "No endpoints found that support tool use.",
        "Tools were not found in this model's template",
        "tool_call_id is not found",
        "tool result's tool id(call_1) not found (2013)",
        "tools are refused. You can find your API key at https://platform.example/api-keys.",
        "Country code is not a declared property",
        "Your account has credits; tools need none",
        "billing",
        "rate",
        "This channel is not available to tools",
        "the location of the tool is unknown",
    ],
)
def test_words_about_tools_and_bare_words_settle_nothing(status: int, text: str) -> None:
    for body in (message(text), text, {"message": text, "type": "invalid_request_error"}):
        refusal = read(status, body)
        assert (refusal.kind, refusal.hint) == (None, None)
    assert read_event(message(text)).kind is None


MISSING_MODEL = (
    "The model `x/y-1:free` does not exist or you do not have access to it.",
    "model 'llama3:8b' not found, try pulling it first",
    'model "x" not found',
    "models/x is not found for API version v1beta, or is not supported for generateContent.",
    "Publisher Model `projects/p/locations/l/publishers/a/models/x@1` was not found",
    "No models loaded. Please load a model in the developer page.",
    "x/y is not a valid model ID",
)


@pytest.mark.parametrize("text", MISSING_MODEL)
def test_a_missing_model_settles_but_under_404_where_it_is_only_what_is_said_in_the_end(text: str) -> None:
    assert read(400, message(text)).kind is MODEL
    refusal = read(404, message(text))
    assert (refusal.kind, refusal.hint) == (None, MODEL)
    assert not refusal.could_pass


@pytest.mark.parametrize(
    "body",
    [
        {"type": "error", "error": {"type": "not_found_error", "message": "model: claude-x"}},
        message("Model not found, inaccessible, and/or not deployed"),
        {"error": "Model does not exist"},
        message("Not found the model kimi-x or Permission denied", type="resource_not_found_error"),
    ],
)
def test_looser_words_of_a_missing_model_count_under_404_and_nowhere_else(body: Any) -> None:
    assert read(404, body).hint is MODEL
    assert (read(400, body).kind, read(400, body).hint) == (None, None)


@pytest.mark.parametrize(
    "body",
    [
        "",
        "404 page not found",
        "404: Not Found",
        "Not Found",
        {"detail": "Not Found"},
        {"error": "Not Found"},
        {"error": {"code": "404", "message": "Resource not found"}},
        {"statusCode": 404, "message": "Cannot POST /v1/chat", "error": "Not Found"},
        {"statusCode": 404, "message": "Route POST:/v1/chat not found", "error": "Not Found"},
        {"timestamp": "2025-03-09", "status": 404, "error": "Not Found", "path": "/v1/chat"},
        {"message": "no Route matched with those values"},
        message("Invalid URL (POST /v1/chat)", type="invalid_request_error"),
        message("File Not Found", type="not_found_error", code=404),
        "<html><title>404 Not Found</title></html>",
        "<h1>Not Found</h1>",
        {"type": "error", "error": {"type": "not_found_error", "message": "Not Found"}},
    ],
)
def test_a_bare_404_speaks_of_the_path_in_the_end(body: Any) -> None:
    refusal = read(404, body)
    assert (refusal.kind, refusal.hint) == (None, PATH)


@pytest.mark.parametrize("body", ["", message("Service unavailable"), "<html>503</html>", "no healthy upstream"])
def test_a_bare_503_speaks_of_capacity_in_the_end_and_could_pass(body: Any) -> None:
    refusal = read(503, body)
    assert (refusal.kind, refusal.hint, refusal.could_pass) == (None, OVERLOAD, True)


# --- precedence ---------------------------------------------------------------------------------------------

PRECEDENCE: tuple[tuple[str, int, Any, Refused | None], ...] = (
    ("a code over a phrase", 400, message("Insufficient balance", code="rate_limit_exceeded"), RATE),
    ("a code over the status", 429, message("x", code="insufficient_quota"), CREDIT),
    ("a code over 401", 401, message("x", code="insufficient_quota"), CREDIT),
    ("the precise code over the generic type", 429, message("x", type="rate_limit_error", code="1113"), CREDIT),
    ("a phrase over 403", 403, message("doesn't have any credits"), CREDIT),
    ("a phrase over 429", 429, message("insufficient balance"), CREDIT),
    ("401 over phrases", 401, message("insufficient balance; location is not supported"), CREDENTIAL),
    ("402 over phrases", 402, message("Invalid API key"), CREDIT),
    ("401 over a refused field", 401, message("Unsupported parameter: max_tokens"), CREDENTIAL),
    ("403 JSON is the key", 403, message("Forbidden"), CREDENTIAL),
    ("403 words are the key", 403, "Forbidden", CREDENTIAL),
    ("403 page is the place", 403, "<html><title>Just a moment...</title></html>", PLACE),
    ("403 page with a credit phrase", 403, "<html>Insufficient balance</html>", CREDIT),
    ("401 page", 401, "<html>Unauthorized</html>", CREDENTIAL),
    ("402 page", 402, "<html>Payment Required</html>", CREDIT),
    ("429 page", 429, "<html>You are being rate limited. The owner has banned you temporarily.</html>", RATE),
    ("405 page", 405, "<html>Method Not Allowed</html>", PATH),
    ("404 page", 404, "<html>Not Found</html>", None),
    ("502 page", 502, "<html>Bad Gateway</html>", None),
    ("529 words", 529, "x", OVERLOAD),
    ("redirect", 307, "", PATH),
    ("redirect with a code", 302, message("x", code="invalid_api_key"), PATH),
    ("status in a 200", 200, message("x", code=401), CREDENTIAL),
    ("status in a 200 as text", 200, message("x", code="402"), CREDIT),
    ("404 in a 200", 200, message("x", code=404), None),
    ("a 429 wrapped in 500", 500, message("x", code=429), RATE),
    ("a 429 wrapped in 500 twice", 500, message('y: {"error":{"code":429}}', code=500), RATE),
    ("a 529 wrapped in 400", 400, message("x", status=529), OVERLOAD),
    ("a 403 wrapped in 500 settles nothing", 500, message("x", code=403), None),
    ("a 500 wrapped in 401", 401, message("x", code=500), CREDENTIAL),
    ("a 429 wrapped in 401", 401, message("x", code=429), CREDENTIAL),
    ("a 429 wrapped in 403", 403, message("x", code=429), CREDENTIAL),
    ("a 401 wrapped in 429", 429, message("x", code=401), RATE),
    ("413 without a code", 413, message("Request entity too large"), None),
    ("451", 451, "", None),
)


@pytest.mark.parametrize(
    ("status", "body", "kind"), [case[1:] for case in PRECEDENCE], ids=[case[0] for case in PRECEDENCE]
)
def test_precedence(status: int, body: Any, kind: Refused | None) -> None:
    assert read(status, body).kind is kind


@pytest.mark.parametrize(
    ("data", "kind", "could_pass"),
    [
        (message("x", code=429), RATE, False),
        (message("x", code="502", metadata={"raw": '{"error":{"code":401}}'}), CREDENTIAL, False),
        (message("x", code=400), None, False),
        (message("upstream 504", code=504), None, True),
        (message("boom"), None, True),
        ("upstream connect error", None, True),
        ("Insufficient balance", CREDIT, False),
        ('{"error":{"type":"overloaded_error"}}', OVERLOAD, False),
        ({"type": "response.failed", "response": {"error": {"code": "rate_limit_exceeded"}}}, RATE, False),
        ({"type": "error", "code": "insufficient_quota", "message": "x"}, CREDIT, False),
        ({"type": "error", "error": {"type": "overloaded_error"}}, OVERLOAD, False),
        ({"choices": [], "x_groq": {"error": "over capacity"}}, None, True),
        (None, None, True),
        (3, None, True),
        ({"type": "error", "error": {"type": "permission_error", "message": "no access"}}, Refused.CREDENTIAL, False),
        ({"error": {"status": "PERMISSION_DENIED", "message": "doesn't have any credits"}}, Refused.CREDIT, False),
    ],
)
def test_an_error_inside_a_stream(data: Any, kind: Refused | None, could_pass: bool) -> None:
    refusal = read_event(data)
    assert (refusal.kind, refusal.could_pass) == (kind, could_pass)


@pytest.mark.parametrize("status", [408, 425, 500, 502, 503, 504, 520, 599])
def test_what_could_pass(status: int) -> None:
    assert read(status).could_pass
    assert not read(status, message("x", code="invalid_api_key")).could_pass


@pytest.mark.parametrize("status", [400, 404, 409, 413, 418, 422])
def test_what_could_not_pass(status: int) -> None:
    assert not read(status).could_pass


def test_the_reason_is_the_finer_word_where_there_is_one_and_else_the_status() -> None:
    assert read(413, message("x", code="rate_limit_exceeded")).reason == "request_exceeds_rate_budget"
    assert read(429, message("Request too large for model x")).reason == "request_exceeds_rate_budget"
    assert read(404, message("x", code="DeploymentNotFound")).reason == "not_deployed"
    assert read(400, message("x", code="unsupported_api_for_model")).reason == "dialect_not_supported"
    assert read(429, message("x", code="1308")).reason == "plan_window_exhausted"
    assert read(503, message("无可用渠道")).reason == "no_route_for_model"
    assert read(308).reason == "redirect"
    assert read(403, "<html></html>").reason == "edge_page"
    assert read(500, message("x", code=429)).reason == "http_429"
    assert read(200, {"base_resp": {"status_code": 1004}}).reason is None


# --- fields refused by name ---------------------------------------------------------------------------------


def extra_forbidden(field: str) -> dict[str, Any]:
    return {"type": "extra_forbidden", "loc": ["body", field], "msg": "Extra inputs are not permitted", "input": 1}


FIELD_REFUSED: Mapping[str, Callable[[str], Any]] = {
    "OpenAI": lambda f: message(
        f"Unsupported parameter: '{f}' is not supported with this model. Use 'another' instead.",
        code="unsupported_parameter",
        param=f,
    ),
    "OpenAI, words only": lambda f: message(f"Unsupported parameter: '{f}' is not supported with this model."),
    "OpenAI, code only": lambda f: message("x", code="unknown_parameter", param=f),
    "Azure": lambda f: message(f"Unrecognized request argument supplied: {f}"),
    "FastAPI": lambda f: {"detail": [extra_forbidden(f)]},
    "Mistral": lambda f: {"object": "error", "message": {"detail": [extra_forbidden(f)]}, "code": 3001},
    "vLLM": lambda f: {
        "object": "error",
        "message": f"[{{'type': 'extra_forbidden', 'loc': ('body', '{f}'), 'msg': 'Extra inputs are not permitted'}}]",
        "code": 400,
    },
    "Anthropic": lambda f: {"type": "error", "error": {"message": f"{f}: Extra inputs are not permitted"}},
    "Fireworks": lambda f: message(f"Extra inputs are not permitted, field: '{f}', value: 1024"),
    "Bedrock": lambda f: {"message": f"Malformed input request: #: extraneous key [{f}] is not permitted"},
    "Groq": lambda f: message(f"property '{f}' is unsupported, did you mean 'another'?"),
    "Cerebras": lambda f: {"message": f"body.{f}: property 'body.{f}' is unsupported", "code": "wrong_api_format"},
    "LiteLLM": lambda f: message(f"litellm.UnsupportedParamsError: x does not support parameters: ['{f}'], for y"),
    "LiteLLM, older": lambda f: message(f"x does not support parameters: {{'{f}': 5}}, for model=y"),
    "Gemini": lambda f: message(f'Invalid JSON payload received. Unknown name "{f}": Cannot find field.'),
    "serde": lambda f: message(f"unknown field `{f}`, expected one of `a`, `b`"),
    "zod": lambda f: message(f"Unrecognized key(s) in object: '{f}'"),
    "Python": lambda f: message(f"create() got an unexpected keyword argument '{f}'"),
    "JSON Schema": lambda f: message(f"Additional properties are not allowed ('{f}' was unexpected)"),
    "xAI": lambda f: {"code": "x", "error": f"Model grok does not support parameter {f}."},
}


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens"])
@pytest.mark.parametrize("says", FIELD_REFUSED.values(), ids=FIELD_REFUSED)
def test_the_token_cap_field_refused_by_name(says: Callable[[str], Any], field: str) -> None:
    for status in (400, 422, 500):
        refusal = read(status, says(field), cap_field=field)
        assert (refusal.kind, refusal.reason) == (TOKEN_CAP, field)


@pytest.mark.parametrize("says", FIELD_REFUSED.values(), ids=FIELD_REFUSED)
def test_another_field_refused_by_name_settles_nothing(says: Callable[[str], Any]) -> None:
    for other in ("max_completion_tokens", "max_tokens_to_sample", "min_max_tokens", "tools"):
        assert read(400, says(other), cap_field="max_tokens").kind is None


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens is too large: 1024. This model supports at most 256 completion tokens.",
        "This model's maximum context length is 512 tokens. However, max_tokens is too large: 1024.",
        "max_tokens must be at least 1, got -344.",
        "max_tokens must be less than or equal to `8192`",
        "Invalid 'max_tokens': integer above maximum value. Expected a value <= 4096, but got 8192 instead.",
        "'max_tokens' or 'max_completion_tokens' is too large",
        "'max_tokens' is not allowed to exceed 4096",
        "max_tokens is not supported above 4096",
        "max_tokens is not supported for values greater than 4096",
        "max_tokens: unsupported value 1024",
        "Unsupported value: 'max_tokens' does not support 1024 with this model.",
        "does not support parameter max_tokens > 4096",
        "Unsupported parameter: max_tokens must be below 100",
        "Range of max_tokens should be [1, 512]",
        "tools are unsupported; lower max_tokens",
        "Setting max_tokens and max_completion_tokens at the same time is not supported",
    ],
)
def test_a_complaint_about_the_value_settles_nothing(text: str) -> None:
    assert read(400, message(text, code="invalid_value", param="max_tokens")).kind is None
    assert read(400, {"message": text, "code": 400}).kind is None


def test_a_refused_stream_option_is_noted_and_settles_nothing() -> None:
    for body in (
        message("Unrecognized request argument supplied: stream_options"),
        {"detail": [extra_forbidden("stream_options")]},
        message("x", code="unknown_parameter", param="stream_options"),
    ):
        refusal = read(400, body)
        assert (refusal.kind, refusal.names_stream_options) == (None, True)
    assert not read(400, message("Unrecognized request argument supplied: tools")).names_stream_options


# --- error or answer ----------------------------------------------------------------------------------------

CHOICE = {"index": 0, "delta": {"content": "x"}, "finish_reason": None}


@pytest.mark.parametrize(
    "value",
    [
        {"choices": [CHOICE]},
        {"choices": [CHOICE], "error": None},
        {"choices": [CHOICE], "error": {}},
        {"choices": [CHOICE], "error": ""},
        {"choices": [], "usage": {"total_tokens": 3}},
        {"choices": [], "usage": None, "message": "x", "type": "y"},
        {"choices": [], "prompt_filter_results": [{"content_filter_results": {"hate": {"filtered": False}}}]},
        {"choices": [CHOICE], "base_resp": {"status_code": 0, "status_msg": ""}},
        {"choices": [CHOICE], "base_resp": {"status_code": "0"}},
        {"choices": [CHOICE], "x_groq": {"id": "req_1"}},
        {"choices": [], "x_groq": {"id": "req_1", "usage": {"total_tokens": 3}}},
        {"code": 200, "msg": "success", "data": {"choices": [CHOICE]}},
        {"success": True, "result": {"response": "x"}, "errors": [], "messages": []},
        {"code": 0, "message": "ok"},
        {"code": "200", "msg": "success", "data": None},
        {"candidates": [{"content": {"parts": []}}]},
        {"id": "resp_1", "object": "response", "status": "completed", "error": None, "output": []},
        {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "x"}]},
        {"type": "message_start", "message": {"id": "m", "content": []}},
        {"type": "ping"},
        {"type": "response.created", "response": {"error": None}},
        {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {}},
        {"message": {"role": "assistant", "content": "x"}, "done": False},
        {},
        [],
        [1],
        [{"candidates": []}, {"error": {"code": 400}}],
        None,
        "error",
        1,
        True,
    ],
)
def test_an_answer_is_no_error(value: Any) -> None:
    assert is_error_object(value) is False


@pytest.mark.parametrize(
    "value",
    [
        {"error": {"message": "x"}},
        {"error": "x"},
        {"error": ["x"]},
        [{"error": {"code": 400}}],
        {"choices": [CHOICE], "error": {"code": 502, "message": "x"}},
        {"choices": [], "x_groq": {"error": "over capacity"}},
        {"type": "error", "error": {"type": "overloaded_error"}},
        {"type": "error", "code": "server_error", "message": "x"},
        {"object": "error", "message": "x", "type": "y", "code": 400},
        {"message": "x", "type": "invalid_request_error", "code": "y"},
        {"message": "Unauthorized", "request_id": "1"},
        {"message": "Unauthorized"},
        {"detail": "Unauthorized"},
        {"detail": [{"loc": ["body"], "msg": "x"}]},
        {"msg": "x"},
        {"code": 401, "msg": "token expired or incorrect", "success": False},
        {"code": 401, "msg": "x", "data": None},
        {"success": False, "data": {"x": 1}},
        {"success": False, "errors": [{"code": 7003}]},
        {"errors": [{"message": "x"}]},
        {"statusCode": 429, "message": "x"},
        {"base_resp": {"status_code": 1004}},
        {"base_resp": {"status_code": 1004}, "choices": None},
        {"fault": {"faultstring": "x"}},
        {"errorMessage": "x"},
        {"object": "response", "status": "failed", "error": {"code": "server_error"}, "output": []},
    ],
)
def test_an_error_is_an_error(value: Any) -> None:
    assert is_error_object(value) is True


def test_deep_lists_are_no_error_and_no_fault() -> None:
    assert is_error_object(json.loads("[" * 900 + "]" * 900)) is False


# --- hostile input ------------------------------------------------------------------------------------------

WORDS = st.sampled_from(
    [
        "error",
        "code",
        "message",
        "type",
        "detail",
        "errors",
        "base_resp",
        "status_code",
        "metadata",
        "raw",
        "headers",
        "success",
        "status",
        "loc",
        "param",
        "retryDelay",
        "x_groq",
        "response",
        "choices",
        "extra_forbidden",
    ]
)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=30), WORDS)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(WORDS, st.text(max_size=8)), inner, max_size=5),
        inner.map(lambda value: json.dumps(value)),
        inner.map(lambda value: "upstream: " + json.dumps(value)[:-1]),
    ),
    max_leaves=25,
)
HEADERS = st.dictionaries(
    st.sampled_from(["retry-after", "retry-after-ms", "date", "x-ratelimit-reset", "x-amzn-errortype", "content-type"]),
    st.text(max_size=40),
)


@given(st.integers(100, 999), HEADERS, st.one_of(st.binary(max_size=300), JSON.map(lambda v: json.dumps(v).encode())))
@settings(max_examples=400, deadline=None)
def test_no_body_raises(status: int, headers: dict[str, str], body: bytes) -> None:
    for field in ("max_tokens", "maxOutputTokens"):
        refusal = read(status, body, headers, cap_field=field)
        assert len(refusal.text) <= 4096
        assert refusal.retry_after_s is None or refusal.retry_after_s >= 0
        assert refusal.hint is refusal.kind or refusal.kind is None


@given(JSON)
@settings(max_examples=400, deadline=None)
def test_no_event_raises(data: Any) -> None:
    assert isinstance(is_error_object(data), bool)
    assert len(read_event(data).text) <= 4096


@given(JSON.map(lambda value: json.dumps({"error": value})), st.data())
@settings(max_examples=200, deadline=None)
def test_a_cut_anywhere_raises_nothing(body: str, data: Any) -> None:
    read(400, body.encode()[: data.draw(st.integers(0, len(body)))])


REPEATED = [
    *("model ", "models/", "model:\t", "model x", "no route matched", "unknown path", "404 ", "not found ", "route "),
    *("country ", "try again in 1", "wait 1h", "1h", "1.", "doesn't ", "does not support parameters: ", "unsupported "),
    *("max_tokens ", "extra_forbidden', 'loc': (", "!", " ", "\n", "\t\n", "<", "<script>", "<!--", "<a ", "&"),
    *("<![x[", '{"message":"', "{", "[", '{"a":', '{"a":"', '"', "\\", "\\u", '{"error":', "data:", "data:\n\n"),
    *(": \n", "}{", ",", "[1,", "1,", "'", "(", "[[{", "error code: ", "billing ", "api key ", "\u00e9", "\U0001f600"),
]


@pytest.mark.parametrize("piece", REPEATED, ids=repr)
def test_no_body_takes_long(piece: str) -> None:
    """Hunts for patterns that backtrack: 64 KiB of one piece, bare, in a page, in a message and in many messages."""
    text = (piece * ERROR_LIMIT)[:ERROR_LIMIT]
    many = {"errors": [{"message": text[:600] + "\u2014"}] * 100}
    bodies = (
        text,
        "[" + text,
        "[" * 20000 + text,
        "<html>" + text,
        "no route matched" + text,
        message(text[:30000]),
        many,
    )
    encoded = [body.encode() if isinstance(body, str) else json.dumps(body).encode() for body in bodies]
    for body in encoded:
        started = time.process_time()
        for status in (400, 404):
            read(status, body[:ERROR_LIMIT])
        assert time.process_time() - started < 2


def test_no_event_takes_long() -> None:
    started = time.process_time()
    for text in ('{"a":' * 1_600_000, "model {" * 1_100_000, "data: {}\n\n" * 800_000, "[{" * 4_000_000):
        read_event(text)
        read_event(message(text))
    read_event(list(chain.from_iterable([[{"message": "model " * 5000}]] * 300)))
    read_event([{"message": '{"a":"' * 9000}] * 190)
    assert time.process_time() - started < 10
