"""Badges: they say the state in words and with a sign, can be read, and take any text."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.derive import Shown
from service.web.badge import LABEL_FILL, LABEL_LIMIT, LOOKS, MESSAGE_LIMIT, TEXT_FILL, badge, text_width

SVG = "{http://www.w3.org/2000/svg}"


def parsed(*given: str) -> ElementTree.Element:
    return ElementTree.fromstring(badge(*given))


def texts(drawn: ElementTree.Element) -> list[str | None]:
    return [found.text for found in drawn.iter(f"{SVG}text")]


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(digit * 2 for digit in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("fill", [LABEL_FILL, *(look.fill for look in LOOKS.values())])
def test_white_text_can_be_read_on_every_colour(fill: str) -> None:
    assert contrast(TEXT_FILL, fill) >= 4.5


def test_contrast_is_measured() -> None:
    assert contrast("#fff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#fff") == pytest.approx(4.48, abs=0.01)


def test_every_state_that_pages_show_has_a_look_of_its_own_sign() -> None:
    assert {*LOOKS} == {shown.value for shown in Shown} | {"stale", "paused"}
    assert len({look.sign for look in LOOKS.values()}) == len(LOOKS)


@pytest.mark.parametrize("kind", LOOKS)
def test_a_badge_shows_its_words_its_sign_and_its_colour(kind: str) -> None:
    drawn = parsed("agent turn", "97.9 % in 24 h", kind)
    assert texts(drawn) == ["agent turn", "97.9 % in 24 h"]
    assert LOOKS[kind].sign in [path.get("d") for path in drawn.iter(f"{SVG}path")]
    assert LOOKS[kind].fill in [path.get("fill") for path in drawn.iter(f"{SVG}path")]


def test_a_badge_is_named_for_those_who_do_not_see_it() -> None:
    drawn = parsed("gpt-4o-mini", "Tools refused", "violated")
    assert drawn.get("role") == "img"
    assert drawn.get("aria-label") == "gpt-4o-mini: Tools refused"
    assert (drawn[0].tag, drawn[0].text) == (f"{SVG}title", "gpt-4o-mini: Tools refused")


def test_an_unknown_kind_looks_unknown() -> None:
    assert badge("a", "b", "delighted") == badge("a", "b", "unknown")


def test_label_and_message_are_bounded() -> None:
    label, message = texts(parsed("x" * 10_000, "y" * 10_000, "proven"))
    assert label == "x" * (LABEL_LIMIT - 1) + "…"
    assert message == "y" * (MESSAGE_LIMIT - 1) + "…"


def test_markup_in_a_label_stays_text() -> None:
    drawn = parsed("</text><script>alert(1)</script>", '" onload="x', "proven")
    assert texts(drawn) == ["</text><script>alert(1)</script>", '" onload="x']
    assert not list(drawn.iter(f"{SVG}script"))


@pytest.mark.parametrize(("narrow", "wide"), [("iiii", "mmmm"), ("works", "works, stale"), ("abcd", "模型路由")])
def test_a_wider_text_gets_more_room(narrow: str, wide: str) -> None:
    assert text_width(narrow) < text_width(wide)
    assert float(parsed(narrow, "x", "proven").get("width", "")) < float(parsed(wide, "x", "proven").get("width", ""))


def test_marks_over_a_letter_take_no_room() -> None:
    assert text_width("e\u0301") == text_width("e")


def test_the_text_fits_into_its_part() -> None:
    drawn = parsed("qwen3-235b-a22b-instruct-2507", "Stream ends early", "violated")
    label, message = drawn.iter(f"{SVG}text")
    whole = float(drawn.get("width", ""))
    edge = float(next(p for p in drawn.iter(f"{SVG}path")).get("d", "").split()[0][1:])
    assert float(label.get("x", "")) + float(label.get("textLength", "")) < edge < float(message.get("x", ""))
    assert float(message.get("x", "")) + float(message.get("textLength", "")) < whole


@given(st.text(st.characters()), st.text(st.characters()), st.sampled_from([*LOOKS]))
def test_any_text_makes_a_well_formed_badge(label: str, message: str, kind: str) -> None:
    drawn = parsed(label, message, kind)
    assert drawn.get("aria-label") == ": ".join(text or "" for text in texts(drawn))
