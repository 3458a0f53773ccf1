"""Status badges: a label and a message in the flat style that pages elsewhere use, as SVG that needs no font of ours.

A state is told by its words and by a sign, and not by colour alone.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

from service.web.charts.markup import element, plain
from service.web.xml_text import xml_text

CONTENT_TYPE = "image/svg+xml; charset=utf-8"
LABEL_LIMIT, MESSAGE_LIMIT = 60, 40

HEIGHT = 20
LABEL_FILL, TEXT_FILL = "#3d444b", "#fff"
_MARGIN, _SIGN = 7.0, 15.0
_BASELINE = 14


@dataclass(frozen=True)
class Look:
    """The colour under a message and the sign before it, drawn in a box of 12 × 12."""

    fill: str
    sign: str


_QUESTION = "M4 4.3C4 3 4.9 2.2 6 2.2s2 .8 2 1.9C8 5.6 6 5.6 6 7.4m0 2.3v.2"

LOOKS: Mapping[str, Look] = {
    "proven": Look("#1b7a45", "m2 6.4 2.8 2.8L10 3.2"),
    "in_part": Look("#7d5200", "M6 1.5a4.5 4.5 0 1 1 0 9zM6 1.5a4.5 4.5 0 0 0 0 9M7.8 3.4v5.2"),
    "violated": Look("#b3261e", "m2.5 2.5 7 7m0-7-7 7"),
    "blocked": Look("#8b2f8f", "M6 1.5a4.5 4.5 0 1 1 0 9 4.5 4.5 0 1 1 0-9M3.5 6h5"),
    "unavailable": Look("#a84504", "M6 1.6 11 10.4H1zM6 5v2.2m0 1.4v.1"),
    "unknown": Look("#5d666f", _QUESTION),
    "stale": Look("#7d5200", "M6 1.5a4.5 4.5 0 1 1 0 9 4.5 4.5 0 1 1 0-9M6 3.6V6l1.7 1"),
    "paused": Look("#1f5fa8", "M4 2.5v7m4-7v7"),
}
"""By kind: the states that pages show, and a proof that is stale, and a pause."""


def badge(label: str, message: str, kind: str) -> str:
    """The badge as an SVG document. Label and message are bounded and may hold anything; an unknown kind looks
    unknown."""
    label, message = xml_text(label, LABEL_LIMIT), xml_text(message, MESSAGE_LIMIT)
    look = LOOKS.get(kind, LOOKS["unknown"])
    left = text_width(label) + 2 * _MARGIN
    right = text_width(message) + 2 * _MARGIN + _SIGN
    whole = round(left + right, 1)
    said = f"{label}: {message}"
    return element(
        "svg",
        element("title", said),
        element("rect", width=whole, height=HEIGHT, rx=3, fill=LABEL_FILL),
        element(
            "path",
            d=f"M{plain(left)} 0H{plain(whole - 3)}a3 3 0 0 1 3 3v14a3 3 0 0 1-3 3H{plain(left)}z",
            fill=look.fill,
        ),
        element(
            "path",
            d=look.sign,
            transform=f"translate({plain(left + _MARGIN - 1)} 4)",
            fill="none",
            stroke=TEXT_FILL,
            stroke_width="1.6",
            stroke_linecap="round",
            stroke_linejoin="round",
        ),
        element(
            "g",
            _words(label, _MARGIN),
            _words(message, left + _MARGIN + _SIGN),
            fill=TEXT_FILL,
            font_family="Verdana, Geneva, 'DejaVu Sans', sans-serif",
            font_size=11,
            text_rendering="geometricPrecision",
        ),
        xmlns="http://www.w3.org/2000/svg",
        width=whole,
        height=HEIGHT,
        role="img",
        aria_label=said,
    )


def _words(text: str, x: float) -> str:
    """Fitted to the room that was reckoned for it, whatever font the reader has."""
    return element("text", text, x=x, y=_BASELINE, textLength=text_width(text))


# Measured with DejaVu Sans at 11 px, which is about as wide as Verdana.
_WIDTHS = {
    char: width
    for width, chars in {
        3.1: "ijl'IJ’",
        3.5: " ,.·",
        3.8: "/:;|\\-f",
        4.4: "()[]!rt",
        5.6: '`"*_sz“”–?',
        6.2: "cLF",
        6.5: "kvxyP",
        6.8: "aeoTY",
        7.0: "0123456789$bdghnpquES{}",
        7.5: "ABCKRVXZ",
        8.3: "DGHNU",
        8.8: "OQw&",
        9.3: "#+<=>^~M→",
        10.8: "mW@%…",
    }.items()
    for char in chars
}
_OTHER, _FULL = 7.7, 11.0


def text_width(text: str) -> float:
    """About how many pixels wide a text is."""
    return round(sum(map(_width, text)), 1)


def _width(char: str) -> float:
    if char in _WIDTHS:
        return _WIDTHS[char]
    if unicodedata.combining(char):
        return 0.0
    return _FULL if unicodedata.east_asian_width(char) in "WF" else _OTHER
