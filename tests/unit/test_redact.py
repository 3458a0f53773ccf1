"""What must never be seen, what must stay readable, and the order in which the one door works."""

from __future__ import annotations

import base64
import html
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus, unquote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from service import redact
from service.model import Credentials, Route, Secret, SecretRef
from service.redact import LIMIT, REFUSED, Redactor

KEY = "sk-test-TESTtest0000TESTtest4711"
NOTHING_KNOWN = Redactor([])


def knows(*secrets: str) -> Redactor:
    return Redactor(Secret(secret) for secret in secrets)


def lower_hex(escaped: str) -> str:
    return re.sub(r"%[0-9A-F]{2}", lambda found: found[0].lower(), escaped)


def every_byte(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def urlsafe(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


ENCODINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "url": lambda s: quote(s, safe=""),
    "url, lower hex": lambda s: lower_hex(quote(s, safe="")),
    "url, plus for space": quote_plus,
    "url, twice": lambda s: quote(quote(s, safe=""), safe=""),
    "url, every byte": every_byte,
    "url, path": quote,
    "base64": b64,
    "base64, bare": lambda s: b64(s).rstrip("="),
    "base64, url-safe": urlsafe,
    "base64, url-safe, bare": lambda s: urlsafe(s).rstrip("="),
    "base64 behind one byte": lambda s: b64("u" + s),
    "base64 behind two bytes": lambda s: b64("u:" + s),
    "base64 of user:password": lambda s: b64("probe:" + s),
    "base64 between others": lambda s: urlsafe("user:" + s + ":more"),
    "base64 in a URL": lambda s: quote(b64("user:" + s), safe=""),
    "base64 in JSON": lambda s: json.dumps(b64("user:" + s)).replace("/", "\\/"),
    "JSON": lambda s: json.dumps(s)[1:-1],
    "JSON, twice": lambda s: json.dumps(json.dumps(s))[1:-1],
    "JSON, slashes": lambda s: json.dumps(s)[1:-1].replace("/", "\\/"),
    "JSON, all escaped": lambda s: re.sub("(.{4})", r"\\u\1", s.encode("utf-16-be").hex()),
    "HTML": html.escape,
    "HTML, twice": lambda s: html.escape(html.escape(s)),
    "HTML, decimal": lambda s: "".join(f"&#{ord(c)};" for c in s),
    "HTML, hex": lambda s: "".join(f"&#x{ord(c):X};" for c in s),
    "hex": lambda s: s.encode().hex(),
    "hex, upper": lambda s: s.encode().hex().upper(),
    "upper case": str.upper,
    "HTML of JSON": lambda s: html.escape(json.dumps(s)),
    "URL of JSON": lambda s: quote(json.dumps(s), safe=""),
    "wrapped": lambda s: "\n".join(s[at : at + 5] for at in range(0, len(s), 5)),
    "wrapped, in JSON": lambda s: json.dumps("\n".join(s[at : at + 7] for at in range(0, len(s), 7))),
    "spaced": " ".join,
    "zero width": "\u200b".join,
    "soft hyphens and tags": lambda s: "\u00ad\U000e0041".join(s),
    "controls": "\x00\x1b".join,
    "base64, wrapped": lambda s: base64.encodebytes((s * 3).encode()).decode(),
}

PLANTED = [
    KEY,
    "a1b2c3d4",
    "p@ss\"w0rd'+/=%41&amp;<x>",
    "Zm9vYmFy+/Zm9vYmFy/+==",
    "with space and \\ backslash 1",
    "%25%2525abc%def",
    "schlüssel-Größe-日本語-9",
    "emoji-😀-token-123",
    "nrt-nnn\\n\\r\\t-000",
    "e30f1c5d9a7b4826e30f1c5d9a7b4826",
]


def decoded_forms(text: str) -> set[str]:
    """All that a curious reader gets out of a text with the standard library."""
    forms = {text}
    for _ in range(3):
        for form in list(forms):
            forms |= {html.unescape(form), unquote(form), unquote(form.replace("+", " "))}
            forms.add(re.sub(r"\\+[nrt]", "", form))
            forms.add(re.sub(r"\\u([0-9a-fA-F]{4})", lambda f: chr(int(f[1], 16)), form).replace("\\", ""))
    for form in list(forms):
        for run in re.findall(r"[A-Za-z0-9+/_-]{8,}", form):
            standard = run.replace("-", "+").replace("_", "/")
            forms |= {
                base64.b64decode(standard[cut:] + "A" * (-len(standard[cut:]) % 4)).decode("latin-1")
                for cut in range(4)
            }
        for run in re.findall(r"(?:[0-9a-fA-F]{2}){8,}", form):
            forms.add(bytes.fromhex(run).decode("latin-1"))
    return forms


def squeeze(text: str) -> str:
    return re.sub(r"[\s\\]", "", text).lower()


def leaks(secret: str, shown: str) -> bool:
    wanted = {squeeze(secret), squeeze(secret.encode().decode("latin-1"))}
    return any(want in squeeze(form) for form in decoded_forms(shown) for want in wanted)


# --- own secrets ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("secret", PLANTED)
def test_an_own_secret_is_taken_in_every_encoding(secret: str, encoding: str) -> None:
    redactor = knows(secret)
    shown = redactor.text(f"The value <{ENCODINGS[encoding](secret)}> was rejected")
    assert "[redacted]" in shown
    assert redactor.refused == 0
    assert shown.startswith("The value ")
    assert shown.endswith(" was rejected")
    assert not leaks(secret, shown)


def test_the_reader_of_these_tests_sees_an_unredacted_secret() -> None:
    blind = {"zero width", "soft hyphens and tags", "controls", "URL of JSON"}
    unseen = {name for name, encode in ENCODINGS.items() if not leaks(KEY, f"x {encode(KEY)} y")}
    assert unseen <= blind


@pytest.mark.parametrize(
    "encoding", ["plain", "url, every byte", "base64 of user:password", "JSON, all escaped", "hex"]
)
def test_no_part_of_a_secret_survives_at_the_bound(encoding: str) -> None:
    redactor, echo = knows(KEY), ENCODINGS[encoding](KEY)
    for offset in range(LIMIT - len(echo) - 3, LIMIT + 3):
        shown = redactor.text("x " * (offset // 2) + "." * (offset % 2) + " " + echo + " tail" * 20)
        assert len(shown) <= LIMIT
        assert echo[:6] not in shown
        assert redactor.refused == 0


@pytest.mark.parametrize("end", ["", "...", "…", " ...", "***", '"}', " and more"])
@pytest.mark.parametrize("length", range(10, len(KEY)))
def test_a_beginning_of_a_secret_is_the_secret(length: int, end: str) -> None:
    assert knows(KEY).text(f"key {KEY[:length]}{end}") == f"key [redacted]{end}"


@pytest.mark.parametrize("code", [b64, urlsafe, lambda s: s.encode().hex()])
def test_an_encoded_beginning_of_a_secret_is_the_secret(code: Callable[[str], str]) -> None:
    assert knows(KEY).text(f"key {code(KEY)[:24]}...") == "key [redacted]..."


def test_half_of_a_short_secret_is_the_secret() -> None:
    assert knows("Ab3dEf7hIj9lMn1p").text("key Ab3dEf7h") == "key [redacted]"


def test_a_masked_echo_is_no_leak() -> None:
    said = "Incorrect API key provided: sk-test-****0000. You can find your API key at https://platform.example."
    assert knows(KEY).text(said) == said


def test_a_word_that_begins_a_secret_goes_only_where_the_text_was_cut() -> None:
    redactor = knows("deployment-7f3a99e1")
    assert redactor.text("The deployment does not exist.") == "The deployment does not exist."
    assert redactor.text("user deployment...") == "user [redacted]..."
    assert redactor.text("user deployment-7f3a99e1!") == "user [redacted]!"


def test_what_follows_a_beginning_goes_with_it() -> None:
    assert knows(KEY).text(f"key {KEY[:14]}zzzz9999 is bad") == "key [redacted] is bad"


def test_several_secrets_that_overlap_are_one_hole() -> None:
    assert knows("abcd1234efgh", "1234efgh5678").text("<abcd1234efgh5678>") == "<[redacted]>"


@pytest.mark.parametrize("placeholder", ["none", "ollama", "EMPTY", "x" * 7])
def test_short_secrets_are_ignored_and_counted(placeholder: str) -> None:
    redactor = knows(placeholder, "", KEY)
    said = f"The word {placeholder} stays"
    assert redactor.text(said) == said
    assert redactor.ignored == 1


def test_a_secret_that_is_our_own_word_is_ignored() -> None:
    redactor = knows("redacted")
    assert redactor.text(redactor.text("Bearer abcd1234")) == "Bearer [redacted]"
    assert redactor.ignored == 1


def test_a_secret_that_begins_like_our_own_word_is_found() -> None:
    redactor = knows("redacted99887766")
    assert redactor.text("is redacted99887766 ok") == "is [redacted] ok"
    assert (redactor.ignored, redactor.refused) == (0, 0)


# --- the check of the result ------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", sorted(set(ENCODINGS) - {"URL of JSON"}))
def test_a_secret_that_survives_is_refused_and_counted(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "tok_TEST/test+0000 TEST"
    monkeypatch.setattr(Redactor, "_without_own", lambda self, text: text)
    monkeypatch.setattr(redact, "SECRETS", ())
    monkeypatch.setattr(redact, "IDENTIFIERS", ())
    redactor = knows(secret)
    assert redactor.text(f"rejected: {ENCODINGS[encoding](secret)}!") == REFUSED
    assert redactor.refused == 1
    assert redactor.text("rejected") == "rejected"
    assert redactor.refused == 1


def test_an_escape_of_a_hidden_character_inside_a_key_is_refused() -> None:
    redactor = knows(KEY)
    assert redactor.text(f"key {KEY[:7]}\\u200b{KEY[7:9]}\\u200b{KEY[9:16]}") == REFUSED
    assert redactor.refused == 1


def test_the_fixed_sentence_stays_itself() -> None:
    redactor = knows(KEY)
    assert redactor.text(REFUSED) == REFUSED
    assert redactor.refused == 0


# --- shapes -----------------------------------------------------------------------------------------------

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ0ZXN0In0.c2lnbmF0dXJl-_x"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEtest+/\nTEST==\n-----END RSA PRIVATE KEY-----"

SHAPES = [
    ("key sk-abcdEFGH1234 bad", "key [redacted] bad"),
    ("key sk-abcdefghijklmnopqrst bad", "key [redacted] bad"),
    ("sk-ant-api03-TEST_test-0000", "[redacted]"),
    ("sk-or-v1-0123456789abcdef, x", "[redacted], x"),
    ("sk-proj-TEST_test-TEST0000.", "[redacted]."),
    ("k=%20sk-TESTtest0000", "k=%20[redacted]"),
    ("AIzaTESTtestTEST0000test", "[redacted]"),
    ("gsk_TESTtest0000TEST", "[redacted]"),
    ("xai-TESTtest0000TEST", "[redacted]"),
    ("ghp_TESTtest0000TEST", "[redacted]"),
    ("github_pat_TEST0000_testTEST", "[redacted]"),
    ("hf_TESTtestTESTtest", "[redacted]"),
    ("AKIATEST0000TEST0000", "[redacted]"),
    ("ASIATEST0000TEST0000", "[redacted]"),
    ("aws_secret_access_key = TEST/test+TEST0000", "aws_secret_access_key = [redacted]"),
    ('"SecretAccessKey": "TEST/test+TEST0000"', '"SecretAccessKey": "[redacted]"'),
    ("aws_session_token=TESTtest0000", "aws_session_token=[redacted]"),
    (f"token {JWT} expired", "token [redacted] expired"),
    (f"cut {JWT[:22]}", "cut [redacted]"),
    (PEM, "[redacted]"),
    ("a " + PEM[:50], "a [redacted]"),
    ("x " + json.dumps(PEM), 'x "[redacted]"'),
    ("Bearer tok_test_0000", "Bearer [redacted]"),
    ("BEARER: tok_test_0000 rejected", "BEARER: [redacted] rejected"),
    ("bearer:tok_test_0000", "bearer:[redacted]"),
    ("Bearer%20tok_test_0000", "Bearer%20[redacted]"),
    ("Basic dGVzdDp0ZXN0LXBhc3N3b3Jk rejected", "Basic [redacted] rejected"),
    ("basic: dGVzdDp0ZXN0 x", "basic: [redacted] x"),
    ("BASIC dGVzdDp0ZXN0LXBhc3M=.", "BASIC [redacted]."),
    ("x-api-key: hunterpassword, host: api.example", "x-api-key: [redacted], host: api.example"),
    ("X-API-KEY=test0000", "X-API-KEY=[redacted]"),
    ("api-key: 0123abcd", "api-key: [redacted]"),
    ("x-goog-api-key: 0123abcd", "x-goog-api-key: [redacted]"),
    ("Ocp-Apim-Subscription-Key: 0123abcd", "Ocp-Apim-Subscription-Key: [redacted]"),
    ('{"x-api-key":"0123abcd","a":1}', '{"x-api-key":"[redacted]","a":1}'),
    ('{\\"api_key\\": \\"0123abcd\\"}', '{\\"api_key\\": \\"[redacted]\\"}'),
    ("authorization: 0123abcd", "authorization: [redacted]"),
    ("{'Authorization': 'Bearer abcdefgh'}", "{'Authorization': 'Bearer [redacted]'}"),
    ("Authorization: Token 0123abcd", "Authorization: Token [redacted]"),
    ("password=hunter", "password=[redacted]"),
    ("password: Hunter2-x9", "password: [redacted]"),
    ('"client_secret": "abcdefgh"', '"client_secret": "[redacted]"'),
    ("postgres://probe:pa55@db.example/x", "postgres://[redacted]@db.example/x"),
    ("https://user@api.example/v1", "https://[redacted]@api.example/v1"),
    ("https://u:p@ss@api.example", "https://[redacted]@api.example"),
    ("GET /v1?key=abc123 failed", "GET /v1?key=[redacted] failed"),
    ("/v1?a=1&api_key=abc&b=2", "/v1?a=1&api_key=[redacted]&b=2"),
    ("/v1?a=1&amp;token=abc&amp;b=2", "/v1?a=1&amp;token=[redacted]&amp;b=2"),
    ("/v1%3Fkey%3Dabc123", "/v1%3Fkey%3D[redacted]"),
    ("?X-Amz-Signature=abc123", "?X-Amz-Signature=[redacted]"),
    ("?code=abc123", "?code=[redacted]"),
    ("Rate policy for org-testTESTtest0000", "Rate policy for [id]"),
    ("organization `org_01jabcdef2` service", "organization `[id]` service"),
    ("proj_TESTtest0000", "[id]"),
    ("request req_vrtx_011Test0000: denied", "request [id]: denied"),
    ("acct_TESTtest0000", "[id]"),
    ("(request id: 2025TEST0000)", "(request id: [id])"),
    ('"request_id":"a1b2c3"', '"request_id":"[id]"'),
    ("x-request-id: a1b2c3", "x-request-id: [id]"),
    ("cf-ray: 8a1b2c3d4e5f-FRA", "cf-ray: [id]"),
    ("trace-id=0af7651916cd", "trace-id=[id]"),
    ("account 123456789012", "account [id]"),
    ("/accounts/0123456789abcdef0123456789abcdef/ai", "/accounts/[id]/ai"),
    ("projects/my-project-1/locations/x", "projects/[id]/locations/x"),
    ("arn:aws:bedrock:us-east-1:123456789012:model", "arn:aws:bedrock:us-east-1:[id]:model"),
    ("id 6ba7b810-9dad-11d1-80b4-00c04fd430c8.", "id [id]."),
    ("user probe.owner+x@mail.example)", "user [email])"),
    ("probe%40mail.example", "[email]"),
]


@pytest.mark.parametrize(("said", "shown"), SHAPES)
def test_shapes(said: str, shown: str) -> None:
    assert NOTHING_KNOWN.text(said) == shown
    assert NOTHING_KNOWN.text(shown) == shown


@pytest.mark.parametrize(
    "hidden", ["\x00", "\x7f", "\x9b", "\u200b", "\u2060", "\u202e", "\u2066", "\ufeff", "\u00ad", "\ufe0f"]
)
def test_a_hidden_character_does_not_hide_a_shape(hidden: str) -> None:
    assert NOTHING_KNOWN.text(f"gsk_{hidden}TEST{hidden}test0000") == "[redacted]"


def test_invisible_characters_and_surrogates_go_and_white_space_stays() -> None:
    assert NOTHING_KNOWN.text("a\x00\x08\r\x1b\x7f\x85b\ud800\udfffc\u200e\u202ad\U000e0020e\n\tf") == "abcde\n\tf"


SURVIVORS = [
    "gpt-4o-mini",
    "claude-3-5-sonnet-20241022",
    "claude-3-5-sonnet-v2@20241022",
    "meta-llama/Llama-3.1-8B-Instruct",
    "deepseek-ai/DeepSeek-V3",
    "qwen2.5-coder:7b",
    "accounts/fireworks/models/llama-v3p1-8b-instruct",
    "models/gemini-2.5-flash-preview-05-20",
    "xai-org/grok-1",
    "hf_transformers",
    "anthropic.claude-3-haiku-20240307-v1:0",
    "task-force disk-full risk-free ask-me-anything-at-all-1",
    "Bearer token missing",
    "Bearer token-based authentication is required",
    'WWW-Authenticate: Bearer realm="api", error="invalid_token"',
    "Basic plan",
    "Your Basic tier allows 20000000 tokens on basic gpt-4o-mini",
    "x-api-key header is required",
    "Missing header x-api-key: please provide one",
    "x-api-key: missing",
    "Authorization: Bearer token missing",
    "invalid_api_key: Incorrect API key provided",
    '{"code":"invalid_api_key","message":"no"}',
    "password: must be longer",
    "Unexpected token: 151645",
    "max_tokens=1024 and max_tokens: 1024",
    "HTTP 429, try again in 9m38.016s, limit 100000, used 97050",
    "https://api.example/v1/chat/completions?api-version=2024-10-21",
    "https://medium.example/@author",
    "org-level policy, org_settings, organization `org_x`",
    "request id missing",
    "user-provided content",
    "prompt is too long: 1284668 tokens > 1000000 maximum",
    "Rate limit reached for model `llama-3.3-70b-versatile`. Please try again in 9m38.016s.",
    "Incorrect API key provided: na***ys. You can obtain an API key from https://console.x.ai.",
    "Tool call id was call_49c89af0 but must be a-z, A-Z, 0-9, with a length of 9",
    "messages.1.content.0: Invalid `signature` in `thinking` block",
    'Error rendering prompt with jinja template: "Only user and assistant roles are supported!".',
    "<400> InternalError.Algo.InvalidParameter: message[15].role",
    "当前分组 default 下无可用渠道",
    "'tool_choice' is only allowed when 'tools' are specified",
    "This request requires more credits. You requested up to 1024 tokens, but can only afford 12.",
    "litellm.UnsupportedParamsError: together_ai does not support parameters: ['tools'], for model=Qwen/Qwen3.7-Max",
    "50% of 20 & more \\ less",
]


@pytest.mark.parametrize("said", SURVIVORS)
def test_ordinary_words_survive(said: str) -> None:
    assert knows(KEY).text(said) == said


# --- the corpus -------------------------------------------------------------------------------------------

CORPUS = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "corpus" / "dev.jsonl").read_text("utf-8").split("\n")
    if line
]
MESSAGES = {"message", "msg", "errorMessage", "detail", "raw", "error", "status_msg", "param"}


def messages(found: Any) -> set[str]:
    """Every error message that a scenario's replies hold, also inside events and inside JSON in a string."""
    if isinstance(found, dict):
        own = {text for name, text in found.items() if name in MESSAGES and isinstance(text, str)}
        return own.union(*map(messages, found.values()))
    if isinstance(found, list):
        return set().union(*map(messages, found))
    if isinstance(found, str):
        lines = [line.removeprefix("data:").strip() for line in found.splitlines()]
        return set().union(*(messages(json.loads(line)) for line in lines if is_json(line)))
    return set()


def is_json(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict | list)
    except ValueError:
        return False


def test_the_messages_of_the_corpus_survive() -> None:
    said = set().union(*(messages(case["replies"]) for case in CORPUS if case["kind"] != "secret_echo"))
    assert len(said) > 100
    redactor = knows(KEY)
    for text in said:
        kept = re.sub(r"(request id: )\w+", r"\1[id]", text).replace("\r", "")
        assert redactor.text(text, 10_000) == kept


@pytest.mark.parametrize(
    "case", [case for case in CORPUS if case["kind"] == "secret_echo"], ids=lambda case: case["id"]
)
def test_what_the_corpus_calls_secret_goes_and_the_words_around_it_stay(case: dict[str, Any]) -> None:
    def fill(text: str) -> str:
        for name, value in {"KEY": KEY, "KEY:b64": b64(KEY), "KEY:url": quote(KEY, safe=""), "MODEL": "m-1"}.items():
            text = text.replace(f"{{{{{name}}}}}", value)
        return text

    redactor = knows(KEY)
    shown = [redactor.text(fill(text)) for text in messages(case["replies"])]
    assert shown
    for text in shown:
        assert not [secret for secret in case["expect"]["absent"] if fill(secret) in text]
        assert all(fill(words) in text for words in case["expect"].get("present", []))


# --- order and bounds -------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, 1, 20, 64, LIMIT])
def test_the_ellipsis_counts_into_the_bound(limit: int) -> None:
    shown = NOTHING_KNOWN.text("word " * 200, limit)
    assert len(shown) == limit
    assert shown == "" or shown.endswith("…")


def test_a_text_of_the_very_length_is_not_cut() -> None:
    assert NOTHING_KNOWN.text("x" * LIMIT) == "x" * LIMIT


@pytest.mark.parametrize("offset", range(16 * 1024 - 40, 16 * 1024))
def test_a_key_across_the_end_of_what_is_read_does_not_come_into_view(offset: int) -> None:
    noise = "?key=" + "z" * (offset - 6) + " "
    shown = knows(KEY).text(noise + KEY + " tail " * 4000)
    assert "sk-" not in shown
    assert shown.startswith("?key=[redacted]")


def test_a_long_text_without_any_space_is_not_shown_in_part() -> None:
    assert NOTHING_KNOWN.text("k" * 200_000) == "…"


# --- nested values ----------------------------------------------------------------------------------------


def test_values_are_redacted_through_and_through() -> None:
    shown = knows(KEY).value(
        {
            f"key {KEY}": [KEY, {"id": "chatcmpl-1", "n": 3, "f": 0.5, "b": True, "none": None}],
            "authorization": "word",
            "max_tokens": 1024,
            "code": "invalid_api_key",
            "a\x00b": ("x\u200by", b"raw"),
        }
    )
    assert shown == {
        "key [redacted]": ["[redacted]", {"id": "chatcmpl-1", "n": 3, "f": 0.5, "b": True, "none": None}],
        "authorization": "[redacted]",
        "max_tokens": 1024,
        "code": "invalid_api_key",
        "ab": ["xy", "b'raw'"],
    }


def test_a_secret_of_digits_is_taken_as_a_number_too() -> None:
    assert knows("1234567890123456").value([1234567890123456, 42, 10**5000]) == ["[redacted]", 42, "…"]


def test_depth_and_size_are_bounded() -> None:
    deep: Any = "end"
    for _ in range(10_000):
        deep = [deep]
    assert "end" not in json.dumps(NOTHING_KNOWN.value(deep))
    wide = NOTHING_KNOWN.value([{"a": 1}] * 50_000)
    assert len(wide) < 3000
    assert wide[-1] == "…"


# --- routes -----------------------------------------------------------------------------------------------


def test_everything_secret_of_a_route_is_known() -> None:
    route = Route(
        id="r",
        name="r",
        provider="p",
        dialect="openai-chat",
        base_url="https://us%40er-name:p%2Fass-word1@api.example/v1?api-version=2024-10-21&sig=a%2Bb%2Fc12345&code=qwerty123",
        model="m",
        key=SecretRef(env="K"),
        proxy="http://proxyuser1:proxy-pass-1@proxy.example:3128",
    )
    headers = {"x-extra": Secret("extra-secret-1"), "x-auth": Secret("Basic " + b64("someone:pass-word-42"))}
    redactor = Redactor.for_route(route, Credentials(key=Secret(KEY + "\n"), headers=headers))
    for secret in (
        *(
            KEY,
            "us@er-name",
            "us%40er-name",
            "p/ass-word1",
            "p%2Fass-word1",
            "a+b/c12345",
            "a%2Bb%2Fc12345",
            "qwerty123",
        ),
        *("proxyuser1", "proxy-pass-1", "extra-secret-1", b64("someone:pass-word-42"), "pass-word-42"),
    ):
        assert redactor.text(f"<{secret}>") == "<[redacted]>"
    assert redactor.text("2024-10-21 at api.example") == "2024-10-21 at api.example"
    assert (redactor.ignored, redactor.refused) == (0, 0)


def test_a_route_without_secrets_and_one_with_placeholders() -> None:
    route = Route(id="r", name="r", provider="p", dialect="d", base_url="http://me:pw@localhost/v1?key=x", model="m")
    assert Redactor.for_route(route, Credentials()).ignored == 3
    headers = {"authorization": Secret("Basic abcdefghi")}  # no base64
    assert Redactor.for_route(route, Credentials(headers=headers)).text("abcdefghi") == "[redacted]"


def test_a_redactor_does_not_print_its_secrets() -> None:
    redactor = knows(KEY)
    assert KEY not in repr(redactor)
    assert KEY not in repr(vars(redactor))


# --- properties -------------------------------------------------------------------------------------------

ALPHABETS = st.sampled_from(
    ["abcdef0123456789", "ABCdefGHIjkl0123456789_-", "aZ9+/=%", "ab\"'<>&;#\\%25 n", "ab:@ ./?~!$xu0", "äß日😀z1"]
)
SECRETS = ALPHABETS.flatmap(lambda alphabet: st.text(alphabet, min_size=10, max_size=60)).map(str.strip)
NOISE = st.one_of(
    st.text(max_size=350),
    st.text("ab %\\&;=+/2", max_size=350),
    st.lists(st.sampled_from(["word ", "Bearer ", "key=", "?key=", "\\n", "%2", "&#", "…", '"', "://", "@a.bc "])).map(
        "".join
    ),
)


@settings(max_examples=500, deadline=None)
@given(SECRETS, NOISE, NOISE, st.sampled_from(sorted(ENCODINGS)))
@example('"nabcdefgh', "\\", "", "JSON")
@example("1abc+defgh", "%4", "", "url")
def test_a_secret_is_never_in_the_output(secret: str, before: str, after: str, encoding: str) -> None:
    redactor = knows(secret)
    if redactor.ignored or len(squeeze(secret)) < 8 or squeeze(secret) in squeeze(f"[redacted][id][email] {REFUSED}"):
        return
    shown = redactor.text(before + ENCODINGS[encoding](secret) + after)
    assert len(shown) <= LIMIT
    assert not leaks(secret, shown)
    assert redactor.text(shown) == shown


@settings(max_examples=300, deadline=None)
@given(st.text(st.characters(), max_size=600), st.integers(0, 400))
def test_any_text_is_taken_and_redacting_twice_changes_nothing(text: str, limit: int) -> None:
    redactor = knows(KEY)
    once = redactor.text(text, limit)
    assert redactor.text(once, limit) == once
    once.encode()


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from([said for said, _ in SHAPES] + SURVIVORS + [KEY, " ", "\n", '"', ": "])),
    st.integers(0, 400),
)
def test_redacting_a_mixture_of_shapes_twice_changes_nothing(parts: list[str], limit: int) -> None:
    redactor = knows(KEY, "deployment-7f3a99e1")
    once = redactor.text("".join(parts), limit)
    assert redactor.text(once, limit) == once


# --- work -------------------------------------------------------------------------------------------------

HOSTILE = [
    *(
        "a",
        "-sk",
        "\\",
        "%25",
        "&amp;",
        "a@",
        "a.",
        "\\n",
        " ",
        "_",
        "0",
        "://",
        "://a",
        "bearer ",
        "bearer=",
        "basic a-b.",
    ),
    *("authorization:", "api-key:\t", "-----BEGIN A-----", "-----BEGIN ", "-org-org", "-eyJ", "?key&key;", "0123abcd-"),
    *(
        "request id ",
        "projects/a-",
        "token: ",
        "c2stdGVzdC1U",
        "s k - t e s t - T ",
        "\\s\\k\\-\\t\\e\\s\\t\\-",
        "arn:a-a",
    ),
    *(
        "%73%6b%2d%74%65%73%74%2d",
        "&#115;&#107;",
        "sk-test-T",
        "secret ",
        "api-key" + " " * 500,
        "nrt\\n\\r\\t",
        "%",
        "&",
    ),
]


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_text_takes_time_in_proportion_to_its_length(piece: str) -> None:
    redactor = knows(KEY, "a" * 20 + "b", "%" * 12 + "&&&nnn1", '\\\\\\\\"\\n\\n\\nnnnnx1', "&amp;&amp;&amp;x1")
    hostile = (piece * (64 * 1024 // len(piece)))[: 64 * 1024 - 1] + "!"
    started = time.process_time()
    redactor.text("a@" + hostile)
    assert time.process_time() - started < 2  # quadratic work on 16 KiB takes much longer than this
