"""Text of others made fit for XML and HTML: every character is allowed and seen, and the whole is bounded."""

from __future__ import annotations

import re
import unicodedata

UNKNOWN = "\ufffd"
TEXT_LIMIT = 2000
"""Of a text that pages or the API repeat, in characters. What is stored has a bound of its own, made when it is
written; this one holds whoever wrote it."""

_SPACE = re.compile(r"\s+")
_PLAIN_LINES = re.compile(r"[ -~\n\t]*")


def xml_text(text: str, limit: int) -> str:
    """The text in one line of at most `limit` characters, cut with an ellipsis.

    What XML 1.0 forbids, and every other control, surrogate and noncharacter, becomes U+FFFD. Characters that print
    nothing but change how others are shown (bidi, zero width, tags) are named: `[U+202E]`.
    """
    line = _SPACE.sub(" ", text).strip()
    if not _plain(line):
        line = "".join(map(_seen, line[: limit + 1]))
    return line if len(line) <= limit else line[: limit - 1] + "…"


def visible(text: str, limit: int) -> str:
    """The same for text that may have several lines: line ends and tabs stay."""
    if not _plain(text) and not _PLAIN_LINES.fullmatch(text):
        text = "".join(char if char in "\n\t" else _seen(char) for char in text[: limit + 1])
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _seen(char: str) -> str:
    code, category = ord(char), unicodedata.category(char)
    if category in ("Cc", "Cs") or code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF:
        return UNKNOWN
    return f"[U+{code:04X}]" if category == "Cf" else char
