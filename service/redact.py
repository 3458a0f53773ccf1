"""The one door: no text of a provider reaches a store, a log, a metric, a page or an answer without passing here.

In this order, because each step would blind an earlier one: invisible characters go; the route's own secrets go, in
every encoding we know of; then what looks like a key; then identifiers; then the text is bounded; and at last the
result is searched once more, by other means, and replaced by a fixed sentence when a secret survived.

Own secrets are found character by character: each may stand as itself or in any of its escaped forms, with white
space and backslashes (line wrapping, JSON inside JSON) between them. So a half-escaped echo is found as well, the work
is linear in the text, and no pattern that contains a secret is ever compiled into a cache. A text without any escape,
which is nearly every text, is decided by a plain search.
"""

from __future__ import annotations

import binascii
import html
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from html.entities import html5
from typing import Any, NewType
from urllib.parse import unquote, unquote_plus

from service.config.urls import secrets_in_url
from service.model import Credentials, Route, Secret
from service.redact_patterns import EMAIL, IDENTIFIER, IDENTIFIERS, SECRET, SECRET_FIELD, SECRETS, replace

Redacted = NewType("Redacted", str)
"""A text that has passed redaction."""

LIMIT = 300
REFUSED = Redacted("Withheld: this text would have shown a secret.")

_SHORTEST = 8  # shorter secrets are placeholders; searching for them would erase ordinary words
_READ = 16 * 1024
_PASSES = 6
_DEPTH, _NODES = 12, 2000
_ELLIPSIS = "…"

# Controls but newline and tab, all format characters (bidi, zero width, soft hyphen, tags), variation selectors,
# fillers that print nothing, lone surrogates.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_IGNORED = re.compile(r"[\s\\]+")
_ESCAPE = re.compile(r"[%\\&]")
_OWN_WORDS = _IGNORED.sub("", f"{SECRET} {IDENTIFIER} {EMAIL} {REFUSED}").lower()


def _clean(text: str) -> str:
    return _INVISIBLE.sub("", text)


# --- a secret's characters in a text ----------------------------------------------------------------------

# White space and backslashes, themselves or escaped. Where the secret has white space, a form shows `+` for it. The
# letter of an escaped line end could be the secret's own as well, so that both readings are followed.
_BACKSLASH = r"(?:(?<=\\)|(?<=%5c))"
# Atomic groups, here and in the shapes, where a group repeats: CPython before 3.11.5 gets possessive groups wrong.
_GAP = (
    r"(?>(?:[\s\\]|%(?:25){0,3}(?:0[9ad]|20|5c)"
    rf"|{_BACKSLASH}(?:u00|x)(?:0[9ad]|20|5c)"
    r"|&(?:amp;){0,3}(?:#0{0,6}(?:9|10|13|32|92)|#x0{0,6}(?:[9ad]|20|5c)|nbsp|newline|tab|bsol);)*)"
)
_GAPS = tuple(re.compile(gap, re.IGNORECASE) for gap in (_GAP, rf"{_GAP}{_BACKSLASH}(?:r\\+n|[nrt]){_GAP}"))
_SPACED = (*_GAPS, re.compile(rf"{_GAP}(?>(?:\+{_GAP})+)", re.IGNORECASE))
_ESCAPE_BEGINS = frozenset("%&uUxX")
_NESTED = {"%": ("%25", "%2525"), "&": ("&amp;", "&amp;amp;")}
_MASKED_OR_CUT = re.compile(r"\s*+(?:\Z|\.\.|…|\*)")
_REST_OF_TOKEN = re.compile(r"[\w+/=~%-]*+")
_REST_OF_CODE = re.compile(r"[\w+/-]*+(?:=|%3[Dd]){0,2}", re.ASCII)
_CODE_BEFORE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-_")


@lru_cache(maxsize=1)
def _entities() -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for name, text in html5.items():
        if name.endswith(";"):
            names.setdefault(text, []).append(name[:-1])
    return names


@lru_cache(maxsize=2048)
def _escapes(char: str) -> str:
    """A pattern of every escaped form of one character: URL, JSON (its backslash is in the gap), HTML; nested too."""
    number = ord(char)
    url = "".join(f"%(?:25){{0,3}}{byte:02x}" for byte in char.encode())
    units = char.encode("utf-16-be").hex()
    json = [r"(?>(?:\\|%5c)*)".join(f"u{units[at : at + 4]}" for at in range(0, len(units), 4))]
    if number < 256:
        json.append(f"x{number:02x}")
    names = [f"#0{{0,6}}{number}", f"#x0{{0,6}}{number:x}", *map(re.escape, _entities().get(char, []))]
    return rf"{url}|{_BACKSLASH}(?:{'|'.join(json)})|&(?:amp;){{0,3}}(?:{'|'.join(names)});?"


@lru_cache(maxsize=2048)
def _escaped(char: str) -> tuple[re.Pattern[str], ...]:
    """Patterns of the escaped forms of one character, several where one text can be read in several ways."""
    nested = _NESTED.get(char, ())
    return tuple(re.compile(form, re.IGNORECASE) for form in (_escapes(char), *nested))


@lru_cache(maxsize=2048)
def _beginnings(char: str) -> re.Pattern[str]:
    return re.compile(f"(?={_escapes(char)}|{re.escape(char)})", re.IGNORECASE)


def _is_word(text: str) -> bool:
    return text.isalpha() and (text[1:].islower() or text.isupper())


@dataclass(frozen=True)
class _Needle:
    """One form of a secret: its characters without white space and backslashes.

    `least` of them, from the first on, are the secret. `stub` of them are it where the text was cut or masked: a
    beginning that is an ordinary word ("deployment" of "deployment-7f3a") is no leak in the middle of a sentence.
    `code` says that these are the inner characters of base64 or hex, in a longer run that goes as a whole.
    """

    chars: str
    least: int
    stub: int
    spaces: frozenset[int] = frozenset()
    code: bool = False

    def __repr__(self) -> str:
        return "_Needle(***)"

    @property
    def literal(self) -> str:
        return self.chars[: self.least].lower()

    @property
    def shortest(self) -> str:
        return self.chars[: self.stub].lower()

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Where the secret, or a beginning of it that is long enough, stands in the text. Spans don't overlap."""
        done = 0
        for candidate in _beginnings(self.chars[0]).finditer(text):
            start = candidate.start()
            if start < done:
                continue
            count, end = self._run(text, start)
            if count < self.least and not (count >= self.stub and _MASKED_OR_CUT.match(text, end)):
                continue
            if self.code:
                while start > done and text[start - 1] in _CODE_BEFORE:
                    start -= 1
                end = _end(_REST_OF_CODE, text, end)
            elif count < len(self.chars):
                end = _end(_REST_OF_TOKEN, text, end)
            yield start, end
            done = end

    def _run(self, text: str, start: int) -> tuple[int, int]:
        """How many of the characters stand in the text from `start` on, and where the last of them ends."""
        ends = {start}
        for count, char in enumerate(self.chars):
            gaps = _SPACED if count in self.spaces else _GAPS
            starts = {found.end() for at in ends for gap in gaps if (found := gap.match(text, at))}
            following = {end for at in starts for end in _ends(char, text, at)}
            if not following:
                return count, max(ends)
            ends = following
        return len(self.chars), max(ends)


def _ends(char: str, text: str, at: int) -> Iterator[int]:
    """Where the character ends in each reading of what stands in the text at this place."""
    there = text[at : at + 1]
    if there == char or there.lower() == char.lower():
        yield at + 1
    if there in _ESCAPE_BEGINS:
        yield from (found.end() for form in _escaped(char) if (found := form.match(text, at)))


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _needles(secret: str) -> list[_Needle]:
    """The forms in which a secret is searched for; none when too little of it would be left to search for."""
    chars, spaces = "", set[int]()
    for char in secret:
        if _IGNORED.match(char):
            spaces.add(len(chars))
        else:
            chars += char
    # A secret that is a word of our own would make every text unprintable, and is in each of them anyway.
    if len(secret) < _SHORTEST or len(chars) < _SHORTEST - 2 or chars.lower() in _OWN_WORDS:
        return []
    stub = min(len(chars), max(_SHORTEST, min(10, len(chars) // 2)))
    least = stub
    while least < len(chars) and _is_word(chars[:least]):
        least += 1
    needles = [_Needle(chars, least, stub, frozenset(spaces))]
    # Base64 and hex hold white space and backslashes too, so they are made of the secret as it is.
    whole, start = secret.encode(), secret[:least].encode()
    codes = [(whole.hex(), start.hex())]
    for shift in range(3):
        codes.append((_inner_base64(whole, shift), _inner_base64(start, shift)))
        codes.append((_urlsafe(codes[-1][0]), codes[-1][1]))
    needles += [_Needle(code, len(beginning), len(beginning), code=True) for code, beginning in codes]
    return list(dict.fromkeys(needles))


def _inner_base64(data: bytes, shift: int) -> str:
    """The characters of base64 that depend on `data` alone, when `shift` (mod 3) bytes stand before it."""
    text = b64encode(b"\0" * shift + data + b"\0\0").decode()
    return text[-(-shift * 8 // 6) : (shift + len(data)) * 8 // 6]


def _urlsafe(code: str) -> str:
    return code.replace("+", "-").replace("/", "_")


# --- the check --------------------------------------------------------------------------------------------

_JSON_ESCAPE = re.compile(r"\\+(?:u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|([nrtbf]))")


def _unescape_json(text: str) -> str:
    plain = _JSON_ESCAPE.sub(lambda found: " " if found[3] else chr(int(found[1] or found[2], 16)), text)
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "ignore")


_DECODERS = (unquote, unquote_plus, html.unescape, _unescape_json)
_MAX_VIEWS = 100


def _views(text: str) -> Iterator[str]:
    """The text, and what decoders make of it, three deep; without white space and backslashes, in lower case."""
    seen, layer = {text}, [text]
    for _ in range(4):
        yield from (_IGNORED.sub("", view).lower() for view in layer)
        decoded = (_clean(decode(view)) for view in layer if _ESCAPE.search(view) for decode in _DECODERS)
        layer = [view for view in dict.fromkeys(decoded) if view not in seen][: _MAX_VIEWS - len(seen)]
        seen.update(layer)


# --- the door ---------------------------------------------------------------------------------------------


class Redactor:
    """Takes the secrets of one route, and what looks like any secret or identifier, out of texts.

    `ignored` is how many of the secrets are too short to be searched for; `refused` counts the texts that were
    replaced because a secret had survived.
    """

    def __init__(self, secrets: Iterable[Secret]) -> None:
        self.ignored = 0
        self.refused = 0
        self._needles: tuple[_Needle, ...] = ()
        found: dict[_Needle, None] = {}
        for value in dict.fromkeys(_clean(secret.reveal()).strip() for secret in secrets):
            needles = _needles(value)
            found.update(dict.fromkeys(needles))
            if value and not needles:
                self.ignored += 1
        self._needles = tuple(found)

    @classmethod
    def for_route(cls, route: Route, credentials: Credentials) -> Redactor:
        """A redactor that knows everything secret of a route: key, secret headers, and what its URLs carry."""
        secrets = [
            *_header_forms(credentials.key),
            *(s for h in credentials.headers.values() for s in _header_forms(h)),
        ]
        for url in (route.base_url, route.proxy):
            if url:
                secrets += map(Secret, secrets_in_url(url))
        return cls(secrets)

    def text(self, value: str, limit: int = LIMIT) -> Redacted:
        """The text as it may be shown, at most `limit` characters (the ellipsis included), or `REFUSED`. Never raises.

        Redacting the result again changes nothing. Of a long text only the first 16 KiB are read.
        """
        text = _read(value)
        for _ in range(_PASSES):
            shown = _bound(replace(IDENTIFIERS, replace(SECRETS, self._without_own(text))), limit)
            if shown == text:
                break
            text = shown
        else:
            return self._refuse()
        return self._refuse() if self._survives(shown) else Redacted(shown)

    def value(self, obj: Any) -> Any:
        """The same of JSON-like data: texts and keys are redacted, numbers, booleans and None stay.

        A text under a key such as `authorization` is a secret whatever it looks like. Depth and size are bounded; what
        lies beyond is replaced by an ellipsis.
        """
        budget = [_NODES]
        return self._value(obj, 0, budget)

    def _value(self, obj: Any, depth: int, budget: list[int]) -> Any:
        budget[0] -= 1
        if obj is None or isinstance(obj, bool):
            return obj
        if depth > _DEPTH or budget[0] < 0:
            return _ELLIPSIS
        if isinstance(obj, dict):
            shown: dict[str, Any] = {}
            for key, item in obj.items():
                if budget[0] < 0:
                    shown[_ELLIPSIS] = _ELLIPSIS
                    break
                secret = isinstance(item, str) and SECRET_FIELD.fullmatch(str(key))
                shown[self.text(str(key))] = SECRET if secret else self._value(item, depth + 1, budget)
            return shown
        if isinstance(obj, list | tuple | set | frozenset):
            items: list[Any] = []
            for item in obj:
                if budget[0] < 0:
                    items.append(_ELLIPSIS)
                    break
                items.append(self._value(item, depth + 1, budget))
            return items
        if isinstance(obj, int | float):
            return self._number(obj)
        return self.text(str(obj))

    def _number(self, number: int | float) -> Any:
        if isinstance(number, int) and number.bit_length() > 1024:
            return _ELLIPSIS  # Python refuses to print the largest
        printed = str(number)
        return self.text(printed) if self._survives(printed) else number

    def _refuse(self) -> Redacted:
        self.refused += 1
        return REFUSED

    def _survives(self, text: str) -> bool:
        return any(needle.literal in view for view in _views(text) for needle in self._needles)

    def _without_own(self, text: str) -> str:
        if not self._needles:
            return text
        if not _ESCAPE.search(text):
            plain = _IGNORED.sub("", text).lower()
            if not any(needle.shortest in plain for needle in self._needles):
                return text
        spans = sorted(span for needle in self._needles for span in needle.spans(text))
        parts, done = [], 0
        for start, end in spans:
            if start >= done:
                parts += [text[done:start], SECRET]
            done = max(done, end)
        return "".join([*parts, text[done:]])


def _read(value: str) -> str:
    """The cleaned beginning of a text. A token that the cut went through goes whole: half a key is no longer known."""
    text = _clean(value[: 4 * _READ])
    if len(value) <= 4 * _READ and len(text) <= _READ:
        return text
    text = text[:_READ]
    if not text[-1:].isspace():
        text = text[: -len(text.split()[-1])] if text else text
    return text.rstrip() + _ELLIPSIS


def _bound(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: max(limit - 1, 0)] + _ELLIPSIS[: max(limit, 0)]


def _header_forms(secret: Secret | None) -> Iterator[Secret]:
    """A secret header value, and the credential inside `Bearer …`, `Basic …` and their like."""
    if secret is None:
        return
    yield secret
    scheme, _, token = secret.reveal().strip().partition(" ")
    token = token.strip()
    if not scheme.isalpha() or len(token) < _SHORTEST:
        return
    yield Secret(token)
    if scheme.lower() == "basic":
        try:
            pair = b64decode(token + "==").decode("utf-8", "replace")
        except binascii.Error:
            return  # it isn't base64, so it holds no password but itself
        yield from (Secret(part) for part in (pair, pair.partition(":")[2]) if len(part) >= _SHORTEST)
