"""How far a failure reaches: which other routes fail alike, and what those that fail have in common."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from service.derive import RouteState, Shown, derive
from service.model import CellRow
from service.web.views.words import leading_cell, moment


@dataclass
class _Peer:
    """A route by what it shares with others. `alike`: a required cell of it fails with the same status, `since` then;
    `works`: all that it requires is proven."""

    provider: str
    hosts: set[str] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)
    alike: bool = False
    works: bool = True
    since: datetime | None = None


def scope(state: RouteState, rows: Iterable[CellRow], now: datetime) -> str | None:
    """`14 of 15 routes of openai fail alike since 03:08:07 UTC; all of them use the key env:A, and the other key
    works.` None where the route doesn't fail, and where nothing is beside it to compare with."""
    lead = leading_cell(state)
    standing = lead.row.standing
    if state.deciding is None or standing is None or lead.shown in (Shown.PROVEN, Shown.UNKNOWN):
        return None
    mine, peers = lead.row, _peers(rows, standing.status, now)
    of_provider = [peer for peer in peers if peer.provider == mine.route.provider]
    at_host = [peer for peer in peers if mine.cell.host and mine.cell.host in peer.hosts]
    wider = sum(peer.alike for peer in at_host) > sum(peer.alike for peer in of_provider)
    group, where = (at_host, f"at {mine.cell.host}") if wider else (of_provider, f"of {mine.route.provider}")
    alike = [peer for peer in group if peer.alike]
    if len(group) < 2 or not alike:
        return None
    if len(alike) == 1:
        return _alone([peer for peer in group if not peer.alike], where)
    since = min((peer.since for peer in alike if peer.since), default=None)
    some = f"{len(alike)} of {len(group)}"
    if len(alike) == len(group):
        some = "Both" if len(group) == 2 else f"All {len(group)}"
    began = f" since {moment(since, now).clock}" if since else ""
    return f"{some} routes {where} fail alike{began}{_shared(group, alike)}."


def _peers(rows: Iterable[CellRow], status: str, now: datetime) -> list[_Peer]:
    found: dict[str, _Peer] = {}
    for row in rows:
        if not row.cell.required:
            continue
        peer = found.setdefault(row.route.id, _Peer(row.route.provider))
        peer.hosts.add(row.cell.host)
        peer.keys.add(row.cell.credential)
        state = derive(row, now)
        peer.works &= state.shown is Shown.PROVEN
        if state.shown not in (Shown.PROVEN, Shown.UNKNOWN) and row.standing and row.standing.status == status:
            peer.alike = True
            began = row.state_since or row.standing.observed_at
            peer.since = min(peer.since or began, began)
    return list(found.values())


def _alone(others: Sequence[_Peer], where: str) -> str:
    works = sum(peer.works for peer in others)
    if len(others) == 1:
        return f"The other route {where} {'works' if works else 'does not fail alike'}."
    all_of_them = "all of them work" if works == len(others) else f"{works} of them {'works' if works == 1 else 'work'}"
    return f"None of the other {len(others)} routes {where} fails alike; {all_of_them}."


_PARTS: tuple[tuple[str, Callable[[_Peer], set[str]]], ...] = (
    ("key", lambda peer: peer.keys),
    ("host", lambda peer: peer.hosts),
)


def _shared(group: Sequence[_Peer], alike: Sequence[_Peer]) -> str:
    """What those that fail have and those that work have not; where none works, what all of them have."""
    working = [peer for peer in group if peer.works]
    common: defaultdict[str, str] = defaultdict(str)
    for part, values in _PARTS:
        theirs = set[str]().union(*map(values, alike))
        if len(theirs) != 1 or theirs == {""}:
            continue
        (common[part],) = theirs
        others = set[str]().union(*map(values, working))
        if others and not others & theirs:
            rest = f"the other {part} works" if len(others) == 1 else f"the other {part}s work"
            return f"; all of them use the {part} {common[part]}, and {rest}"
    if working or not common:
        return ""
    return f"; they share {' and '.join(f'the {part} {value}' for part, value in common.items())}"
