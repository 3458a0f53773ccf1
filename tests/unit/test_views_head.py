"""The head of every page: each part says when it isn't well, and what pauses hold."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from service.model import Pause, PauseScope, ProberRow
from service.web import views
from tests.samples import MINUTE, NOW, View, prober, row, snapshot, standing

EU = row("alpha", state=standing(), location="eu")
US = row("alpha", state=standing(), location="us")


def head(*probers: ProberRow, **more: Any) -> views.Header:
    return views.header(View(snapshot(EU, US, probers=probers, **more), age_s=2))


@pytest.mark.parametrize(
    ("probers", "words", "ill"),
    [
        ((prober("eu"), prober("us"), prober("us")), "3 probers, database ok, egress ok", []),
        ((prober("eu"),), "1 prober, none in us, database ok, egress ok", ["1 prober, none in us"]),
        ((), "no prober, database ok, egress not checked", ["no prober"]),
        (
            (prober("eu"), prober("us", probes=False)),
            "1 prober, none in us, database ok, egress ok",
            ["1 prober, none in us"],
        ),
        (
            (prober("eu"), prober("us", superseded=True)),
            "1 prober, none in us, database ok, egress ok",
            ["1 prober, none in us"],
        ),
        (
            (prober("eu"), prober("us", egress_up=False)),
            "2 probers, database ok, egress down in us",
            ["egress down in us"],
        ),
        (
            (prober("eu", egress_up=None), prober("us", egress_up=None)),
            "2 probers, database ok, egress not checked",
            [],
        ),
        ((prober("eu", egress_up=None), prober("us")), "2 probers, database ok, egress ok", []),
    ],
)
def test_the_line_names_probers_database_and_egress(probers: tuple[ProberRow, ...], words: str, ill: list[str]) -> None:
    shown = head(*probers)
    assert ", ".join(part.words for part in shown.parts) == words
    assert [part.words for part in shown.parts if not part.well] == ill


def test_all_well_needs_no_further_words() -> None:
    shown = head(prober("eu"), prober("us"))
    assert (shown.banner, shown.faults, shown.pauses) == (None, (), ())
    assert (shown.as_of.clock, shown.data_age) == ("03:12:09 UTC", "2 s")


def test_what_is_not_well_is_a_sentence_each() -> None:
    shown = head(
        prober("eu", egress_up=False),
        prober("eu", superseded=True, config_hash="9f8e7d6c5b4a3210"),
        prober("eu", spooled=1),
        prober("eu", probes=False, spooled=12),
        active={"eu": "c0ffee"},
    )
    assert shown.faults == (
        "No prober of us was heard of within the last minute: what is shown of it gets older.",
        "The network of the prober in eu is down: what it finds is held against no route.",
        "A replica in eu has configuration 9f8e7d6c5b4a, which isn't the active one (c0ffee): it asks nothing. "
        "Bring it up to date or stop it.",
        "1 verdict waits on the disk of a prober in eu to be stored.",
        "12 verdicts wait on the disk of a prober in eu to be stored.",
    )


def test_many_faults_are_cut_short_and_counted() -> None:
    shown = head(*(prober("eu", superseded=True, config_hash=str(number)) for number in range(20)))
    assert len(shown.faults) == 6
    assert shown.faults[-1] == "17 more."


PAUSE = Pause(UUID(int=1), PauseScope.PROVIDER, "acme", NOW - MINUTE, NOW + 48 * MINUTE, False, "maintenance", "ops")


@pytest.mark.parametrize(
    ("pause", "words"),
    [
        (PAUSE, ("Provider acme is muted until 04:00:07 UTC: maintenance (by ops).",)),
        (
            replace(PAUSE, scope=PauseScope.TAG, target="eu", stops=True, reason="", by=""),
            ("Tag eu is muted and not asked until 04:00:07 UTC.",),
        ),
        (replace(PAUSE, since=NOW + MINUTE), ()),
        (replace(PAUSE, until=NOW + timedelta(seconds=2)), ()),
    ],
)
def test_pauses_that_hold_are_told(pause: Pause, words: tuple[str, ...]) -> None:
    assert head(prober("eu"), prober("us"), pauses=(pause,)).pauses == tuple(
        views.Held(word, word.partition(" is ")[0].lower(), str(pause.id), pause.stops) for word in words
    )


def test_while_the_database_is_away_probers_and_egress_are_not_known() -> None:
    shown = views.header(View(snapshot(EU), age_s=600, database_up=False))
    assert [(part.words, part.well) for part in shown.parts] == [("database can’t be reached", False)]
    assert shown.faults == ()
    assert shown.banner is not None


def test_who_sees_names_and_states_only_is_told_of_no_place_and_no_pause() -> None:
    shown = views.header(View(snapshot(EU, probers=(), pauses=(PAUSE,))), reads=False)
    assert [part.words for part in shown.parts] == ["database ok"]
    assert (shown.faults, shown.pauses) == ((), ())
