"""The Atom feed of transitions (RFC 4287)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote
from uuid import NAMESPACE_URL, UUID, uuid5
from xml.etree.ElementTree import Element, SubElement, tostring

from service.model import Transition
from service.web.xml_text import xml_text

CONTENT_TYPE = "application/atom+xml; charset=utf-8"
TITLE_LIMIT, SUMMARY_LIMIT, WORD_LIMIT, URL_LIMIT = 200, 1000, 60, 2000

_ATOM = "http://www.w3.org/2005/Atom"
_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"


@dataclass(frozen=True)
class Entry:
    """One transition as the feed tells it. `id` never changes for the same one; `kind` is its stable word."""

    id: UUID
    route_id: str
    title: str
    summary: str
    kind: str
    updated: datetime


def entry_id(transition: Transition) -> UUID:
    """The same for the same transition, whoever computes it and when."""
    named = (
        transition.at.astimezone(UTC).isoformat(),
        transition.route_id,
        transition.contract,
        transition.location,
        transition.kind,
        transition.to_status,
    )
    return uuid5(NAMESPACE_URL, json.dumps(("routeproof transition", *named)))


def feed(entries: Iterable[Entry], self_url: str, site_url: str, updated: datetime) -> bytes:
    """The document, in UTF-8, with the entries in the order given.

    `self_url` is the feed's own address and its id; each entry links to its route's page under `site_url`. Texts may
    be anything: they are bounded and escaped. ValueError for a time without time zone.
    """
    root = Element("feed", {"xmlns": _ATOM, _LANGUAGE: "en"})
    _text(root, "id", self_url, URL_LIMIT)
    _text(root, "title", "Routeproof: changes of routes", TITLE_LIMIT)
    _text(root, "updated", _moment(updated), WORD_LIMIT)
    _text(SubElement(root, "author"), "name", "Routeproof", WORD_LIMIT)
    SubElement(root, "link", rel="self", type="application/atom+xml", href=xml_text(self_url, URL_LIMIT))
    SubElement(root, "link", rel="alternate", type="text/html", href=xml_text(site_url, URL_LIMIT))
    for entry in entries:
        root.append(_entry(entry, site_url.rstrip("/")))
    document: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return document


def _entry(entry: Entry, site_url: str) -> Element:
    element = Element("entry")
    _text(element, "id", entry.id.urn, WORD_LIMIT)
    _text(element, "title", entry.title, TITLE_LIMIT)
    _text(element, "updated", _moment(entry.updated), WORD_LIMIT)
    page = f"{site_url}/routes/{quote(entry.route_id, safe='', errors='replace')}"
    SubElement(element, "link", rel="alternate", type="text/html", href=xml_text(page, URL_LIMIT))
    SubElement(element, "category", term=xml_text(entry.kind, WORD_LIMIT))
    _text(element, "summary", entry.summary, SUMMARY_LIMIT)
    return element


def _text(parent: Element, name: str, text: str, limit: int) -> None:
    SubElement(parent, name).text = xml_text(text, limit)


def _moment(at: datetime) -> str:
    if at.tzinfo is None:
        raise ValueError("a time without time zone")
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
