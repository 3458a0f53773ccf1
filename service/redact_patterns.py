"""What looks like a secret or an identifier although nobody told us: shapes, in the order in which they are taken.

Every pattern is linear in its text: it starts at a literal or behind a boundary, its open repetitions are possessive
or the last thing in it, and its look-aheads are bounded. Where a shape could be ordinary prose ("Bearer token missing",
"password: must be longer") the words are let through, because an operator needs them more than anything else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

SECRET = "[redacted]"
IDENTIFIER = "[id]"
EMAIL = "[email]"


@dataclass(frozen=True)
class Shape:
    """A pattern and what is shown instead. Every match contains one of the lower-case `signs`: a quick way out."""

    pattern: re.Pattern[str]
    shown: str
    signs: tuple[str, ...]


def replace(shapes: tuple[Shape, ...], text: str) -> str:
    """The text with every match of the shapes, in their order, replaced."""
    lower = text.lower()
    for shape in shapes:
        if any(sign in lower for sign in shape.signs):
            replaced = shape.pattern.sub(shape.shown, text)
            if replaced != text:
                text, lower = replaced, replaced.lower()
    return text


# A shape starts behind anything that isn't part of a word; an escape's last letters (`%3D`, `\n`) aren't part of one.
_START = r"(?:(?<![A-Za-z0-9])|(?<=%[0-9A-Fa-f]{2})|(?<=\\[nrt])|(?<=\\u00[0-9A-Fa-f]{2}))"
_WORD = r"(?:[A-Za-z]?[a-z]{0,16}|[A-Z]{1,17})"

# name = value, "name": "value", name: value; quotes may be escaped.
_QUOTES = r"[\"'`\\]*+"
_ASSIGN = rf"{_QUOTES}\s*+(?:=|:|%3[AaDd])\s*+{_QUOTES}"
_CERTAIN = rf"(?:{_QUOTES}\s*+(?:=|%3[Dd])\s*+{_QUOTES}|[\"'\\]++\s*+:\s*+{_QUOTES})"

_NO_VALUE = (
    r"(?!(?i:null|none|nil|undefined|unset|empty|missing|required|invalid|expired|revoked|rejected|denied|malformed"
    r"|incorrect|unknown|true|false|header|string|is|was|are|must|should|not|no|or|and)(?![\w-]))"
)
_NO_PROSE = rf"(?!{_WORD}[,.]?\s++[A-Za-z'`]++(?!\s*+:))"
_NO_WORD = (
    rf"(?!{_WORD}(?:/{_WORD}|-(?:based|only|style|type|like|authenticated|protected|encoded))?"
    r"[.:,;!?=]*+(?![\w~+/=-]))"
)
_NO_NUMBER = r"(?![0-9.,]++(?![\w-]))"
_VALUE = r"[^\s\"'`,;&<>\[\]{}()\\]"

_SCHEME = r"(?i:bearer|basic|token|api-?key|digest|negotiate|aws4-hmac-sha256)"
_HEADER = (
    r"(?i:api[-_]?key|(?:proxy-)?authorization|subscription-key"
    r"|aws[-_ ]?secret[-_ ]?(?:access[-_ ]?)?key|secret[-_ ]?access[-_ ]?key"
    r"|(?<![a-z0-9])(?:auth|access|refresh|session|security|client|secret|private|id)[-_]?(?:token|key|secret))"
)
_NAME = r"(?<![A-Za-z0-9])(?i:token|secret|password|passwd|passphrase|pwd|credentials?|signature|api key|secret key)"

SECRET_FIELD = re.compile(rf".{{0,64}}(?:{_HEADER}|{_NAME})", re.DOTALL)
"""A field whose text is a secret whatever it looks like, by its whole name."""

_SECRET_QUERY = (
    r"(?i:(?:[a-z0-9_.-]{0,30}[-_])?"
    r"(?:key|apikey|token|secret|sig|signature|password|passwd|pwd|credentials?|auth|jwt)|code)"
)

# Prefixes that name their issuer. A lone ordinary word behind one ("hf_transformers") is no key.
_ISSUERS = (
    r"AIza|gsk_|xai-|gh[pousr]_|github_pat_|hf_|pplx-|nvapi-|r8_|fw_|csk-|tgp_v1_|glpat-|xox[abeprs]-|ya29\.|GOCSPX-"
)
_ISSUER_SIGNS = (
    *("aiza", "gsk_", "xai-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "hf_", "pplx-", "nvapi-"),
    *("r8_", "fw_", "csk-", "tgp_v1_", "glpat-", "xox", "ya29.", "gocspx-"),
)
_NO_NAME = r"(?![A-Za-z]?[a-z]*+(?![A-Za-z0-9]))"

_FIELD_SIGNS = ("key", "auth", "token", "secret", "pass", "pwd", "credential", "signature")

SECRETS: tuple[Shape, ...] = (
    # PEM; a block that was cut goes on to the end.
    Shape(
        re.compile(r"-----BEGIN[^-]{1,40}-----.*?(?:-----END[^-]{1,40}-----|\Z)", re.DOTALL),
        SECRET,
        ("-----begin",),
    ),
    # scheme://user:password@host
    Shape(
        re.compile(r"(://|%3A%2F%2F)(?>(?:[^\s/?#@\"'<>\\]*+@)+)", re.IGNORECASE), rf"\1{SECRET}@", ("://", "%3a%2f%2f")
    ),
    # x-api-key: …, "authorization": "Bearer …", api_key=…
    Shape(
        re.compile(rf"({_HEADER}{_ASSIGN}(?>(?:{_SCHEME}[\s:]++)?)){_NO_VALUE}{_NO_PROSE}{_VALUE}{{4,}}"),
        rf"\1{SECRET}",
        _FIELD_SIGNS,
    ),
    Shape(
        re.compile(rf"({_NAME}{_CERTAIN}){_NO_VALUE}{_NO_PROSE}{_VALUE}{{4,}}"),
        rf"\1{SECRET}",
        _FIELD_SIGNS,
    ),
    Shape(
        re.compile(rf"({_NAME}\s*+:\s*+){_NO_WORD}{_NO_NUMBER}{_VALUE}{{6,}}"),
        rf"\1{SECRET}",
        _FIELD_SIGNS,
    ),
    # ?key=…, also in an escaped URL
    Shape(
        re.compile(rf"((?:[?&;]|%3[Ff]|%26|\\u0026){_SECRET_QUERY}(?:=|%3[Dd]))[^\s&#\"'`<>\[\]\\]+"),
        rf"\1{SECRET}",
        ("=", "%3d"),
    ),
    Shape(
        re.compile(rf"{_START}((?i:bearer)(?>(?:[\s:=\"'+\\]|%20|%3[Aa])+)){_NO_WORD}[A-Za-z0-9._~+/=%-]{{6,}}"),
        rf"\1{SECRET}",
        ("bearer",),
    ),
    # Base64 of user:password is never all lower case with hyphens, as the names of models and plans are.
    Shape(
        re.compile(
            rf"{_START}((?i:basic)(?>(?:[\s:=\"'+\\]|%20|%3[Aa])+)){_NO_WORD}{_NO_NUMBER}"
            r"(?![a-z0-9]++(?>(?:[-.][a-z0-9]++)+)(?![A-Za-z0-9+/_=-]))[A-Za-z0-9+/_%-]{8,}=*"
        ),
        rf"\1{SECRET}",
        ("basic",),
    ),
    Shape(
        re.compile(rf"{_START}(?i:sk)-(?:[\w-]{{16,}}|(?=[A-Za-z_-]{{0,15}}[0-9])[\w-]{{8,}})", re.ASCII),
        SECRET,
        ("sk-",),
    ),
    Shape(re.compile(rf"{_START}(?:{_ISSUERS}){_NO_NAME}[A-Za-z0-9_-]{{10,}}"), SECRET, _ISSUER_SIGNS),
    Shape(re.compile(rf"{_START}(?:AKIA|ASIA)[A-Z0-9]{{8,}}"), SECRET, ("akia", "asia")),
    Shape(re.compile(rf"{_START}eyJ[\w-]{{8,}}+(?>(?:\.[\w-]++)*)", re.ASCII), SECRET, ("eyj",)),
)

_ID_SEPARATOR = r"(?:[\"'`\\]*+\s*+[:=#]\s*+[\"'`\\]*+|\s++[\"'`(]?)"
_ID_VALUE = r"(?=[\w.:+/=-]{0,40}?[0-9])[A-Za-z0-9][\w+/=-]*+(?>(?:[.:][\w-]++)*)"

IDENTIFIERS: tuple[Shape, ...] = (
    # org-…, proj_…, req_…, acct_…: never an ordinary compound such as org-level
    Shape(
        re.compile(
            rf"{_START}(?:org|proj|req|acct)[-_](?=[\w-]{{0,64}}?(?:[0-9]|[a-z][A-Z])|[A-Za-z0-9]{{16}})[\w-]{{6,}}",
            re.ASCII,
        ),
        IDENTIFIER,
        ("org", "proj", "req", "acct"),
    ),
    Shape(re.compile(rf"{_START}user[-_](?=[A-Za-z]{{0,40}}[0-9])[A-Za-z0-9]{{12,}}"), IDENTIFIER, ("user-", "user_")),
    Shape(
        re.compile(
            r"((?i:(?:request|trace|span|correlation|session|invocation|operation|account|organi[sz]ation|project"
            r"|tenant|subscription|workspace|customer|user|team)[-_ ]?(?:id|number|uuid)s?|cf-ray|ray id|traceparent)"
            rf"{_ID_SEPARATOR}){_ID_VALUE}",
            re.ASCII,
        ),
        rf"\1{IDENTIFIER}",
        ("id", "number", "cf-ray", "traceparent"),
    ),
    Shape(
        re.compile(r"((?i:account|project|organi[sz]ation)\s++[\"'`(]?)[0-9]{6,}"),
        rf"\1{IDENTIFIER}",
        ("account", "project", "organi"),
    ),
    Shape(re.compile(r"(arn:[\w-]{1,20}:[\w-]{1,40}:[\w-]{0,40}:)[0-9]{12}"), rf"\1{IDENTIFIER}", ("arn:",)),
    Shape(re.compile(r"(?<=accounts/)[0-9a-fA-F]{16,}"), IDENTIFIER, ("accounts/",)),
    Shape(re.compile(r"(?<=projects/)[\w-]++(?=/)", re.ASCII), IDENTIFIER, ("projects/",)),
    Shape(
        re.compile(
            rf"(?=[0-9a-f]{{8}}){_START}[0-9a-f]{{8}}-?(?:[0-9a-f]{{4}}-?){{3}}[0-9a-f]{{12}}(?![0-9A-Za-z])",
            re.IGNORECASE,
        ),
        IDENTIFIER,
        tuple("0123456789"),
    ),
    Shape(
        re.compile(r"(?<![\w.+-])[\w.+-]++(?:@|%40|\\u0040|&#64;)(?:[\w-]++\.)+[^\W\d_]{2,}"),
        EMAIL,
        ("@", "%40", "u0040", "&#64;"),
    ),
)
