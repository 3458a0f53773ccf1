"""The feed: valid Atom that keeps its ids, and inert whatever a text holds."""

from __future__ import annotations

import unicodedata
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from urllib.parse import urlsplit
from uuid import UUID
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.model import Transition
from service.web.feed import SUMMARY_LIMIT, TITLE_LIMIT, Entry, entry_id, feed
from service.web.xml_text import xml_text

ATOM = {"": "http://www.w3.org/2005/Atom"}
NOW = datetime(2026, 11, 30, 3, 12, 7, 250_000, tzinfo=UTC)
SITE, SELF = "https://probe.example", "https://probe.example/feed.atom"
ID = UUID("6c84fb90-12c4-5a1e-8a3c-0242ac130003")
ENTRY = Entry(
    id=ID,
    route_id="gpt-4o-mini",
    title="openai/gpt-4o-mini: agent_turn works → Tools refused",
    summary="The provider refuses tools. Fail over.",
    kind="regression",
    updated=NOW - timedelta(minutes=4),
)
TRANSITION = Transition(
    at=NOW,
    route_id="gpt-4o-mini",
    contract="agent_turn",
    location="default",
    kind="regression",
    from_status="turn_completed",
    from_reason=None,
    to_status="history_rejected",
    to_reason=None,
    changed={},
)
ANY_TEXT = st.text(st.characters())  # lone surrogates too


def parsed(*entries: Entry) -> ElementTree.Element:
    return ElementTree.fromstring(feed(entries, SELF, SITE, NOW))


def only(entry: Entry) -> ElementTree.Element:
    (found,) = parsed(entry).findall("entry", ATOM)
    return found


def test_the_feed_has_all_that_atom_requires() -> None:
    root = parsed()
    assert root.tag == "{http://www.w3.org/2005/Atom}feed"
    assert root.findtext("id", namespaces=ATOM) == SELF
    assert root.findtext("title", namespaces=ATOM) == "Routeproof: changes of routes"
    assert root.findtext("updated", namespaces=ATOM) == "2026-11-30T03:12:07Z"
    assert root.findtext("author/name", namespaces=ATOM) == "Routeproof"
    assert {link.get("rel"): link.get("href") for link in root.findall("link", ATOM)} == {
        "self": SELF,
        "alternate": SITE,
    }


def test_an_entry_tells_its_transition() -> None:
    entry = only(ENTRY)
    assert entry.findtext("id", namespaces=ATOM) == f"urn:uuid:{ID}"
    assert entry.findtext("title", namespaces=ATOM) == ENTRY.title
    assert entry.findtext("summary", namespaces=ATOM) == ENTRY.summary
    assert entry.findtext("updated", namespaces=ATOM) == "2026-11-30T03:08:07Z"
    assert [c.get("term") for c in entry.findall("category", ATOM)] == ["regression"]
    assert [link.get("href") for link in entry.findall("link", ATOM)] == ["https://probe.example/routes/gpt-4o-mini"]


def test_entries_keep_the_order_given() -> None:
    second = replace(ENTRY, id=UUID(int=2))
    found = [entry.findtext("id", namespaces=ATOM) for entry in parsed(ENTRY, second).findall("entry", ATOM)]
    assert found == [ENTRY.id.urn, second.id.urn]


def test_times_are_written_in_utc_and_one_without_zone_is_refused() -> None:
    elsewhere = replace(ENTRY, updated=NOW.astimezone(timezone(timedelta(hours=5, minutes=30))))
    assert only(elsewhere).findtext("updated", namespaces=ATOM) == "2026-11-30T03:12:07Z"
    with pytest.raises(ValueError):
        parsed(replace(ENTRY, updated=NOW.replace(tzinfo=None)))


def test_the_same_transition_has_the_same_id_for_ever() -> None:
    assert str(entry_id(TRANSITION)) == "2f3870a6-2ee4-57a9-bca0-f4548596ebcc"
    same = replace(TRANSITION, at=NOW.astimezone(timezone(timedelta(hours=2))), id=7, to_reason="x", announced=True)
    assert entry_id(same) == entry_id(TRANSITION)


@pytest.mark.parametrize(
    "other",
    [
        {"at": NOW + timedelta(microseconds=1)},
        {"route_id": "gpt-4o"},
        {"contract": "native_tools"},
        {"location": "eu"},
        {"kind": "recovery"},
        {"to_status": "turn_completed"},
        {"route_id": "gpt-4o-mini\\", "contract": "agent_turn"},
        {"location": "\ud800"},
    ],
)
def test_another_transition_has_another_id(other: dict[str, object]) -> None:
    assert entry_id(replace(TRANSITION, **other)) != entry_id(TRANSITION)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("plain", "plain"),
        ("a\n\t b\u2028c", "a b c"),
        ("NUL\x00 bell\x07 escape\x1b[31m", "NUL\ufffd bell\ufffd escape\ufffd[31m"),
        ("\ud800lone\udfff", "\ufffdlone\ufffd"),
        ("\ufffe\uffff\U0001fffe\ufdd0", "\ufffd" * 4),
        ("moc\u202egpj.exe", "moc[U+202E]gpj.exe"),
        ("zero\u200bwidth", "zero[U+200B]width"),
        ("\U000e0041", "[U+E0041]"),
        ("<script>&amp;]]>", "<script>&amp;]]>"),
        ("схема 模型 🙂", "схема 模型 🙂"),
    ],
)
def test_what_xml_forbids_is_replaced_and_what_is_invisible_is_named(text: str, seen: str) -> None:
    assert xml_text(text, 100) == seen
    entry = only(replace(ENTRY, title=text, summary=text))
    assert entry.findtext("title", namespaces=ATOM) == seen
    assert entry.findtext("summary", namespaces=ATOM) == seen


def test_texts_are_bounded() -> None:
    entry = only(replace(ENTRY, title="t" * 10_000, summary="\u202e" * 10_000, kind="k" * 10_000))
    assert len(entry.findtext("title", "", ATOM)) == TITLE_LIMIT
    assert len(entry.findtext("summary", "", ATOM)) == SUMMARY_LIMIT
    assert len(feed([replace(ENTRY, title="t" * 10_000)] * 2, SELF, SITE, NOW)) < 3000


@pytest.mark.parametrize(
    "route_id", ["../../admin", "javascript:alert(1)", "//elsewhere.example", "a?b#c", "\ud800", '"><script>']
)
def test_a_link_never_leaves_the_route_pages(route_id: str) -> None:
    entry = only(replace(ENTRY, route_id=route_id))
    (href,) = [link.get("href", "") for link in entry.findall("link", ATOM)]
    parts = urlsplit(href)
    assert (parts.scheme, parts.netloc, parts.query, parts.fragment) == ("https", "probe.example", "", "")
    assert parts.path.removeprefix("/routes/").count("/") == 0


@given(ANY_TEXT, st.integers(1, 50))
def test_any_text_becomes_one_line_that_is_seen_and_bounded(text: str, limit: int) -> None:
    seen = xml_text(text, limit)
    assert len(seen) <= limit
    assert not [char for char in seen if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")]
    assert xml_text(seen, limit) == seen


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT, ANY_TEXT)
def test_any_text_makes_a_well_formed_feed(title: str, summary: str, kind: str, route_id: str) -> None:
    entry = only(replace(ENTRY, title=title, summary=summary, kind=kind, route_id=route_id))
    assert [child.tag.rpartition("}")[2] for child in entry] == [
        "id",
        "title",
        "updated",
        "link",
        "category",
        "summary",
    ]
    assert (entry.findtext("title", "", ATOM)) == xml_text(title, TITLE_LIMIT)
